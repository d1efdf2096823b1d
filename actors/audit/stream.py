"""A stream as it stands at one moment: its bounds, the broker's clock, and its messages up to there."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from datetime import datetime
from typing import Any

from ...topics import reads
from ...topics.bus import Bus
from ...topics.errors import NotFound
from ...topics.units import now


class Moment:
    """What the broker says of a stream. Make it with `await Moment.of(bus, stream)`."""

    def __init__(self, info: dict[str, Any]) -> None:
        state = info["state"]
        self.first, self.last = int(state["first_seq"]), int(state["last_seq"])
        self.messages = int(state["messages"])
        self.config: dict[str, Any] = info["config"]
        self.created: str = info["created"]
        self.time = _time(info.get("ts"))
        """The broker's clock, with which the stamps of messages can be compared."""

    @classmethod
    async def of(cls, bus: Bus, stream: str) -> Moment:
        """Raises NotFound when there is no such stream, BrokerError when the broker does not answer."""
        info = await bus.api(f"STREAM.INFO.{stream}", missing_ok=True)
        if info is None:
            raise NotFound(f"there is no stream {stream}: nothing was started in this namespace yet", stream=stream)
        return cls(info)


async def messages(bus: Bus, stream: str, subject: str, until: int) -> AsyncGenerator[list[reads.Stored], None]:
    """The messages on `subject` up to sequence `until`, in batches: an end is reached while others write."""
    if until <= 0:
        return
    async for page in reads.read(bus, stream, subject):
        yield page if page[-1].sequence <= until else [one for one in page if one.sequence <= until]
        if page[-1].sequence >= until:
            return


def _time(text: str | None) -> datetime:
    if text is None:
        return now()
    return reads.Stored("", 0, b"", None, text).time
