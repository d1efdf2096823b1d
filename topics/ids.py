"""Ids and fences: value types that travel on the wire.

A run id is one subject token. A root's id is 24 characters of Crockford base32 in lower case: 9 of time
(milliseconds), 15 of randomness (75 bits), so ids sort by time and cannot be guessed. A child's id is its root's id,
a `~`, and 16 characters derived from the parent's id and the place in the parent's code that started it: starting the
same child twice names the same run. A caller may choose a root's id: 1 to 64 of `A-Z a-z 0-9 _ -`.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import time
from typing import NewType

from .errors import InvalidRunId

RunId = NewType("RunId", str)
ThreadId = NewType("ThreadId", str)
WorkerId = NewType("WorkerId", str)

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_TIME_CHARS = 9
_RANDOM_CHARS = 15
_CHILD_CHARS = 16
_ROOT = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")
_CHILD = re.compile(rf"[{_ALPHABET}]{{{_CHILD_CHARS}}}\Z")


def _base32(number: int, length: int) -> str:
    chars = []
    for _ in range(length):
        chars.append(_ALPHABET[number & 31])
        number >>= 5
    return "".join(reversed(chars))


def _digest(length: int, *parts: str) -> str:
    raw = hashlib.blake2b("\0".join(parts).encode(), digest_size=16).digest()
    return _base32(int.from_bytes(raw, "big"), length)


def new_run_id(now_ms: int | None = None) -> RunId:
    """A fresh root id; `now_ms` (Unix milliseconds) defaults to the clock."""
    stamp = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    return RunId(_base32(stamp, _TIME_CHARS) + _base32(secrets.randbits(75), _RANDOM_CHARS))


def derived_run_id(salt: str, now_ms: int, *parts: str) -> RunId:
    """The root id that these parts always give: the same task delivered twice names the same run.

    `salt` is the installation's secret, so that nobody else can compute the id."""
    return RunId(_base32(now_ms, _TIME_CHARS) + _digest(_RANDOM_CHARS, salt, *parts))


def keyed_run_id(salt: str, *parts: str) -> RunId:
    """The root id that an idempotency key always gives; it does not sort by time."""
    return RunId(_digest(_TIME_CHARS + _RANDOM_CHARS, salt, *parts))


def is_derived_at(run: str, moment_ms: int) -> bool:
    """Whether a root's id begins with this time (Unix milliseconds), as the ids of `derived_run_id` do."""
    return run.startswith(_base32(moment_ms, _TIME_CHARS))


def child_run_id(parent: str, place: str) -> RunId:
    """The id of the child that `parent` starts at `place` (the operation's position in its code)."""
    return RunId(f"{root_of(parent)}~{_digest(_CHILD_CHARS, parent, place)}")


def root_of(run: str) -> RunId:
    """The root's id, which every run id contains."""
    return RunId(run.partition("~")[0])


def is_run_id(text: str) -> bool:
    """Whether `text` has the form of a run id."""
    root, tilde, rest = text.partition("~")
    return bool(_ROOT.match(root)) and (not tilde or bool(_CHILD.match(rest)))


def require_run_id(text: str) -> RunId:
    """`text` as a run id. Raises InvalidRunId."""
    if not is_run_id(text):
        raise InvalidRunId(
            f"{text[:80]!r} is not a run id: use 1 to 64 letters, digits, '_' or '-', "
            "for a child followed by '~' and its 16 characters",
            run=text[:80],
        )
    return RunId(text)


def new_token(length: int = 16) -> str:
    """A random token of `length` base32 characters (5 bits each), for workers, blobs, inboxes."""
    return _base32(secrets.randbits(5 * length), length)
