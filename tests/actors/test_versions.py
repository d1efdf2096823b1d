"""Two versions of an agent at once: which runs go to which workers, whatever happens to the workers and the runs."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from callboard.actors.agent import Agent, Retry, agent
from callboard.actors.audit import audit
from callboard.actors.coordinator.pinning import at_claim, belongs
from callboard.actors.coordinator.run_commands import Claim, Lost, Redispatch, Unattended
from callboard.actors.engine import Context
from callboard.actors.limit import Limit
from callboard.store.agents import AgentRegistry
from callboard.store.attention import Attention
from callboard.topics.bus import Bus
from callboard.topics.config import BrokerSettings
from callboard.topics.errors import InvalidInput, InvalidSubject
from callboard.topics.messages import AgentInfo, RetryPolicy, Status, WorkerInfo
from tests.actors.company import Company, company, eventually, result_of

from .test_transitions import changed, queued, refused, running

ONE = AgentInfo(name="a", version="1", pin=True, retry=RetryPolicy(max_attempts=7))


# -- the record -------------------------------------------------------------------------------------------------


def test_a_run_has_the_version_of_the_worker_that_claims_it() -> None:
    first = changed(queued(version="1"), Claim("w", 1, 10, 1, queue="a", version="1"))
    second = changed(changed(first, Lost("w")), Claim("x", 2, 11, 1, queue="a", version="2"))
    assert (first.version, second.version, second.pin) == ("1", "2", False)


def test_a_run_is_pinned_when_a_version_that_pins_begins_it_and_not_later() -> None:
    first = changed(queued(), Claim("w", 1, 10, 1, ONE, "a", "1"))
    assert (first.version, first.pin, first.queue, first.retry) == ("1", True, "a@1", ONE.retry)
    gone_on = changed(queued(attempt=1), Claim("w", 1, 10, 1, ONE, "a", "1"))
    assert (gone_on.version, gone_on.pin) == ("1", False)
    assert not at_claim(queued(), Claim("w", 1, 10, 1, ONE, "a", "2"))["pin"]


def test_a_pinned_run_is_granted_to_its_version_alone() -> None:
    record = queued(version="1", pin=True)
    assert record.queue == "a@1"
    assert refused(record, Claim("w", 1, 10, 1, queue="a@2", version="2")) == "stale"
    assert changed(record, Claim("w", 1, 10, 1, queue="a@1", version="1")).version == "1"
    assert belongs(record, "a")
    assert not belongs(queued(version="1"), "a@1")


def test_a_work_message_of_before_the_pin_takes_the_run_to_its_version() -> None:
    """Its first worker pinned the run and lost its lease; the message is delivered to a worker of another version."""
    record = running(version="1", pin=True)
    after = changed(record, Claim("x", 1, 10, 2, queue="a", version="2"))
    assert (after.status, after.dispatch, after.queue, after.losses) == (Status.QUEUED, 2, "a@1", 1)
    assert "pinned to version 1" in (after.reason or "")
    again = changed(record, Claim("x", 1, 10, 2, queue="a", version="1"))
    assert (again.status, again.attempt) == (Status.RUNNING, 2)
    assert changed(queued(version="1", pin=True), Claim("x", 1, 10, 1, queue="a", version="2")).queue == "a@1"


def test_a_task_that_waited_for_its_agent_takes_the_version_of_the_registration() -> None:
    record = changed(queued(agent="", topic="t"), Redispatch("a", 1, "routed", ONE))
    assert (record.queue, record.version, record.pin) == ("a@1", "1", True)


def test_a_run_that_nobody_takes_is_told_why_and_is_not_sent_again() -> None:
    record = queued(version="1", pin=True)
    told = changed(record, Unattended(1, "nobody there"))
    assert (told.reason, told.dispatch, told.updated_at, told.rev) == ("nobody there", 1, record.updated_at, 2)
    assert refused(told, Unattended(1, "nobody there")) == "stale"
    assert refused(record, Unattended(2, "nobody there")) == "stale"
    assert refused(running(), Unattended(1, "nobody there")) == "stale"


def test_what_cannot_be_a_version_is_refused_where_it_is_declared() -> None:
    with pytest.raises(InvalidSubject, match="version"):
        agent("a", version="1 2")
    with pytest.raises(InvalidInput, match="no version to pin"):
        agent("a", pin=True)


# -- at work ----------------------------------------------------------------------------------------------------


def of_version(version: str, *, pin: bool = True, name: str = "work", **options: Any) -> Agent[Any]:
    """An agent that says which version has carried its run out, after `sleep` seconds."""

    @agent(name, version=version, pin=pin, **options)
    async def work(ctx: Context, value: dict[str, Any]) -> Any:
        if (child := value.get("child")) is not None:
            return [version, await ctx.call(child, {"sleep": value.get("sleep", 0)})]
        if value.get("step"):
            await ctx.step(len, "abc")
        await asyncio.sleep(value.get("sleep", 0))
        if value.get("fails") and ctx.run.retry_of is None:
            raise ValueError("no good")
        return version

    return work


async def test_runs_stay_on_the_version_under_which_they_began(settings: BrokerSettings, bus: Bus) -> None:
    """Through a sleep, the loss of a worker and a retry, while the other version takes all that is new."""

    def sleeper(version: str) -> Agent[Any]:
        @agent("work", version=version, pin=True, retries=Retry(max_attempts=2, initial=timedelta(milliseconds=50)))
        async def work(ctx: Context, value: str) -> str:
            if value == "sleeps":
                await ctx.sleep(timedelta(seconds=2.5))
            elif value == "fails once" and ctx.run.failures == 0:
                raise ConnectionError
            elif value == "stays":
                await asyncio.sleep(30 if ctx.run.losses == 0 else 0)
            return version

        return work

    async with company(settings, bus) as all_:
        first = await all_.worker(sleeper("1"), patience_s=0.0)
        victim = await all_.submit("work", "stays")
        asleep = await all_.submit("work", "sleeps")
        await all_.reaches(victim, Status.RUNNING)
        await all_.reaches(asleep, Status.WAITING)
        await all_.worker(sleeper("2"))
        news = [await all_.submit("work", value) for value in ("fails once", "now")]
        assert {result_of(await all_.ended(run)) for run in news} == {"2"}
        await first.kill()
        lost = await all_.reaches(victim, Status.QUEUED)
        assert (lost.version, lost.pin, lost.queue) == ("1", True, "work@1")
        await all_.worker(sleeper("1"))
        assert [result_of(await all_.ended(run)) for run in (victim, asleep)] == ["1", "1"]
        assert (await AgentRegistry(bus).get("work")).version == "2"
        assert result_of(await all_.run("work", "now")) == "2"
    assert not (await audit(bus, wait_s=0.2)).findings


async def test_workers_say_which_versions_they_have(settings: BrokerSettings, bus: Bus) -> None:
    async with company(settings, bus) as all_:
        await all_.worker(of_version("1"), of_version("7.2", name="other"), of_version("", pin=False, name="bare"))
        beats = [msgspec.json.decode(one.data, type=WorkerInfo) for one in await bus.gather(bus.subjects.worker)]
        (beat,) = [one for one in beats if one.agents]
        assert beat.versions == {"work": "1", "other": "7.2"}
        assert beat.agents == ["work", "other", "bare"]


async def test_without_a_pin_workers_of_the_new_version_take_over(settings: BrokerSettings, bus: Bus) -> None:
    async with company(settings, bus) as all_:
        first = await all_.worker(of_version("1", pin=False))
        run = await all_.submit("work", {"sleep": 0.8, "step": True})
        record = await all_.reaches(run, Status.RUNNING)
        assert (record.version, record.pin) == ("1", False)
        await first.kill()
        await all_.worker(of_version("2", pin=False))
        assert result_of(ended := await all_.ended(run)) == "2"
        assert (ended.version, ended.attempt) == ("2", 2)


async def test_the_terms_of_a_run_are_those_of_its_version(settings: BrokerSettings, bus: Bus) -> None:
    """Also for a version that is not the current one, and with a coordinator that has only heard of it now."""
    one = of_version("1", timeout=timedelta(seconds=11), retries=Retry(max_attempts=1))
    two = of_version("2", timeout=timedelta(seconds=22), retries=Retry(max_attempts=5))
    async with company(settings, bus) as all_:
        await all_.worker(one)
        old = await all_.submit("work", {"sleep": 1.0, "fails": True})
        await all_.reaches(old, Status.RUNNING)
        await all_.worker(two)
        new = await all_.ended(await all_.submit("work", {}))
        await all_.coordinator()
        before = await all_.ended(old)
        assert (before.status, before.timeout_s, before.failures) == (Status.FAILED, 11.0, 1)
        assert (new.timeout_s, new.version) == (22.0, "2")
        retried = await all_.submitter.command(old, "retry")
        assert (retried.version, retried.pin, retried.timeout_s) == ("1", True, 11.0)
        assert result_of(await all_.ended(retried.id)) == "1"


async def test_one_limit_holds_for_both_versions(settings: BrokerSettings, bus: Bus) -> None:
    """Although each version has a queue, and a consumer, of its own."""
    now = most = 0

    def limited(version: str) -> Agent[Any]:
        @agent("limited", version=version, pin=True, limit=Limit(concurrency=3))
        async def work(ctx: Context, _: Any) -> str:
            nonlocal now, most
            now, most = now + 1, max(most, now + 1)
            await asyncio.sleep(0.05)
            now -= 1
            return version

        return work

    registry = AgentRegistry(bus)
    async with company(settings, bus, coordinators=2) as all_:
        await all_.worker(limited("1"))
        old = [await all_.submit("limited") for _ in range(20)]
        await all_.worker(limited("2"))
        await eventually_current(all_, "limited", "2")
        new = [await all_.submit("limited") for _ in range(20)]
        assert {result_of(await all_.ended(run, 30)) for run in old} == {"1"}
        assert {result_of(await all_.ended(run, 30)) for run in new} == {"2"}
        assert most == 3
        assert (await registry.get("limited")).version == "2"
    assert not (await audit(bus, wait_s=0.2)).findings


async def eventually_current(all_: Company, name: str, version: str) -> None:
    """Until every coordinator lets new runs follow the version: registrations reach them a moment late."""
    coordinators = [one.actor for one in all_.members if one.actor.name == "coordinator" and not one.dead]

    def there() -> bool:
        return all((info := one._routing.agent(name)) and info.version == version for one in coordinators)

    await eventually(there)


async def test_a_pinned_run_whose_version_has_no_worker_is_seen(settings: BrokerSettings, bus: Bus) -> None:
    """On the list, with the version, and in its own reason; other workers of the agent are there all the while."""
    async with company(settings, bus) as all_:
        await all_.coordinator(unserved_after_s=1.0)
        await all_.worker(of_version("2.1"))
        await AgentRegistry(bus).register(AgentInfo(name="work", version="1", pin=True))
        await AgentRegistry(bus).promote("work", "1")
        await eventually_current(all_, "work", "1")
        run = await all_.submit("work", {})
        await AgentRegistry(bus).promote("work", "2.1")
        await eventually_current(all_, "work", "2.1")
        assert result_of(await all_.run("work", {})) == "2.1"

        async def noted() -> bool:
            items = await Attention(bus).items()
            return [(item.id, item.agent, item.version) for item in items] == [("queue:work@1", "work", "1")]

        await eventually(noted)

        async def told() -> bool:
            return "no worker has agent 'work' in version '1'" in ((await all_.record(run)).reason or "")

        await eventually(told)
        await bus.store(bus.subjects.command(run, "sweep"), b"")
        await eventually(lambda: empty(all_, bus.subjects.inbox))
        assert (await all_.record(run)).dispatch == 1
        await all_.worker(of_version("1"))
        assert result_of(await all_.ended(run)) == "1"

        async def settled() -> bool:
            return not await Attention(bus).items()

        await eventually(settled)


async def empty(all_: Company, stream: str) -> bool:
    return not await all_.waiting_messages(stream)


async def test_children_and_tasks_begin_under_the_current_version(settings: BrokerSettings, bus: Bus) -> None:
    """A parent of the old version gets children of the version that new runs follow; a task that was there before any
    worker, and one that a schedule starts, go to the version that is there then."""
    async with company(settings, bus) as all_:
        parked = await all_.submit(None, {}, topic="things")
        direct = await all_.submit("work", {})
        await all_.worker(of_version("1", topics=["things"]), of_version("1", name="parent"))
        assert [result_of(await all_.ended(run)) for run in (parked, direct)] == ["1", "1"]
        assert [(one.version, one.pin) for one in [await all_.record(parked), await all_.record(direct)]] == [
            ("1", True), ("1", True),
        ]  # fmt: skip
        await all_.worker(of_version("2", topics=["things"]))
        await eventually_current(all_, "work", "2")
        assert result_of(await all_.run("parent", {"child": "work"})) == ["1", "2"]
        assert result_of(await all_.ended(await all_.submit(None, {}, topic="things"))) == "2"


async def test_an_old_worker_that_starts_again_says_that_new_runs_follow_another_version(
    settings: BrokerSettings, bus: Bus, caplog: pytest.LogCaptureFixture
) -> None:
    async with company(settings, bus) as all_:
        await all_.worker(of_version("1", limit=Limit(concurrency=1)))
        await all_.worker(of_version("2", limit=Limit(concurrency=5)))
        assert "limits of agent work change" in caplog.text
        caplog.clear()
        await all_.worker(of_version("1", limit=Limit(concurrency=1)))
        assert "this worker has version '1'; new runs follow version '2'" in caplog.text
        assert "limits of agent work change" not in caplog.text
        registered = await AgentRegistry(bus).get("work")
        assert (registered.version, registered.limits and registered.limits.concurrency) == ("2", 5)
