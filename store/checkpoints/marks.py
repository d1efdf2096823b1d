"""What stands about the checkpoints of a run besides them: their labels, who began from them, what was pruned."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime

import msgspec

from ...topics.errors import InvalidMessage
from ...topics.messages import Label
from ...topics.reads import Stored
from .state import Saved

HOLD = "@"
"""First character of the names that are not people's."""
PRUNED = "@pruned"
_NEVER = datetime.fromtimestamp(0, UTC)
_decode = msgspec.json.Decoder(Label).decode


@dataclass(frozen=True, slots=True)
class Mark:
    """Up to where checkpoints may be missing, and whether they are being removed at this moment."""

    checkpoint: int = 0
    open: bool = False
    sequence: int = 0
    """Stream sequence of the message that says so; 0 when nothing was ever pruned."""
    time: datetime = _NEVER

    @classmethod
    def of(cls, stored: Stored | None) -> Mark:
        """From its message."""
        if stored is None:
            return cls()
        label = label_in(stored)
        return cls(label.checkpoint, label.open, stored.sequence, stored.time)


@dataclass(frozen=True, slots=True)
class Marks:
    """Labels and holds of one run, by name."""

    labels: dict[str, int] = field(default_factory=dict)
    """The checkpoints that people have named."""
    holds: dict[str, int] = field(default_factory=dict)
    """The checkpoints that other runs began from, by run."""
    pruned: Mark = field(default_factory=Mark)
    said: dict[str, int] = field(default_factory=dict)
    """When each label was given or taken away: the stream sequence. What the code named before that name says nothing
    any more."""

    @classmethod
    def of(cls, stored: Iterable[Stored]) -> Marks:
        """From the last message of each name. Raises InvalidMessage."""
        found = cls(pruned=Mark())
        mark = found.pruned
        for one in sorted(stored, key=lambda one: one.sequence):
            if one.kind == PRUNED:
                mark = Mark.of(one)
                continue
            found.said[one.kind] = one.sequence
            if (number := label_in(one).checkpoint) != 0:
                names = found.holds if one.kind.startswith(HOLD) else found.labels
                names[one.kind.removeprefix(HOLD)] = number
        return cls(found.labels, found.holds, mark, found.said)

    def coded(self, saved: Saved) -> str:
        """The label that the code has given a checkpoint, unless people have given or taken it since."""
        name = saved.checkpoint.label
        return name if self.said.get(name, 0) < saved.sequence else ""

    def names_of(self, saved: Saved) -> list[str]:
        """The labels of a checkpoint, sorted."""
        names = {name for name, number in self.labels.items() if number == saved.sequence}
        return sorted(names | ({self.coded(saved)} - {""}))

    def keeps(self, saved: Saved) -> bool:
        """Whether a checkpoint stays whatever is pruned."""
        held = saved.sequence in self.labels.values() or saved.sequence in self.holds.values()
        return held or bool(self.coded(saved))

    def shows(self, saved: Saved) -> bool:
        """Whether a checkpoint is there as such. What lies before the mark may be left for its values alone."""
        return saved.sequence > self.pruned.checkpoint or self.keeps(saved)


def label_in(stored: Stored) -> Label:
    """The label in a message. Raises InvalidMessage."""
    try:
        return _decode(stored.data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InvalidMessage(
            f"message {stored.sequence} on {stored.subject} is no label: {error}", sequence=stored.sequence
        ) from error
