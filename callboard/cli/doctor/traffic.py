"""What flows: coordinators, queues and who serves them, dead letters, runs that stand still."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

from ...topics import reads
from ...topics.bus import Bus
from ...topics.errors import CallboardError, NoResponders, Unavailable
from ...topics.messages import RunRecord, Status, WorkerInfo
from ...topics.subjects import INBOX_CONSUMER
from ...topics.units import now
from ..agents import workers
from ..listing import newest_runs
from ..wording import age, duration
from .check import Check, note, ok, problem

STILL = timedelta(minutes=2)
LAG_NOTE = 1_000
_REACH = 200_000
_SHOWN = 5
_WANTS_MOTION = frozenset({Status.QUEUED, Status.RUNNING, Status.CANCEL_REQUESTED})


async def coordinators(bus: Bus) -> list[Check]:
    """Whether one answers, and keeps up with the INBOX."""
    begun = time.monotonic()
    try:
        await bus.request(f"{bus.subjects.rpc}.submit", b"{}", 3.0)  # an empty request is refused, which is an answer
    except NoResponders:
        return [problem("coordinator", "none answers", "start one: callboard coordinator")]
    except Unavailable:
        return [
            problem("coordinator", "one is there and does not answer", "look at its log, and at its machine's load")
        ]
    took = time.monotonic() - begun
    waiting = await _pending(bus, bus.subjects.inbox, INBOX_CONSUMER)
    text = f"answers in {duration(took)}; {waiting} tasks and commands wait in the INBOX"
    if waiting >= LAG_NOTE:
        return [note("coordinator", text, "start more coordinators if it stays so")]
    return [ok("coordinator", text)]


async def _pending(bus: Bus, stream: str, consumer: str) -> int:
    info = await bus.api(f"CONSUMER.INFO.{stream}.{consumer}", missing_ok=True)
    return int((info or {}).get("num_pending", 0))


async def consumers(bus: Bus) -> list[Check]:
    """The durable consumers of all streams with their lag."""
    subjects = bus.subjects
    found: list[Check] = []
    for stream in (subjects.inbox, subjects.work_stream, subjects.topics):
        for info in await _consumers_of(bus, stream):
            if info["config"].get("durable_name") is None:
                continue
            name = f"consumer {stream}/{info['name']}"
            text = (
                f"{info['num_pending']} wait, {info['num_ack_pending']} in hand, "
                f"{info['num_redelivered']} delivered again, {info['num_waiting']} requests open"
            )
            found.append(ok(name, text))
    return found


async def _consumers_of(bus: Bus, stream: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    while True:
        page = await bus.api(f"CONSUMER.LIST.{stream}", {"offset": len(found)}, missing_ok=True)
        if page is None:
            return found
        found += page.get("consumers") or []
        if not page.get("consumers") or len(found) >= page.get("total", 0):
            return found


async def queues(bus: Bus) -> list[Check]:
    """Work that waits, and whether anybody serves it."""
    present = await workers(bus)
    found = [_worker(info) for info in present if info.agents or info.actors]
    found += [_refused(info) for info in present if info.refused]
    found += [_abandoned(info) for info in present if info.abandoned]
    subjects = bus.subjects
    info = await bus.api(
        f"STREAM.INFO.{subjects.work_stream}", {"subjects_filter": f"{subjects.work}.*"}, missing_ok=True
    )
    counts = ((info or {}).get("state") or {}).get("subjects") or {}
    for subject, count in sorted(counts.items()):
        found.append(await _queue(bus, subject, count, present))
    if not any(info.agents for info in present):
        found.append(note("workers", "no worker with agents is running", "start one: callboard worker MODULE"))
    return found


def _worker(info: WorkerInfo) -> Check:
    what = ", ".join(info.agents or info.actors)
    state = ", draining" if info.draining else ""
    busy = f", {len(info.running)} of {info.concurrency} runs in hand" if info.agents else ""
    return ok(f"worker {info.id}", f"{what} on {info.host} (pid {info.pid}){busy}{state}")


def _refused(info: WorkerInfo) -> Check:
    """Not a problem: it says that leases were lost, and that the fence held."""
    kinds = ", ".join(f"{number} {kind}" for kind, number in sorted(info.refused.items()))
    return note(
        f"late writes {info.id}",
        f"{kinds}: refused, because their attempts had lost their runs",
        "if it goes on, see whether processes stand still: machine load, CALLBOARD_LEASE_S",
    )


def _abandoned(info: WorkerInfo) -> Check:
    shown = ", ".join(f"{one.step!r} of run {one.run} for {age(one.at)}" for one in info.abandoned[:_SHOWN])
    more = f" and {len(info.abandoned) - _SHOWN} more" if len(info.abandoned) > _SHOWN else ""
    return note(
        f"threads of {info.id}",
        f"nobody waits for these steps, and their functions go on: {shown}{more}",
        'give what may hang a limit of its own, or isolate="process"',
    )


async def _queue(bus: Bus, subject: str, count: int, present: list[WorkerInfo]) -> Check:
    agent = subject[len(bus.subjects.work) + 1 :]
    page, _ = await reads.page_after(bus, bus.subjects.work_stream, subject, 0, 1)
    since = f", the oldest for {age(page[0].time)}" if page else ""
    if agent.startswith("@"):
        return problem(
            f"topic {agent[1:]}",
            f"{count} tasks wait for an agent that subscribes to it{since}",
            "start a worker with such an agent; they are routed as soon as it registers",
        )
    text = f"{count} attempts wait or are in hand{since}"
    if not any(agent in info.agents for info in present):
        return problem(f"agent {agent}", f"{text}, and no worker serves it", f"start a worker that has agent {agent!r}")
    return ok(f"agent {agent}", text)


async def dead_letters(bus: Bus) -> list[Check]:
    """Whether anything was set aside."""
    info = await bus.api(f"STREAM.INFO.{bus.subjects.dead}", missing_ok=True)
    count = int((info or {}).get("state", {}).get("messages", 0))
    if not count:
        return [ok("dead letters", "none")]
    return [
        problem(
            "dead letters", f"{count} messages were set aside", "callboard deadletters ls; then replay or drop them"
        )
    ]


async def still_runs(bus: Bus) -> list[Check]:
    """Runs that should move and have not changed for two minutes, with what is known of their worker.

    Looks at the newest 200,000 messages of the log."""
    limit = now() - STILL

    def still(record: RunRecord) -> bool:
        if record.updated_at > limit:
            return False
        overdue = record.wake_at is not None and record.wake_at < limit
        return overdue if record.status is Status.WAITING else record.status in _WANTS_MOTION and record.wake_at is None

    listed = await newest_runs(bus, still, 1_000, reach=_REACH)
    found = [await _still(bus, one.record) for one in listed]
    known = [one for one in found if one is not None]
    shown = known[:_SHOWN]
    if len(known) > _SHOWN:
        shown.append(
            note("runs", f"and {len(known) - _SHOWN} more like these", "callboard runs ls --status queued,running")
        )
    return shown or [ok("runs", "none stands still that should move")]


async def _still(bus: Bus, record: RunRecord) -> Check | None:
    name = f"run {record.id}"
    since = f"{record.status} without a change for {age(record.updated_at)}"
    if record.status is Status.QUEUED:
        return note(
            name,
            f"{since} ({record.reason or f'waits for a worker of {record.agent}'})",
            "see its agent or topic above",
        )
    if record.status is Status.WAITING:
        return problem(
            name, f"{since}, its timer is overdue", "a projector has such runs looked at: callboard projector"
        )
    if record.worker is None:  # it is being canceled
        waits = (
            f"a worker of {record.agent}, to undo its effects" if record.undo == "due" else "the end of all below it"
        )
        return note(name, f"{since}, waits for {waits}", f"callboard runs tree {record.id}")
    try:
        await bus.request(f"{bus.subjects.worker}.{record.worker}", b"", 1.0)
    except NoResponders:
        return problem(
            name,
            f"{since}, and its worker {record.worker} is gone",
            "a coordinator gives it to another worker; a projector has it looked at: callboard projector",
        )
    except CallboardError:
        return problem(name, f"{since}, and its worker {record.worker} does not answer", "look at that process")
    return None  # it is being worked on; a deadline is its agent's own affair
