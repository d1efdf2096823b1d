"""Registrations of agents."""

from __future__ import annotations

import pytest

from callboard.store.agents import AgentRegistry
from callboard.topics.bus import Bus
from callboard.topics.errors import InvalidSubject, NotFound
from callboard.topics.messages import AgentInfo, encode


async def test_a_registration_is_written_when_it_differs_from_the_last(bus: Bus) -> None:
    registry = AgentRegistry(bus)
    info = AgentInfo(name="reviewer", topics=["review"], input_schema={"type": "object"})
    assert await registry.register(info)
    assert not await registry.register(info)
    assert await registry.get("reviewer") == info
    newer = AgentInfo(name="reviewer", topics=["review", "audit"])
    assert await registry.register(newer)
    assert await registry.get("reviewer") == newer


async def test_all_are_listed_by_name(bus: Bus) -> None:
    registry = AgentRegistry(bus)
    assert await registry.all() == []
    infos = [AgentInfo(name=name) for name in ("c", "a", "b")]
    for info in infos:
        await registry.register(info)
    await registry.register(AgentInfo(name="a", version="2"))
    assert [(info.name, info.version) for info in await registry.all()] == [("a", "2"), ("b", ""), ("c", "")]


async def test_more_agents_than_one_request_answers(bus: Bus) -> None:
    writes = [bus.write(bus.subjects.agent(f"a{n:04}"), encode(AgentInfo(name=f"a{n:04}"))) for n in range(1500)]
    for write in writes:
        await write
    await AgentRegistry(bus).register(AgentInfo(name="a0007", version="2"))
    found = await AgentRegistry(bus).all()
    assert [info.name for info in found] == [f"a{n:04}" for n in range(1500)]
    assert found[7].version == "2"


async def test_garbage_is_left_out_and_written_over(bus: Bus, caplog: pytest.LogCaptureFixture) -> None:
    registry = AgentRegistry(bus)
    await registry.register(AgentInfo(name="good"))
    for name, data in (("bad", b"\xff"), ("empty", b""), ("liar", encode(AgentInfo(name="good", version="9")))):
        await bus.write(bus.subjects.agent(name), data)
    assert await registry.all() == [AgentInfo(name="good")]
    assert caplog.text.count("is not a registration") == 2
    assert "registers another agent" in caplog.text
    with pytest.raises(NotFound, match="bad"):
        await registry.get("bad")
    assert await registry.register(AgentInfo(name="bad"))
    assert await registry.get("bad") == AgentInfo(name="bad")


async def test_a_name_that_is_no_subject_token_is_refused(bus: Bus) -> None:
    with pytest.raises(InvalidSubject, match=r"a\.b"):
        await AgentRegistry(bus).register(AgentInfo(name="a.b"))
