"""Reconciling: the writes of a superstep, put into the state in a fixed order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .channel import Channel
from .errors import ChannelConflict
from .ground import Writes
from .reducers import NOTHING


class Reconciled:
    """The values of the next snapshot, as they come about."""

    def __init__(self, channels: Mapping[str, Channel], values: Mapping[str, Any], step: int) -> None:
        self._channels, self._step = channels, step
        self.values = dict(values)
        self.replaced: set[str] = set()
        self.appended: dict[str, list[Any]] = {}
        self._writers: dict[str, str] = {}

    def write(self, writer: str, writes: Writes) -> None:
        """Applies the writes of one task. Raises ChannelConflict."""
        for name, update in writes.updates.items():
            channel = self._channels[name]
            if channel.reducer is not None:
                self._reduce(channel, update, writer)
                continue
            if name in self._writers:
                self._conflict(name, writer)
            self._writers[name] = writer
            self.values[name] = update
            self.replaced.add(name)

    def _reduce(self, channel: Channel, update: Any, writer: str) -> None:
        name, old = channel.name, self.values.get(channel.name, NOTHING)
        try:
            value, items = channel.apply(old, update, f"{self._step}.{writer}")
        except Exception as error:
            error.add_note(f"in the reducer of channel {name!r}, of what {writer!r} wrote in superstep {self._step}")
            raise
        self.values[name] = value
        if items is None:
            self.replaced.add(name)
            self.appended.pop(name, None)
        elif items and name not in self.replaced:
            self.appended.setdefault(name, []).extend(items)

    def _conflict(self, name: str, writer: str) -> None:
        first = self._writers[name]
        raise ChannelConflict(
            f"nodes {first!r} and {writer!r} both wrote channel {name!r} in superstep {self._step}, which takes one "
            f"value: give the field a reducer, as Annotated[..., append], or let one of them write it",
            channel=name,
            nodes=[first, writer],
            step=self._step,
        )

    @property
    def changed(self) -> list[str]:
        """The channels that were written to; sorted."""
        return sorted({*self.replaced, *self.appended})
