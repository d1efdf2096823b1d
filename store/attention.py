"""What waits for a person, and that something waits no more.

Of runs and queues there are notices on `cb.attention.>`, written by the coordinators: an index of what the log holds
anyway, so that nobody has to read all of it, and the word that goes out live. A run that has gone on since waits no
more, whatever its notice says. Dead letters are listed from their own stream.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime
from typing import Literal

import msgspec
from msgspec import Struct

from ..topics import reads
from ..topics.bus import Bus, fence
from ..topics.errors import IllegalTransition, InvalidInput, NotFound, StaleFence, Unavailable
from ..topics.ids import require_run_id
from ..topics.messages import ASKING, Notice, Parked, RunRecord, Status, encode
from ..topics.reads import Stored
from ..topics.units import now
from ..topics.versions import split
from .deadletters import DeadLetters, Letter
from .log import EventLog
from .unread import leave_out

log = logging.getLogger(__name__)

DEAD = "dead:"
QUEUE = "queue:"
FAILED_BY_HAND = "failed_by_hand"
"""Code of the error of a run that a person has ended as failed: nobody need be told."""
_TRIES = 5
_REASON_CHARS = 300
_decode = msgspec.json.Decoder(Notice).decode
_KINDS: dict[Status, Parked] = {
    Status.FAILED: "failed",
    Status.TIMED_OUT: "timed_out",
    Status.ORPHANED: "orphaned",
    Status.INPUT_REQUIRED: "input_required",
    Status.AUTH_REQUIRED: "auth_required",
}
"""What else there is of a run: `not_undone`, which goes before its status."""

Action = Literal["retry", "reconcile", "resume", "escalate", "fail", "cancel", "replay", "drop", "start_worker"]
ACTIONS: dict[str, tuple[Action, ...]] = {
    "failed": ("retry", "drop"),
    "timed_out": ("retry", "drop"),
    "orphaned": ("retry", "drop"),
    "not_undone": ("drop",),
    "input_required": ("resume", "escalate", "reconcile", "fail", "cancel"),
    "auth_required": ("resume", "escalate", "reconcile", "fail", "cancel"),
    "no_worker": ("start_worker",),
    "dead_letter": ("replay", "drop"),
}
"""What can be done about each kind."""


class Item(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that waits for a person."""

    id: str
    """A run's id, `queue:{agent}`, `queue:{agent}@{version}`, `queue:@{topic}` or `dead:{number}`."""
    kind: Parked | Literal["dead_letter"]
    since: datetime
    actions: tuple[Action, ...]
    run: str | None = None
    agent: str | None = None
    version: str | None = None
    """Of a queue of runs that are pinned: the version of the agent that no worker has."""
    topic: str | None = None
    thread: str | None = None
    code: str | None = None
    reason: str | None = None
    subject: str | None = None
    """Of a dead letter: where it was sent."""
    runs: int = 0
    """Of a queue: how many runs waited when it was noticed."""
    interrupts: list[str] | None = None
    """Ids of the interrupts that are open."""
    to: list[str] | None = None
    """Whose task it is to answer them, as far as that was said."""
    effects: list[str] | None = None
    """Places of the effects of which it is not known whether they happened."""


def nobody(queue: str) -> str:
    """Who is missing where nobody takes the work of a queue, in words."""
    agent, version = split(queue)
    if agent.startswith("@"):
        return f"no agent serves topic {agent[1:]!r}"
    pinned = f" in version {version!r}, to which these runs are pinned" if version else ""
    return f"no worker has agent {agent!r}{pinned}"


def parks(record: RunRecord) -> bool:
    """Whether the run, as it is, waits for a person. The failure of a child is for its parent to deal with, as long as
    that lives: see `Attention.park`."""
    if _kind(record) is None:
        return False
    if record.successor is not None:
        return False
    return record.left or record.error is None or record.error.code != FAILED_BY_HAND


def is_parents(record: RunRecord) -> bool:
    """Whether the run's end is data for the run that started it."""
    ended = record.status in (Status.FAILED, Status.TIMED_OUT)
    return ended and not record.left and record.parent is not None and not record.detached


def _kind(record: RunRecord) -> Parked | None:
    return "not_undone" if record.left and record.terminal else _KINDS.get(record.status)


class Attention:
    """Reads and writes `cb.attention.>`."""

    def __init__(self, bus: Bus, dead: DeadLetters | None = None) -> None:
        self._bus, self._log = bus, EventLog(bus)
        self._dead = dead or DeadLetters(bus)
        self._stream = bus.subjects.events

    # -- runs ---------------------------------------------------------------------------------------------------

    async def park(self, record: RunRecord) -> bool:
        """Notes that the run waits for a person; returns whether that had to be written. Any number of times.

        Raises Unavailable, StorageFull."""
        if not parks(record):
            return False
        if is_parents(record) and await self._parent_knows(record):
            return False
        return await self._put("run", record.id, _notice(record), lambda known: known.rev < record.rev)

    async def _parent_knows(self, record: RunRecord) -> bool:
        """Whether the parent had not ended before the child did."""
        parent = await self._log.load(record.parent or "")
        if parent is None or parent.record.ended_at is None:
            return parent is not None
        return record.ended_at is not None and parent.record.ended_at > record.ended_at

    async def resolve(self, record: RunRecord, by: str) -> bool:
        """Notes what was done about a run that waited. A notice that comes late is then written no more."""
        if not parks(record):
            return False
        if is_parents(record) and await self._stored("run", record.id) is None:
            return False
        notice = msgspec.structs.replace(_notice(record), state="resolved", by=by)
        return await self._put("run", record.id, notice, lambda known: (known.rev, known.state) <= (record.rev, "open"))

    async def drop(self, run: str) -> None:
        """Takes a run that has ended from the list. Raises NotFound when it does not wait, IllegalTransition when it
        has not ended."""
        record = (await self._log.require(require_run_id(run))).record
        if not record.terminal:
            raise IllegalTransition(
                f"run {run} is {record.status}: answer, fail or cancel it; only what has ended can be dropped",
                run=run,
                status=str(record.status),
            )
        stored = await self._stored("run", run)
        if stored is None or stored.state != "open":
            raise NotFound(f"run {run} does not wait for anybody", run=run)
        await self.resolve(record, "dropped")

    # -- queues -------------------------------------------------------------------------------------------------

    async def unserved(self, queue: str, since: datetime, runs: int) -> bool:
        """Notes that nobody takes the work of a queue: of an agent, of one of its versions (`agent@version`), or of
        a topic (`@topic`)."""
        topic = queue[1:] if queue.startswith("@") else None
        notice = Notice(
            kind="no_worker", since=since, queue=queue, runs=runs, agent="" if topic else split(queue)[0], topic=topic,
            version=split(queue)[1],
            reason=f"{nobody(queue)}; {runs} run{'s' if runs != 1 else ''} waited when this was noticed",
        )  # fmt: skip
        return await self._put("queue", queue, notice, lambda known: known.state == "resolved")

    async def served(self, queue: str, by: str) -> bool:
        """Notes that the work of an agent is taken again, or is gone."""
        known = await self._stored("queue", queue)
        if known is None or known.state == "resolved":
            return False
        notice = msgspec.structs.replace(known, state="resolved", by=by)
        return await self._put("queue", queue, notice, lambda found: found.state == "open")

    async def queues(self) -> dict[str, Notice]:
        """The queues of which it stands noted that nobody takes their work."""
        return {notice.queue: notice for notice in await self._open("queue")}

    # -- all ----------------------------------------------------------------------------------------------------

    async def items(self, limit: int = 1000) -> list[Item]:
        """All that waits, newest first, at most `limit` of it. Raises Unavailable."""
        found = [_of_queue(notice) for notice in await self._open("queue")]
        notices = await self._open("run")
        records = await self._log.load_many([notice.run for notice in notices])
        for notice in notices:
            record = records.get(notice.run)
            if record is not None and record.rev == notice.rev:
                found.append(_of_run(notice))
        found += [_of_letter(letter) for letter in await self._dead.page(limit=limit)]
        return sorted(found, key=lambda item: (item.since, item.id), reverse=True)[:limit]

    async def _open(self, kind: str) -> list[Notice]:
        pattern = self._bus.subjects.attention(kind, "*")
        stored = await reads.many_last(self._bus, self._stream, [pattern])
        notices = (_read(one) for one in stored.values())
        return [notice for notice in notices if notice is not None and notice.state == "open"]

    async def _stored(self, kind: str, which: str) -> Notice | None:
        stored = await reads.last_from_leader(self._bus, self._stream, self._bus.subjects.attention(kind, which))
        return None if stored is None else _read(stored)

    async def _put(self, kind: str, which: str, notice: Notice, supersedes: Callable[[Notice], bool]) -> bool:
        subject = self._bus.subjects.attention(kind, which)
        for _ in range(_TRIES):
            stored = await reads.last_from_leader(self._bus, self._stream, subject)
            known = None if stored is None else _read(stored)
            if known is not None and not supersedes(known):
                return False
            try:
                await self._bus.store(subject, encode(notice), fence(stored.sequence if stored else 0))
            except StaleFence:  # another coordinator was faster, or the first try of this write was stored
                continue
            return True
        raise Unavailable(f"the notice on {subject} could not be written: the broker does not settle; try again")


def letter_id(text: str) -> int:
    """The number of a dead letter, from `dead:17` or `17`. Raises InvalidInput."""
    number = text.removeprefix(DEAD)
    if not (number.isascii() and number.isdigit()):
        raise InvalidInput(f"{text[:80]!r} is no dead letter: write {DEAD}17, as the list shows it")
    return int(number)


def _read(stored: Stored) -> Notice | None:
    try:
        return _decode(stored.data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        leave_out(log, stored, f"it is not a notice: {error}")
        return None


def _notice(record: RunRecord) -> Notice:
    error, kind = record.error, _kind(record)
    assert kind is not None
    return Notice(
        kind=kind,
        since=record.ended_at or record.updated_at,
        run=record.id,
        rev=record.rev,
        agent=record.agent,
        topic=record.topic,
        thread=record.thread,
        reason=(record.reason or (error.message if error else None) or "")[:_REASON_CHARS] or None,
        code=error.code if error else None,
        interrupts=[one.id for one in record.interrupts or ()] or None,
        to=sorted({one.to for one in record.interrupts or () if one.to}) or None,
        effects=[one.at for one in record.unknown or ()] or None,
    )


def _actions(notice: Notice) -> tuple[Action, ...]:
    """Of what can be done about its kind, that which can be done about this one."""
    never: set[Action] = set()
    if notice.kind in ASKING:
        never |= set() if notice.interrupts else {"resume", "escalate"}
        never |= set() if notice.effects else {"reconcile"}
    return tuple(action for action in ACTIONS[notice.kind] if action not in never)


def _of_run(notice: Notice) -> Item:
    return Item(
        id=notice.run, kind=notice.kind, since=notice.since, actions=_actions(notice), run=notice.run,
        interrupts=notice.interrupts, to=notice.to, effects=notice.effects,
        agent=notice.agent or None, topic=notice.topic, thread=notice.thread, code=notice.code, reason=notice.reason,
    )  # fmt: skip


def _of_queue(notice: Notice) -> Item:
    return Item(
        id=f"{QUEUE}{notice.queue}", kind=notice.kind, since=notice.since, actions=ACTIONS[notice.kind],
        agent=notice.agent or None, version=notice.version, topic=notice.topic, reason=notice.reason, runs=notice.runs,
    )  # fmt: skip


def _of_letter(found: Letter) -> Item:
    letter = found.letter
    return Item(
        id=f"{DEAD}{found.id}", kind="dead_letter", since=letter.at or now(), actions=ACTIONS["dead_letter"],
        code=letter.reason.code, reason=letter.reason.message[:_REASON_CHARS], subject=letter.subject,
    )  # fmt: skip
