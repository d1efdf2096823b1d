"""What people type: JSON, metadata, times."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, cast, get_args

import msgspec

from ..topics.codec import why_not_json
from ..topics.errors import InvalidInput
from ..topics.messages import POLICIES, Policy, Priority
from ..topics.units import LONGEST_S, now

_SPAN = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)\Z")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


class Terms(NamedTuple):
    """On which terms a run is asked for; None: as its agent says."""

    deadline_s: float | None
    wait_timeout_s: float | None
    priority: Priority | None


def json_input(text: str) -> bytes:
    """The JSON of an argument, or of standard input for `-`. Raises InvalidInput, which says where it is wrong."""
    if text == "-":
        where, data = "standard input", sys.stdin.buffer.read()
    else:
        where, data = "the JSON argument", text.encode("utf-8", "surrogateescape")
    try:
        value = msgspec.json.decode(data)
        msgspec.json.encode(value)  # refuses lone surrogates
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise InvalidInput(f"{where} is not JSON: {why_not_json(data, error)}{_hint(data)}") from error
    return data.strip()


def _hint(data: bytes) -> str:
    if not data.strip():
        return "; it is empty: write null for no input"
    if re.fullmatch(rb"\s*[A-Za-z][^{}\[\]\"]*", data):
        return """; text needs quotes of its own, as in '"text"'"""
    return ""


def metadata(pairs: Sequence[str] | None) -> dict[str, Any] | None:
    """`NAME=VALUE` pairs as a JSON object. Raises InvalidInput."""
    found: dict[str, Any] = {}
    for pair in pairs or ():
        name, equals, text = pair.partition("=")
        if not equals or not name:
            raise InvalidInput(f"metadata {pair[:80]!r} is not NAME=VALUE")
        try:
            found[name] = msgspec.json.decode(text)
        except msgspec.DecodeError:
            found[name] = text
    return found or None


def policy(text: str | None) -> Policy | None:
    """What is done in a busy thread. Raises InvalidInput."""
    if text is not None and text not in POLICIES:
        raise InvalidInput(f"{text[:40]!r} is no policy: use one of {', '.join(POLICIES)}")
    return cast(Policy | None, text)


def terms(deadline: str | None, wait_timeout: str | None, priority: str | None) -> Terms:
    """The limits of time, and which goes first. Raises InvalidInput."""
    if priority is not None and priority not in get_args(Priority):
        raise InvalidInput(f"{priority[:40]!r} is no priority: use one of {', '.join(get_args(Priority))}")
    deadline_s, wait_timeout_s = (None if text is None else span(text) for text in (deadline, wait_timeout))
    return Terms(deadline_s, wait_timeout_s, cast(Priority | None, priority))


def span(text: str) -> float:
    """A duration such as `30s`, `5m`, `2h`, `1d`, or plain seconds, in seconds, at most ten years. Raises
    InvalidInput."""
    found = _SPAN.match(text)
    try:
        seconds = float(found[1]) * _SECONDS[found[2]] if found else float(text)
    except ValueError:
        seconds = -1.0
    if not seconds >= 0:  # nor is nan
        raise InvalidInput(f"{text[:40]!r} is not a duration: write 30s, 5m, 2h, 1d, or seconds")
    if seconds > LONGEST_S:
        raise InvalidInput(f"{text[:40]!r} is longer than ten years: give at most {LONGEST_S / 86_400:.0f}d")
    return seconds


def since(text: str) -> datetime:
    """A moment: a duration back from now, or an ISO time (UTC where it has no zone). Raises InvalidInput."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return now() - timedelta(seconds=span(text))
    return _in_utc(moment, text)


def moment(text: str) -> datetime | float:
    """When something shall be: an ISO time (UTC where it has no zone), or a duration from now, in seconds. Raises
    InvalidInput."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        try:
            return span(text)
        except InvalidInput as error:
            raise InvalidInput(
                f"{text[:40]!r} is no time: write 2030-01-31T09:30:00+01:00, or a duration from now, at most ten years,"
                " such as 30s, 5m, 2h"
            ) from error
    return _in_utc(found, text)


def _in_utc(found: datetime, text: str) -> datetime:
    try:
        return found.astimezone(UTC) if found.tzinfo else found.replace(tzinfo=UTC)
    except OverflowError:
        raise InvalidInput(f"{text[:40]!r} is beyond the calendar") from None
