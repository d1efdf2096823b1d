"""What the broker says of messages that it delivers no more.

Every consumer of ours delivers without end; what cannot be used is set aside by whoever has it in hand. But a consumer
can be changed by somebody else, so that it gives up after some deliveries, and anybody can terminate a message. The
broker then only says so, in an advisory: the message would lie there unseen, or be gone. So it is set aside here, and
its run is looked at: work that is missing is sent anew.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import msgspec
from msgspec import Struct

from ...store.deadletters import DeadLetters
from ...topics import reads
from ...topics.bus import Bus
from ...topics.client import Message
from ...topics.errors import BrokerError, CallboardError
from ...topics.messages import Command, ErrorInfo, RunRecord, Work
from ...topics.pull import SET_ASIDE
from ...topics.reads import Stored

log = logging.getLogger(__name__)

_DELETED = "Unacknowledged message was deleted"
"""What the server says of a message that is taken out of its stream while a consumer has it in hand, as the work
message of a lost worker is."""
_PREFIX = "$JS.EVENT.ADVISORY.CONSUMER"
_WAITING = 1000
_TRIES = 20
_PAUSE_S = 0.5


class _Advisory(Struct):
    stream: str = ""
    consumer: str = ""
    stream_seq: int = 0
    deliveries: int = 0
    reason: str = ""


_decode = msgspec.json.Decoder(_Advisory).decode


class Advisories:
    """Hears them, one coordinator each. `execute` carries a command out."""

    def __init__(self, bus: Bus, dead: DeadLetters, execute: Callable[[Command], Awaitable[RunRecord | None]]) -> None:
        self._bus, self._dead, self._execute = bus, dead, execute
        self._heard: asyncio.Queue[tuple[_Advisory, bool]] = asyncio.Queue(_WAITING)

    @property
    def subjects(self) -> list[str]:
        """Where the broker says it."""
        streams = (self._bus.subjects.inbox, self._bus.subjects.work_stream)
        return [f"{_PREFIX}.{kind}.{stream}.*" for kind in ("MAX_DELIVERIES", "MSG_TERMINATED") for stream in streams]

    def heard(self, message: Message) -> None:
        """An advisory came in."""
        try:
            advisory = _decode(message.data)
        except msgspec.MsgspecError as error:
            log.warning("advisory on %s not understood: %s", message.subject, error)
            return
        terminated = message.subject.startswith(f"{_PREFIX}.MSG_TERMINATED.")
        if terminated and advisory.reason in (SET_ASIDE, _DELETED):
            return
        try:
            self._heard.put_nowait((advisory, terminated))
        except asyncio.QueueFull:
            log.warning("too many advisories: message %d of %s stays", advisory.stream_seq, advisory.stream)

    async def watch(self) -> None:
        """Runs until cancelled."""
        while True:
            advisory, terminated = await self._heard.get()
            for _ in range(_TRIES):
                try:
                    await (self._terminated(advisory) if terminated else self._given_up(advisory))
                    break
                except CallboardError as error:
                    log.info("message %d of %s: %s", advisory.stream_seq, advisory.stream, error)
                await asyncio.sleep(_PAUSE_S)

    async def _given_up(self, advisory: _Advisory) -> None:
        stored = await reads.by_sequence(self._bus, advisory.stream, advisory.stream_seq)
        if stored is None:
            return
        error = ErrorInfo(
            code="max_deliveries",
            message=f"consumer {advisory.consumer} of stream {advisory.stream} gave it up after {advisory.deliveries} "
            "deliveries: somebody has limited them (max_deliver); our consumers have no such limit",
        )
        log.warning("%s set aside: %s", stored.subject, error.message)
        headers = {name: text for name, text in stored.headers.items() if not name.startswith("Nats-")}
        await self._dead.put(self._kind(stored.subject), stored.subject, stored.data, headers, error)
        await self._take_away(advisory)
        await self._look_at_run(stored)

    async def _terminated(self, advisory: _Advisory) -> None:
        """Of the message nothing is left but its number."""
        error = ErrorInfo(
            code="terminated",
            message=f"message {advisory.stream_seq} of stream {advisory.stream} was terminated on consumer "
            f"{advisory.consumer} by a client that is none of ours"
            + (f", because {advisory.reason}" if advisory.reason else "")
            + ": it is gone",
        )
        log.warning("%s", error.message)
        work = advisory.stream == self._bus.subjects.work_stream
        await self._dead.put("work" if work else "command", "", b"", None, error)

    def _kind(self, subject: str) -> str:
        if subject.startswith(f"{self._bus.subjects.work}."):
            return "work"
        return "task" if subject.startswith(f"{self._bus.subjects.task}.") else "command"

    async def _take_away(self, advisory: _Advisory) -> None:
        body = {"seq": advisory.stream_seq, "no_erase": True}
        try:
            await self._bus.api(f"STREAM.MSG.DELETE.{advisory.stream}", body)
        except BrokerError as error:
            if error.retryable:
                raise
            log.debug("message %d of %s: %s", advisory.stream_seq, advisory.stream, error)

    async def _look_at_run(self, stored: Stored) -> None:
        if self._kind(stored.subject) != "work":
            return
        try:
            work = msgspec.json.decode(stored.data, type=Work)
        except (msgspec.MsgspecError, RecursionError):
            return
        try:
            await self._execute(Command(run=work.run, verb="sweep"))
        except CallboardError as error:
            if error.retryable:
                raise
            log.info("run %s: %s", work.run[:80], error)
