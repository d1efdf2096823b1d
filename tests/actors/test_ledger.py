"""Two ledgers on one log: whatever they do at once, each command changes a run at most once."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable

import pytest

from callboard.actors.coordinator.ledger import Ledger
from callboard.actors.coordinator.run_commands import Cancel, Claim, End, Lost, RunCommand, Settled, Wake
from callboard.actors.coordinator.tracing import RunTracing
from callboard.store.log import EventLog, decode_record
from callboard.topics.bus import Bus
from callboard.topics.errors import Unavailable, WriteInFlight
from callboard.topics.messages import NOTHING, Outcome, RunRecord, Status
from callboard.topics.units import now


def fresh(run: str) -> RunRecord:
    return RunRecord(
        id=run, root=run, agent="a", status=Status.QUEUED, input=NOTHING, created_at=now(), updated_at=now(), dispatch=1
    )


def ledgers(bus: Bus, count: int = 2) -> list[Ledger]:
    return [Ledger(EventLog(bus), RunTracing(bus)) for _ in range(count)]


async def states(bus: Bus, run: str) -> list[RunRecord]:
    pages = [page async for page in EventLog(bus).history(run)]
    return [decode_record(one.data) for page in pages for one in page]


async def test_one_of_many_creates(bus: Bus) -> None:
    """All find the same run; one wrote it."""
    created = await asyncio.gather(*(ledger.create(fresh("r")) for ledger in ledgers(bus, 5) for _ in range(4)))
    assert Counter(was for was, _ in created) == {True: 1, False: 19}
    assert len({loaded.sequence for _, loaded in created}) == 1
    assert len(await states(bus, "r")) == 1


async def test_one_of_many_claims_and_ends(bus: Bus) -> None:
    """Two coordinators, two workers with a message each, two outcomes of the attempt: one attempt, one end."""
    one, two = ledgers(bus)
    await one.create(fresh("r"))
    claims = [Claim(worker, 1, lease, 1) for worker, lease in (("w", 10), ("x", 11))]
    granted = await asyncio.gather(*(ledger.apply("r", claim) for ledger in (one, two) for claim in claims))
    won = [applied for applied in granted if applied.verdict == "changed"]
    assert len(won) == 1
    ends: list[RunCommand] = [
        End(Outcome(run="r", attempt=1, kind="completed")),
        End(Outcome(run="r", attempt=1, kind="failed")),
    ]
    ended = await asyncio.gather(*(ledger.apply("r", end) for ledger in (one, two) for end in ends))
    assert [applied.verdict for applied in ended].count("changed") == 1
    assert [record.status for record in await states(bus, "r")][:2] == [Status.QUEUED, Status.RUNNING]
    assert len(await states(bus, "r")) == 3


@pytest.mark.parametrize("seed", range(3))
async def test_any_commands_at_once(bus: Bus, seed: int) -> None:
    """The log has each revision once, and ends with one terminal state; what a ledger remembers is in the log."""
    chance = random.Random(seed)
    both = ledgers(bus)
    await both[0].create(fresh("r"))
    makers: list[Callable[[], RunCommand]] = [
        lambda: Claim(chance.choice("wxy"), chance.randint(1, 4), chance.randint(10, 12), chance.randint(1, 4)),
        lambda: End(Outcome(run="r", attempt=chance.randint(1, 4), kind="released")),
        lambda: End(Outcome(run="r", attempt=chance.randint(1, 4), kind="suspended", waits=[["c"]])),
        lambda: Lost(chance.choice("wxy")),
        lambda: Wake(),
    ]
    commands = [chance.choice(makers)() for _ in range(60)]
    await asyncio.gather(*(chance.choice(both).apply("r", command) for command in commands))
    await asyncio.gather(*(ledger.apply("r", Cancel()) for ledger in both))
    record = (await states(bus, "r"))[-1]
    if record.status is Status.CANCEL_REQUESTED:
        await both[0].apply("r", End(Outcome(run="r", attempt=record.attempt, kind="stopped", undone=True)))
    if record.status is Status.CANCEL_REQUESTED:
        await both[0].apply("r", Settled(record.epoch))
    found = await states(bus, "r")
    assert [one.rev for one in found] == list(range(1, len(found) + 1))
    assert [one.terminal for one in found].count(True) == 1
    assert found[-1].terminal


async def test_verdict_that_changes_nothing_is_given_on_a_fresh_record(bus: Bus) -> None:
    """A ledger that remembers an old state loads before it says that a command is stale."""
    one, two = ledgers(bus)
    await one.create(fresh("r"))
    await two.load("r")
    await one.apply("r", Claim("w", 1, 10, 1))
    await one.apply("r", End(Outcome(run="r", attempt=1, kind="suspended", waits=[["c"]])))
    known = two.known("r")
    assert known is not None
    assert known.status is Status.QUEUED
    assert (await two.apply("r", Wake())).verdict == "changed"
    assert (await one.apply("nobody", Wake())).loaded is None


async def test_memory_is_bounded(bus: Bus) -> None:
    """Ended runs are forgotten at once, others when newer ones come."""
    (ledger,) = ledgers(bus, 1)
    await asyncio.gather(*(ledger.create(fresh(f"r{n}")) for n in range(1100)))
    assert len(ledger._known) == 1024
    await ledger.apply("r1099", Cancel())
    assert ledger.known("r1099") is None
    ledger.forget_all()
    assert ledger.known("r1000") is None


async def test_broker_that_does_not_settle(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    """Writes in flight are tried again, within bounds; an unanswered one is the caller's to repeat, harmlessly."""
    (ledger,) = ledgers(bus, 1)
    await ledger.create(fresh("r"))
    append, failures = ledger._log.append_state, [WriteInFlight("replicating"), WriteInFlight("replicating")]

    def unreliable(record: RunRecord, after: int) -> asyncio.Future[int]:
        if not failures:
            return append(record, after)
        broken: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        broken.set_exception(failures.pop())
        return broken

    monkeypatch.setattr(ledger._log, "append_state", unreliable)
    assert (await ledger.apply("r", Claim("w", 1, 10, 1))).verdict == "changed"
    failures.append(Unavailable("no answer"))  # type: ignore[arg-type]
    with pytest.raises(Unavailable):
        await ledger.apply("r", Cancel())
    assert (await ledger.apply("r", Cancel())).verdict == "changed"
    assert (await ledger.apply("r", Cancel())).verdict == "applied"
