"""Registrations of agents."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from callboard.store.agents import AgentRegistry, Registrations
from callboard.store.served import served
from callboard.topics.bus import Bus
from callboard.topics.errors import IllegalTransition, InvalidSubject, NotFound
from callboard.topics.messages import AgentInfo, WorkerInfo, encode
from callboard.topics.versions import require_version, split, versioned


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
    await registry.all()
    assert caplog.text.count("is not a registration") == 2, "told once, however often it is read"
    with pytest.raises(NotFound, match="bad"):
        await registry.get("bad")
    with pytest.raises(InvalidSubject):
        await registry.forget(">")
    await registry.forget("empty")
    with pytest.raises(NotFound, match="empty"):
        await registry.forget("empty")
    assert await registry.register(AgentInfo(name="bad"))
    assert await registry.get("bad") == AgentInfo(name="bad")


async def test_a_name_that_is_no_subject_token_is_refused(bus: Bus) -> None:
    with pytest.raises(InvalidSubject, match=r"a\.b"):
        await AgentRegistry(bus).register(AgentInfo(name="a.b"))


# -- versions ---------------------------------------------------------------------------------------------------

ONE, TWO = (AgentInfo(name="a", version=version, topics=[f"t{version}"]) for version in ("1.0", "2.0"))


async def test_a_new_version_is_followed_and_an_old_one_that_registers_again_is_not(bus: Bus) -> None:
    registry = AgentRegistry(bus)
    assert await registry.register(ONE)
    assert await registry.register(TWO)
    assert await registry.get("a") == TWO
    assert not await registry.register(ONE)
    changed = replace(ONE, timeout_s=3.0)
    assert await registry.register(changed)
    found = await registry.registrations()
    assert found.current == {"a": TWO}
    assert found.versions == {"a": [TWO, changed]}
    assert not await registry.register(TWO)


async def test_an_agent_without_a_version_gives_way_and_does_not_come_back(bus: Bus) -> None:
    registry, bare = AgentRegistry(bus), AgentInfo(name="a", description="bare")
    for info in (bare, ONE, bare):
        await registry.register(info)
    assert await registry.get("a") == ONE
    assert await registry.promote("a", "") == bare
    assert await registry.get("a") == bare
    assert not await registry.register(ONE)
    assert await registry.get("a") == bare


async def test_a_known_version_is_promoted(bus: Bus) -> None:
    registry = AgentRegistry(bus)
    with pytest.raises(NotFound, match="no agent 'a' is registered"):
        await registry.promote("a", "1.0")
    await registry.register(ONE)
    await registry.register(TWO)
    assert await registry.promote("a", "1.0") == ONE
    assert await registry.promote("a", "1.0") == ONE
    assert await registry.get("a") == ONE
    with pytest.raises(NotFound, match=r"no version '3': known are"):
        await registry.promote("a", "3")


async def test_workers_of_two_versions_that_start_together_leave_the_new_one(bus: Bus) -> None:
    registry = AgentRegistry(bus)
    await registry.register(ONE)
    changed = replace(ONE, timeout_s=3.0)
    await asyncio.gather(*(registry.register(info) for info in [changed, TWO] * 8))
    assert await registry.get("a") == TWO
    assert sorted(info.version for info in (await registry.registrations()).versions["a"]) == ["1.0", "2.0"]


async def test_a_version_or_the_whole_agent_is_forgotten(bus: Bus) -> None:
    registry = AgentRegistry(bus)
    for info in (ONE, TWO, AgentInfo(name="ab")):
        await registry.register(info)
    with pytest.raises(IllegalTransition, match="promote another one first"):
        await registry.forget("a", "2.0")
    await registry.forget("a", "1.0")
    assert (await registry.registrations()).versions["a"] == [TWO]
    with pytest.raises(NotFound, match=r"not registered in version '1\.0'"):
        await registry.forget("a", "1.0")
    await registry.forget("a")
    assert [info.name for info in await registry.all()] == ["ab"]
    with pytest.raises(NotFound):
        await registry.forget("a")


async def test_what_registers_another_version_than_its_subject_says_is_left_out(bus: Bus) -> None:
    await AgentRegistry(bus).register(ONE)
    await bus.write(bus.subjects.agent_version("a", "7"), encode(ONE))
    await bus.write(bus.subjects.agent("b"), encode(AgentInfo(name="b", version="no good")))
    found = await AgentRegistry(bus).registrations()
    assert (found.current, found.versions) == ({"a": ONE}, {"a": [ONE]})


def test_the_versions_of_an_agent_with_who_serves_them() -> None:
    def worker(id: str, **more: Any) -> WorkerInfo:
        return WorkerInfo(id=id, agents=["a", "b"], concurrency=1, **more)

    found = Registrations({"a": TWO}, {"a": [ONE, TWO]})
    live = [worker("w1", versions={"a": "1.0"}), worker("w2", versions={"a": "2.0"}), worker("w3"),
            worker("w4", versions={"a": "1.0"}, draining=True)]  # fmt: skip
    rows = served("a", found, live, {"1.0": 3, "0.9": 1})
    assert [(one.version, one.current, one.registered, one.workers, one.pinned) for one in rows] == [
        ("2.0", True, True, ["w2"], 0), ("1.0", False, True, ["w1"], 3), ("", False, False, ["w3"], 0),
        ("0.9", False, False, [], 1),
    ]  # fmt: skip


@pytest.mark.parametrize(("agent", "version", "token"), [("a", "2", "a@2"), ("a", "1.2.3", "a@1@2@3"), ("a", "", "a@")])
def test_an_agent_in_a_version_is_one_token(agent: str, version: str, token: str) -> None:
    assert versioned(agent, version) == token
    assert split(token) == (agent, version)


def test_a_name_alone_and_a_topic_have_no_version() -> None:
    assert split("a") == ("a", None)
    assert split("@topic") == ("@topic", None)
    for text in ("1 2", "a@b", "x" * 65, "*"):
        with pytest.raises(InvalidSubject, match="version"):
            require_version(text)
