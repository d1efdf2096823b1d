"""Why a text is not the JSON that every message is: JSON by RFC 8259 in UTF-8."""

from __future__ import annotations

import re

_HIGH, _LOW = rb"\\u[dD][89abAB][0-9a-fA-F]{2}", rb"\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_LONE = re.compile(rb"(?<!\\)(?:\\\\)*(?:%b%b|(%b|%b))" % (_HIGH, _LOW, _HIGH, _LOW))


def why_not_json(text: bytes, error: BaseException) -> str:
    """What is to be said of a text at which the decoder failed with `error`. Of half a character it tells nothing of
    use by itself."""
    for found in _LONE.finditer(text):
        if found[1] is not None:
            half, at = found[1].decode(), found.start(1)
            return f"{half} at byte {at} is half of a surrogate pair, which is no character without the other half"
    return str(error)
