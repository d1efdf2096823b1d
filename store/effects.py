"""The effects of a run: what its code did outside, as far as the log can know.

An effect is claimed before its function is called and settled after it. What was claimed and not settled is unknown:
its process died, or its function raised something that does not tell.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias

import msgspec

from ..topics.errors import InvalidMessage
from ..topics.messages import ErrorInfo, Payload, RunRecord, Status, Step, UnknownEffect

EffectStatus: TypeAlias = Literal[
    "claimed", "settled", "failed", "unknown", "compensating", "compensated", "compensation_failed"
]
_HELD = frozenset({Status.RUNNING, Status.CANCEL_REQUESTED})


@dataclass(slots=True)
class Effect:
    """One effect, at one place of the code. The times are those of the log; None where it was read without them."""

    at: str
    name: str
    key: str
    claim: Step
    """The newest claim."""
    calls: int = 1
    """How often it was claimed: its function was called at most as often."""
    settlement: Step | None = None
    """Of the newest claim: `done`, or `failed` when nothing happened."""
    doubt: Step | None = None
    """What the newest claim's function raised, when that does not tell whether it happened."""
    compensation: Step | None = None
    """The newest entry of its compensation."""
    claimed_at: datetime | None = None
    settled_at: datetime | None = None
    compensated_at: datetime | None = None

    @property
    def happened(self) -> bool:
        """Whether it is known to have happened."""
        return self.settlement is not None and self.settlement.status == "done"

    @property
    def open(self) -> bool:
        """Whether it is claimed and not settled."""
        return self.settlement is None

    @property
    def undoing(self) -> str | None:
        """How far its compensation is: `claimed`, `done` or `failed`; None when there was none."""
        return self.compensation.status if self.compensation else None

    @property
    def value(self) -> Payload | None:
        """What the function returned, such as the id that the outside gave."""
        return self.settlement.value if self.settlement else None

    @property
    def error(self) -> ErrorInfo | None:
        """Why the compensation failed, or why the effect did, or what left it unknown."""
        for entry in (self.compensation, self.settlement or self.doubt):
            if entry is not None and entry.error is not None:
                return entry.error
        return None

    @property
    def question(self) -> UnknownEffect:
        """What has to be decided about it."""
        claim, error = self.claim, self.doubt.error if self.doubt else None
        return UnknownEffect(
            at=self.at, name=self.name, key=self.key, attempt=claim.attempt, n=claim.n, error=error
        )  # fmt: skip

    def status(self, record: RunRecord) -> EffectStatus:
        """What is known of it, given the run as it is: a claim of the attempt that is under way may yet be settled."""
        if self.compensation is not None:
            return _COMPENSATION[self.compensation.status]
        if self.settlement is not None:
            return "settled" if self.happened else "failed"
        held = record.status in _HELD and record.worker is not None and record.attempt == self.claim.attempt
        return "claimed" if held and self.doubt is None else "unknown"

    def take(self, entry: Step, time: datetime | None = None) -> None:
        """The next entry of the effect, in the order of the log."""
        if entry.kind == "compensation":
            self.compensation = entry
            self.compensated_at = time if entry.status != "claimed" else None
        elif entry.status == "claimed":
            self.claim, self.claimed_at, self.key = entry, time, entry.key or self.key
            self.settlement = self.doubt = self.settled_at = self.compensation = self.compensated_at = None
            self.calls += 1
        elif entry.status == "unknown":
            self.doubt = entry
        elif not self.happened:
            self.settlement, self.settled_at = entry, time


_COMPENSATION: dict[str, EffectStatus] = {
    "claimed": "compensating",
    "done": "compensated",
    "failed": "compensation_failed",
}


class Effects:
    """The effects of a run by their places, in the order of their newest claims."""

    def __init__(self) -> None:
        self._found: dict[str, Effect] = {}

    def __bool__(self) -> bool:
        return bool(self._found)

    def get(self, at: str) -> Effect | None:
        """The effect at a place."""
        return self._found.get(at)

    @property
    def all(self) -> list[Effect]:
        """Every effect, the one that was claimed first in front."""
        return list(self._found.values())

    def take(self, entry: Step, time: datetime | None = None) -> None:
        """The next entry, in the order of the log. Raises InvalidMessage for one that belongs to no claim."""
        effect = self._found.get(entry.at)
        if effect is None:
            if entry.kind != "effect" or entry.status != "claimed" or entry.key is None:
                raise InvalidMessage(f"{entry.kind} {entry.name!r} at {entry.at} is {entry.status} and was not claimed")
            self._found[entry.at] = Effect(entry.at, entry.name, entry.key, entry, claimed_at=time)
            return
        if entry.kind == "effect" and entry.status == "claimed":
            self._found[entry.at] = self._found.pop(entry.at)
        effect.take(entry, time)


def call_of(payload: Payload | None, value: bytes) -> tuple[list[object], dict[str, object]]:
    """The arguments in a claim's `call`, read from its JSON. Raises InvalidMessage."""
    if payload is None:
        return [], {}
    try:
        found = msgspec.json.decode(value, type=_Call)
    except msgspec.MsgspecError as error:
        raise InvalidMessage(f"the arguments of an effect cannot be read: {error}") from error
    return found.args, found.kwargs


class _Call(msgspec.Struct):
    args: list[object] = []
    kwargs: dict[str, object] = {}
