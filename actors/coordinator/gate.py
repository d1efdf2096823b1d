"""Who may pass the gate of an agent, as pure functions: no broker, no clock.

Every attempt of an agent with limits needs a slot: it is let through when one is free, when its key has fewer than
`per_key` of them, and when the rate allows it. `high` goes before `normal` before `low`; within a class the keys take
turns, and within a key the oldest goes first. A slot belongs to a dispatch of a run and is free again as soon as the
run's record says that the dispatch is over, whoever wrote that and whatever has died: nothing needs to give it back.
"""

from __future__ import annotations

import bisect
import hashlib
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple, get_args

import msgspec
from msgspec.structs import replace

from ...topics.messages import KEYLESS, Gate, Holder, Limits, Priority, RunRecord, Status

CLASSES: tuple[Priority, ...] = get_args(Priority)
AT_ONCE = 500
"""How many are let through in one write of the gate, at most."""
_PLAIN = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_scalar = msgspec.json.Decoder(str | int | float | bool).decode


class Turn(NamedTuple):
    """Whose turn it is: the class and the key."""

    priority: Priority
    key: str


Waiting = Mapping[Turn, int]
"""How many entries wait in each class under each key."""


# -- keys -------------------------------------------------------------------------------------------------------------


def key_of(limits: Limits, record: RunRecord) -> str:
    """The run's key as one token of a subject."""
    found = _key(limits.key or "", record)
    if found is None:
        return KEYLESS
    return f"={found}" if _PLAIN.match(found) else f"~{hashlib.blake2b(found.encode(), digest_size=12).hexdigest()}"


def _key(where: str, record: RunRecord) -> str | None:
    if where == "thread":
        return record.thread
    kind, _, name = where.partition(".")
    if kind == "metadata":
        value = (record.metadata or {}).get(name)
        return _text(value) if isinstance(value, str | int | float) else None
    if kind != "$" or not isinstance(record.input.json, msgspec.Raw):
        return None
    try:
        return _text(_scalar(_fields(record.input.json)[name]))
    except (KeyError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _text(value: str | float) -> str:
    """2, 2.0 and 2e0 are one number, and one key."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


# -- slots ------------------------------------------------------------------------------------------------------------


def holds(record: RunRecord, dispatch: int) -> bool:
    """Whether this dispatch of the run holds its slot.

    A record may be old: then its dispatch is behind, or it still says what was true. An old record can keep a slot for
    a moment longer, and never frees one too early."""
    if record.dispatch != dispatch:
        return record.dispatch < dispatch
    if record.status is Status.QUEUED:
        return record.wake_at is None
    return record.status is Status.RUNNING or (record.status is Status.CANCEL_REQUESTED and record.worker is not None)


def waits(record: RunRecord, dispatch: int) -> bool:
    """Whether this dispatch of the run still needs a slot. As to old records, see `holds`."""
    return record.dispatch < dispatch or (record.status is Status.QUEUED and holds(record, dispatch))


def without(gate: Gate, released: Mapping[str, int]) -> Gate:
    """The gate without the holders whose dispatch is over: `released` has the last one of each run that is."""
    kept = [one for one in gate.holders if one.dispatch > released.get(one.run, -1)]
    return gate if len(kept) == len(gate.holders) else replace(gate, holders=kept)


# -- turns ------------------------------------------------------------------------------------------------------------


def turns(gate: Gate, limits: Limits | None, waiting: Waiting, now: datetime) -> list[Turn]:
    """Who may pass now, in order. Without limits, everybody."""
    room = AT_ONCE
    if limits is not None:
        room = min(room, limits.concurrency - len(gate.holders))
        room = math.floor(min(room, tokens(gate, limits, now)))
    under_way = Counter(one.key for one in gate.holders)
    most = limits.per_key if limits is not None else None
    found: list[Turn] = []
    for priority in CLASSES:
        left = {
            key: count if most is None or key == KEYLESS else min(count, most - under_way[key])
            for (class_, key), count in waiting.items()
            if class_ == priority
        }
        taken = _round_robin(left, gate.last.get(priority, ""), room - len(found))
        under_way.update(taken)
        found += [Turn(priority, key) for key in taken]
    return found


def _round_robin(left: dict[str, int], last: str, room: int) -> list[str]:
    """One of each key, from the one behind `last` on, round and round, until there is no room or nobody left."""
    keys = sorted(key for key, count in left.items() if count > 0)
    behind = bisect.bisect_right(keys, last)
    keys = keys[behind:] + keys[:behind]
    found: list[str] = []
    while keys and len(found) < room:
        for key in keys[: room - len(found)]:
            found.append(key)
            left[key] -= 1
        keys = [key for key in keys if left[key] > 0]
    return found


def let_through(gate: Gate, limits: Limits | None, passed: Sequence[tuple[Turn, Holder]], now: datetime) -> Gate:
    """The gate with new holders."""
    last = gate.last | {turn.priority: turn.key for turn, _ in passed}
    holders = [*gate.holders, *(holder for _, holder in passed)]
    if limits is None or limits.rate is None:
        return replace(gate, holders=holders, last=last, tokens=0.0, filled_at=None)
    filled_at = now if gate.filled_at is None else max(now, gate.filled_at)
    left = tokens(gate, limits, now) - len(passed)
    return replace(gate, holders=holders, last=last, tokens=left, filled_at=filled_at)


def tokens(gate: Gate, limits: Limits, now: datetime) -> float:
    """How many attempts the rate allows at this moment."""
    if limits.rate is None:
        return math.inf
    if gate.filled_at is None:
        return float(limits.burst)
    since = max(0.0, (now - gate.filled_at).total_seconds())
    return min(float(limits.burst), gate.tokens + since * limits.rate)


def next_token_s(gate: Gate, limits: Limits | None, now: datetime) -> float | None:
    """Seconds until the rate allows one more; None when it does, or when there is none."""
    if limits is None or limits.rate is None:
        return None
    lacking = 1.0 - tokens(gate, limits, now)
    return lacking / limits.rate if lacking > 0 else None
