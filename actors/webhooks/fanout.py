"""Which event is for whom: what the streams hold becomes events, which are put on their way to webhooks."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, NamedTuple

import msgspec

from ...store.deadletters import Letter, read_letter
from ...store.log import decode_record
from ...store.webhooks import FRESH_S, Webhooks, event_body, feeds, wants
from ...topics import units
from ...topics.bus import Bus
from ...topics.errors import CallboardError, InvalidMessage
from ...topics.messages import Notice, RunRecord, Status, Webhook
from ...topics.pull import Delivery, Puller

log = logging.getLogger(__name__)

DEAD_KIND = "webhook"
_ROOM = 500
_RETRY_S = 1.0
_decode_notice = msgspec.json.Decoder(Notice).decode


class _Glance(msgspec.Struct):
    status: Status


_glance = msgspec.json.Decoder(_Glance).decode


class Event(NamedTuple):
    """What happened, and whom it concerns."""

    type: str
    data: dict[str, Any]


class Fanout:
    """Reads the shared consumers while there are webhooks."""

    def __init__(self, bus: Bus, webhooks: Webhooks) -> None:
        self._bus, self._webhooks = bus, webhooks
        self._known: list[Webhook] = []
        self._read_at = float("-inf")
        self._inbox: asyncio.Queue[Delivery] = asyncio.Queue()
        self._pullers: list[Puller] = []
        self._loop = asyncio.get_running_loop()

    async def webhooks(self) -> list[Webhook]:
        """The definitions, at most a second old."""
        if self._loop.time() - self._read_at >= FRESH_S:
            asked = self._loop.time()
            self._known = await self._webhooks.all()
            self._read_at = asked
        return self._known

    async def start(self) -> None:
        """Begins to read, if it does not yet."""
        if self._pullers:
            return
        for feed in feeds(self._bus):
            puller = Puller(self._bus, feed.stream, feed.consumer, feed.config, self._inbox.put_nowait, self._room)
            self._pullers.append(puller)
            await puller.start()

    async def stop(self) -> None:
        """Reads no more; what is in hand is delivered to another process, or again."""
        pullers, self._pullers = self._pullers, []
        for puller in pullers:
            await puller.stop()
        while not self._inbox.empty():
            self._inbox.get_nowait().nak()

    async def rest(self) -> None:
        """There is no webhook: reads no more, and leaves no consumer behind."""
        if self._pullers:
            await self.stop()
            await self._webhooks.rest()

    def _room(self) -> int:
        return max(0, _ROOM - self._inbox.qsize())

    async def run(self) -> None:
        """Hands events on, until cancelled."""
        while True:
            delivery = await self._inbox.get()
            try:
                await self._take(delivery)
            except CallboardError as error:
                log.info("an event for webhooks is handed on later: %s", error)
                delivery.nak(_RETRY_S)
            if self._inbox.qsize() < _ROOM // 2:
                for puller in self._pullers:
                    puller.ask()

    async def _take(self, delivery: Delivery) -> None:
        webhooks = await self.webhooks()
        subjects = self._bus.subjects
        dead = delivery.subject.startswith(subjects.dead_letter(""))
        there = [one for one in webhooks if delivery.sequence > (one.after_dead if dead else one.after)]
        event = self._event(delivery, there) if there else None
        if event is not None:
            told = [one for one in there if wants(one, event.type)]
            stamp = units.utc(delivery.stored_ms / 1000).isoformat(timespec="milliseconds")
            id_ = f"{subjects.dead if dead else subjects.events}-{delivery.sequence}"
            await self._webhooks.hand_on(told, id_, event_body(event.type, stamp, event.data))
        delivery.ack()

    def _event(self, delivery: Delivery, webhooks: list[Webhook]) -> Event | None:
        """What the message tells; None when it is nothing, or nobody wants it."""
        subjects = self._bus.subjects
        try:
            if delivery.subject.startswith(f"{subjects.run}."):
                type_ = f"run.{_glance(delivery.data).status}"
                if not any(wants(one, type_) for one in webhooks):
                    return None
                return Event(type_, run_data(decode_record(delivery.data)))
            if delivery.subject.startswith((subjects.attention("run", ""), subjects.attention("queue", ""))):
                return _of_notice(_decode_notice(delivery.data))
            return _of_letter(read_letter(delivery.sequence, delivery.subject, delivery.data))
        except (msgspec.MsgspecError, UnicodeDecodeError, InvalidMessage) as error:
            log.warning("message %d on %s is not told to webhooks: %s", delivery.sequence, delivery.subject, error)
            return None


def run_data(record: RunRecord) -> dict[str, Any]:
    """What is told of a run: who it is and how it went. Its input and result are read with its id."""
    error = record.error
    data: dict[str, Any] = {
        "run": record.id, "root": record.root, "agent": record.agent, "status": record.status, "parent": record.parent,
        "topic": record.topic, "thread": record.thread, "reason": record.reason, "attempt": record.attempt,
        "retry_of": record.retry_of, "metadata": record.metadata, "created_at": record.created_at,
        "started_at": record.started_at, "ended_at": record.ended_at,
        "error": {"code": error.code, "message": error.message} if error else None,
    }  # fmt: skip
    return {name: value for name, value in data.items() if value is not None}


def _of_notice(notice: Notice) -> Event:
    if notice.state == "resolved":
        type_ = "attention.resolved"
    else:
        type_ = "agent.unserved" if notice.kind == "no_worker" else "run.parked"
    fields: dict[str, Any] = msgspec.to_builtins(notice)
    fields.pop("rev", None)
    return Event(type_, fields)


def _of_letter(found: Letter) -> Event | None:
    """Of a letter that a webhook could not take nothing is told: with two receivers down that would never end."""
    if found.kind == DEAD_KIND:
        return None
    letter = found.letter
    return Event(
        "deadletter",
        {"id": found.id, "kind": found.kind, "subject": letter.subject, "code": letter.reason.code,
         "message": letter.reason.message},
    )  # fmt: skip
