"""What `callboard doctor` says of agents with limits."""

from __future__ import annotations

import pytest

from callboard.cli.doctor.limits import limits
from callboard.store.agents import AgentRegistry
from callboard.store.log import EventLog
from callboard.topics.bus import Bus
from callboard.topics.ids import new_run_id
from callboard.topics.messages import AgentInfo, Gate, Holder, Limits, Payload, RunRecord, Status, Work, encode
from callboard.topics.units import now


@pytest.fixture
async def agent(bus: Bus) -> str:
    """An agent of three slots: one is used, one is held by a run that has ended, and two runs wait."""
    await AgentRegistry(bus).register(AgentInfo(name="narrow", limits=Limits(concurrency=3, per_key=1, key="thread")))
    await AgentRegistry(bus).register(AgentInfo(name="wide"))
    for _ in range(2):
        await bus.store(f"{bus.subjects.work}.narrow.normal.-", encode(Work(run=new_run_id(), dispatch=1)))
    return "narrow"


async def run_in(bus: Bus, status: Status) -> str:
    run, at = new_run_id(), now()
    record = RunRecord(
        id=run, root=run, agent="narrow", status=status, input=Payload(), created_at=at, updated_at=at, dispatch=1
    )
    await EventLog(bus).append_state(record, 0)
    return run


async def hold(bus: Bus, *runs: str) -> None:
    gate = Gate(agent="narrow", holders=[Holder(run=run, dispatch=1) for run in runs])
    await bus.store(bus.subjects.gate("narrow"), encode(gate))


async def test_slots_in_use_and_what_waits(bus: Bus, agent: str) -> None:
    await hold(bus, await run_in(bus, Status.RUNNING))
    (check,) = await limits(bus)
    assert (check.name, check.level) == ("limits narrow", "ok")
    assert check.text == "1 of 3 slots in use, 2 runs wait; at most 1 for each thread"


async def test_slots_that_nothing_uses_are_named(bus: Bus, agent: str) -> None:
    ended, gone = await run_in(bus, Status.COMPLETED), new_run_id()
    await hold(bus, await run_in(bus, Status.RUNNING), ended, gone)
    (check,) = await limits(bus)
    assert check.level == "note"
    assert check.text.startswith("3 of 3 slots in use, 2 runs wait")
    assert check.text.endswith(f"; 2 held by runs that do not use them: {ended}, {gone}")


async def test_an_agent_whose_gate_was_never_written(bus: Bus, agent: str) -> None:
    (check,) = await limits(bus)
    assert check.text.startswith("0 of 3 slots in use, 2 runs wait")
