"""How runs come to be: any client, ids of one's own, idempotency keys, topics with no, one and two agents, any size."""

from __future__ import annotations

import asyncio
import itertools
import json
from datetime import timedelta
from typing import Any

import msgspec
import nats
import nats.js.api
import pytest

from callboard.actors.agent import agent
from callboard.actors.coordinator import carrier, work_queue
from callboard.actors.coordinator.effects import Dispatch
from callboard.actors.engine import Context
from callboard.store.blobs import Blobs
from callboard.store.deadletters import DeadLetters
from callboard.store.submit import Submitter
from callboard.topics.bus import Bus
from callboard.topics.config import BrokerSettings
from callboard.topics.errors import CallboardError, IdempotencyConflict, InvalidInput
from callboard.topics.messages import NOTHING, Command, RunRecord, Status, TaskRequest, Work, encode
from callboard.topics.units import nanoseconds, now
from tests.actors.company import Company, company, eventually, result_of


@agent("echo", topics=["echo"])
async def echo(ctx: Context, value: Any) -> Any:
    return value


@agent("other", topics=["echo", "more"])
async def other(ctx: Context, value: Any) -> str:
    return "other"


async def letters(bus: Bus) -> list[tuple[str, str]]:
    """Kind and code of all dead letters."""
    return [(one.kind, one.letter.reason.code) for one in await DeadLetters(bus).page(after=0, limit=500)]


async def test_bare_client_publishes_a_task_and_sees_its_states(settings: BrokerSettings, bus: Bus) -> None:
    """A NATS client that knows nothing of this package: JSON in, an id of its own, states out, a core submit."""
    async with company(settings, bus, [echo]):
        ns, run = settings.namespace, "my-own-id"
        client = await nats.connect(settings.nats_url)
        try:
            states = await client.subscribe(f"{ns}.live.run.{run}.{run}.state")
            await client.flush()
            await client.jetstream().publish(f"{ns}.task.echo", b'{"a": [1]}', headers={"Callboard-Run": run})
            seen: list[dict[str, Any]] = []
            while not seen or seen[-1]["status"] not in ("completed", "failed"):
                seen.append(json.loads((await states.next_msg(timeout=5)).data))
            assert [one["status"] for one in seen] == ["queued", "running", "completed"]
            assert seen[-1]["result"] == {"json": {"a": [1]}}
            answer = await client.request(f"{ns}.rpc.submit", b'{"agent": "echo", "input": 5}', timeout=5)
            assert json.loads(answer.data)["run"]
        finally:
            await client.close()


async def test_task_that_is_delivered_twice_gives_one_run(settings: BrokerSettings, bus: Bus) -> None:
    """Two coordinators, and every message of the INBOX delivered to both at once."""
    async with company(settings, bus, [echo], coordinators=2) as all_:
        runs = await asyncio.gather(*(all_.submit("echo", 1, run="same") for _ in range(20)))
        assert set(runs) == {"same"}
        await all_.ended("same")
        for _ in range(5):
            await bus.store(f"{settings.namespace}.task.echo", b"1", b"NATS/1.0\r\nCallboard-Run: twice\r\n\r\n")
        record = await all_.ended("twice")
        await asyncio.sleep(0.2)
        states = await all_.states("twice")
        assert [one.status for one in states] == [Status.QUEUED, Status.RUNNING, Status.COMPLETED]
        assert record.attempt == 1


async def test_requests_that_come_again_leave_one_work_message(settings: BrokerSettings, bus: Bus) -> None:
    """Clients that repeat themselves while the installation is behind must not put it further behind."""
    async with company(settings, bus, coordinators=2) as all_:
        for _ in range(5):
            await asyncio.gather(*(all_.submit("echo", 1, run=f"again-{turn}") for turn in (1, 1, 2, 2)))
            await bus.store(f"{settings.namespace}.task.echo", b"1", b"NATS/1.0\r\nCallboard-Run: again-3\r\n\r\n")
            await bus.store(f"{settings.namespace}.cmd.again-1.sweep", encode(Command()))
        await eventually(lambda: _nothing_left(all_))
        assert await all_.waiting_messages(bus.subjects.work_stream) == 3
        await all_.worker(echo)
        for turn in (1, 2, 3):
            assert (await all_.ended(f"again-{turn}")).attempt == 1


async def test_a_command_that_changes_nothing_writes_a_work_message_only_if_it_is_gone(
    settings: BrokerSettings, bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Long after the broker has forgotten the first one: in an installation that is behind all commands come again."""
    monkeypatch.setattr(carrier, "_KNOWN_AGAIN", timedelta(0))
    monkeypatch.setattr(work_queue, "_FRESH_S", 0.0)
    stream = bus.subjects.work_stream
    info = await bus.api(f"STREAM.INFO.{stream}")
    assert info is not None
    await bus.api(f"STREAM.UPDATE.{stream}", info["config"] | {"duplicate_window": nanoseconds(0.1)})
    async with company(settings, bus) as all_:
        run = await all_.submit("echo", 1)
        for left in (1, 0):
            await asyncio.sleep(0.3)
            for _ in range(4):
                await bus.store(bus.subjects.command(run, "wake"), encode(Command()))
                await eventually(lambda: _nothing_left(all_))
            assert await all_.waiting_messages(stream) == 1
            if left:
                await bus.api(f"STREAM.PURGE.{stream}", {})
        await all_.worker(echo)
        assert result_of(await all_.ended(run)) == 1


async def _nothing_left(all_: Company) -> bool:
    return await all_.waiting_messages(all_.bus.subjects.inbox) == 0


async def test_idempotency_key(settings: BrokerSettings, bus: Bus) -> None:
    """The same key and request give the same run, in any order of JSON keys; another request is a conflict that does
    the first one no harm."""
    async with company(settings, bus, [other]) as all_:
        run = await all_.submit("echo", {"a": 1, "b": 2}, key="k")
        assert await all_.submit("echo", {"b": 2, "a": 1}, key="k") == run
        for agent_, value in (("echo", {"a": 2}), ("other", {"a": 1, "b": 2})):
            with pytest.raises(IdempotencyConflict):
                await all_.submit(agent_, value, key="k")
        await asyncio.sleep(0.3)
        assert (await all_.record(run)).status is Status.QUEUED
        await all_.worker(echo)
        record = await all_.ended(run)
        assert result_of(record) == {"a": 1, "b": 2}
        assert record.losses == 0

        async def empty() -> bool:
            return not await all_.waiting_messages(bus.subjects.work_stream)

        await eventually(empty, 5)


async def test_a_key_stands_for_an_id_and_is_refused_beside_one(settings: BrokerSettings, bus: Bus) -> None:
    """On every way in: were one of the two ignored, the same key would give a second run."""
    async with company(settings, bus, [echo]) as all_:
        with pytest.raises(InvalidInput, match="give one of them"):
            await all_.submit("echo", 1, run="mine", key="k")
        with pytest.raises(InvalidInput, match="give one of them"):
            await all_.submitter.publish("echo", b"1", run="mine", key="k")
        head = b"NATS/1.0\r\nCallboard-Run: mine\r\nCallboard-Key: k\r\n\r\n"
        await bus.store(f"{settings.namespace}.task.echo", b"1", head)
        await eventually(lambda: letters(bus))
        assert await letters(bus) == [("task", "invalid_input")]
        assert await all_.log.load("mine") is None


@pytest.mark.parametrize("key", ["a\nb", " a", "a\r", "\ud800"])
async def test_a_key_that_a_header_would_change_is_refused(settings: BrokerSettings, bus: Bus, key: str) -> None:
    with pytest.raises(InvalidInput, match="cannot travel in a header"):
        await Submitter(bus, Blobs(bus)).publish("echo", b"1", key=key)


async def test_chosen_run_id_with_another_body_is_set_aside(settings: BrokerSettings, bus: Bus) -> None:
    """A publisher that uses an id twice for different tasks finds the second among the dead letters."""
    async with company(settings, bus, [echo]) as all_:
        head = b"NATS/1.0\r\nCallboard-Run: chosen\r\n\r\n"
        await bus.store(f"{settings.namespace}.task.echo", b"1", head)
        await all_.ended("chosen")
        await bus.store(f"{settings.namespace}.task.echo", b"2", head)
        await eventually(lambda: letters(bus))
        assert await letters(bus) == [("task", "idempotency_conflict")]


async def test_topic_of_two_agents_gives_two_runs_and_a_duplicate_no_third(settings: BrokerSettings, bus: Bus) -> None:
    """Also when a third agent, first in the alphabet, has come to serve the topic before the duplicate."""

    @agent("aaa", topics=["echo"])
    async def early(ctx: Context, value: Any) -> str:
        return "aaa"

    async with company(settings, bus, [echo, other]) as all_:
        request = TaskRequest(topic="echo", input=msgspec.Raw(b"1"), run="fan")
        reply = await all_.submitter.submit(request)
        assert reply.runs is not None
        records = [await all_.ended(run) for run in reply.runs]
        assert sorted(one.agent for one in records) == ["echo", "other"]
        await all_.worker(early)
        again = await all_.submitter.submit(request)
        assert again.duplicate
        assert again.runs is not None
        assert {one: (await all_.record(one)).agent for one in reply.runs}.items() <= {
            one: (await all_.record(one)).agent for one in again.runs
        }.items()
        agents = [(await all_.record(one)).agent for one in again.runs]
        assert sorted(agents) == sorted(set(agents))


async def test_tasks_of_an_unserved_topic_wait_and_are_routed(settings: BrokerSettings, bus: Bus) -> None:
    """Queued with a reason anybody can read; one run for each agent once workers register, garbage set aside."""
    async with company(settings, bus, coordinators=2) as all_:
        runs = [await all_.submit(None, n, topic="more") for n in range(20)]
        await bus.store(f"{settings.namespace}.work.@more", b"\xff garbage")
        await bus.store(f"{settings.namespace}.work.@more", encode(Work(run="not a run id", dispatch=1)))
        record = await all_.record(runs[0])
        assert (record.status, record.agent) == (Status.QUEUED, "")
        assert "no agent serves topic 'more'" in (record.reason or "")
        await all_.worker(other)
        for run in runs:
            assert result_of(await all_.ended(run)) == "other"
        await eventually(lambda: letters(bus))
        assert {kind for kind, _ in await letters(bus)} == {"work"}

        async def routed() -> bool:
            return not await all_.waiting_messages(bus.subjects.work_stream)

        await eventually(routed, 5)


async def test_run_for_an_agent_that_nobody_has_registered_waits(settings: BrokerSettings, bus: Bus) -> None:
    async with company(settings, bus) as all_:
        run = await all_.submit("echo", 3)
        assert "start one" in ((await all_.record(run)).reason or "")
        await all_.worker(echo)
        assert result_of(await all_.ended(run)) == 3


@pytest.mark.parametrize("route", ["client", "task", "rpc"])
async def test_large_inputs(settings: BrokerSettings, bus: Bus, route: str) -> None:
    """5 MB by reference; a task or request of nearly the server's limit, published by anybody, as it is."""
    async with company(settings, bus, [echo]) as all_:
        size = 5_000_000 if route == "client" else 900_000
        value = "x" * size
        if route == "client":
            record = await all_.run("echo", value)
        elif route == "task":
            await bus.store(
                f"{settings.namespace}.task.echo", json.dumps(value).encode(), b"NATS/1.0\r\nCallboard-Run: big\r\n\r\n"
            )
            record = await all_.ended("big")
        else:
            body = json.dumps({"agent": "echo", "run": "big", "input": value}).encode()
            await bus.request(f"{settings.namespace}.rpc.submit", body)
            record = await all_.ended("big")
        assert record.status is Status.COMPLETED
        assert record.result is not None
        assert json.loads(await all_.submitter._blobs.value(record.result)) == value


async def test_crash_between_record_and_work_message(settings: BrokerSettings, bus: Bus) -> None:
    """The record is there, its work message is not: the task's redelivery, a repeated submit, or a sweep brings it."""
    async with company(settings, bus, [echo]) as all_:
        for run in ("redelivered", "repeated", "swept"):
            record = RunRecord(
                id=run, root=run, agent="echo", status=Status.QUEUED, input=NOTHING, created_at=now(), updated_at=now(),
                dispatch=1, topic="echo" if run == "redelivered" else None,
            )  # fmt: skip
            await all_.log.append_state(record, 0)
        head = b"NATS/1.0\r\nCallboard-Run: redelivered\r\n\r\n"
        await bus.store(f"{settings.namespace}.task.echo", b"null", head)
        await all_.submit("echo", None, run="repeated")
        await bus.store(bus.subjects.command("swept", "sweep"), b"")
        for run in ("redelivered", "repeated", "swept"):
            assert (await all_.ended(run)).status is Status.COMPLETED


async def test_work_message_without_its_record(settings: BrokerSettings, bus: Bus) -> None:
    """The message was faster than the record, or the record never comes: tried again, in the end dropped."""
    async with company(settings, bus, [echo]) as all_:
        await bus.store(f"{settings.namespace}.work.echo", encode(Work(run="early", dispatch=1)))
        await asyncio.sleep(0.3)
        record = RunRecord(
            id="early", root="early", agent="echo", status=Status.QUEUED, input=NOTHING, created_at=now(),
            updated_at=now(), dispatch=1,
        )  # fmt: skip
        await all_.log.append_state(record, 0)
        assert (await all_.ended("early")).status is Status.COMPLETED


GARBAGE = [b"", b"null", b"{}", b"[]", b"\xff\xfe\x00", b"[" * 5000, b'{"run": 5}', b"{" + b" " * 500_000 + b"}"]
EVIL = [
    "a b",
    "a\r\nPUB x 0\r\n",
    "*",
    ">",
    "~" * 30,
    "x" * 5000,
    "\ud800".encode("utf-8", "surrogatepass").decode("latin-1"),
]


async def test_garbage_on_every_subject(settings: BrokerSettings, bus: Bus) -> None:
    """Set aside or ignored with a reason, never a crash, never a loop: real work goes on, nothing stays behind."""
    async with company(settings, bus, [echo], coordinators=2) as all_:
        ns = settings.namespace
        stored = [
            "task.echo",
            "task.a\\b",
            "cmd.x.cancel",
            "cmd.x.nonsense",
            "cmd.x",
            "cmd.x.y.z",
            "cmd.a~b.cancel",
            "work.echo",
        ]
        for data in GARBAGE:
            for subject in stored:
                await bus.store(f"{ns}.{subject}", data)
            for subject in ("rpc.submit", "rpc.claim", "rpc.outcome", "rpc.children", "rpc.command"):
                bus.publish(f"{ns}.{subject}", data, reply="_INBOX.nobody")
                bus.publish(f"{ns}.{subject}", data)
            for subject in ("worker.x.beat", "worker.echo.notice", f"worker.{all_.members[-1].actor.worker}.notice"):
                bus.publish(f"{ns}.{subject}", data)
            await bus.store(f"{ns}.agent.echo2", data)
        for text in EVIL:
            bus.publish(
                f"{ns}.worker.x.beat", encode({"id": text, "agents": ["echo"], "concurrency": 1, "running": [text]})
            )
            await bus.store(f"{ns}.agent.echo3", encode({"name": text, "topics": [text]}))
            claim = {"run": text, "dispatch": 1, "lease": 1}
            outcome = {"run": text, "attempt": 1, "kind": "suspended", "waits": [[text]]}
            for subject, body in {
                "rpc.claim": {"worker": text, "claims": [claim]},
                "rpc.outcome": {"outcomes": [outcome]},
                "rpc.children": {"parent": text, "attempt": 1, "epoch": 0, "children": []},
                "rpc.command": {"run": text, "verb": "cancel"},
                "rpc.submit": {"agent": text, "thread": text, "key": text, "run": text},
            }.items():
                bus.publish(f"{ns}.{subject}", encode(body), reply="_INBOX.nobody")
            await bus.store(f"{ns}.work.echo", encode(Work(run=text, dispatch=1)))
        runs = [await all_.submit("echo", n) for n in range(20)]
        for n, run in enumerate(runs):
            assert result_of(await all_.ended(run)) == n
        assert all(member.bus.is_up for member in all_.members)
        assert all(not member.host.gave_up for member in all_.members)

        async def empty() -> bool:
            return not await all_.waiting_messages(bus.subjects.inbox)

        await eventually(empty, 10)
        kinds = {kind for kind, _ in await letters(bus)}
        assert {"task", "command", "work"} <= kinds


async def test_a_text_that_is_too_long_for_a_record_is_refused(settings: BrokerSettings, bus: Bus) -> None:
    """At once and by name, whatever the verb; it would have been taken, and the answer would not have fitted."""
    async with company(settings, bus) as all_:
        run = await all_.submit("nobody")
        before = await all_.record(run)
        for verb in ("cancel", "fail", "say", "wake"):
            for more in ({"reason": "x" * 1_000_000}, {"by": "x" * 300}):
                asked = encode({"run": run, "verb": verb} | more)
                answer = await bus.request(f"{bus.subjects.rpc}.command", asked, timeout_s=5)
                error = msgspec.json.decode(answer.data)["error"]
                assert error["code"] == "invalid_input"
                assert "characters" in error["message"]
        assert (await all_.record(run)).rev == before.rev


@pytest.mark.parametrize("durable", [True, False])
async def test_whatever_stands_in_a_command(settings: BrokerSettings, bus: Bus, durable: bool) -> None:
    """No text of a command gets into the protocol: connections stay up, no command comes for ever."""
    async with company(settings, bus, [echo], coordinators=2) as all_:
        texts = [one.name for one in msgspec.structs.fields(Command) if one.type in (str, str | None)]
        texts = [name for name in texts if name not in ("run", "verb")]
        verbs = sorted(all_.members[0].actor._commands._verbs)
        waiting = [await all_.submit("nobody", run=f"run{n}") for n in range(len(EVIL))]
        ended = (await all_.run("echo", 1)).id
        for run, evil in zip(waiting, EVIL, strict=True):
            alone = [{name: evil} for name in texts if evil in EVIL[:2]]
            for which, verb, said in itertools.product((run, ended), verbs, [dict.fromkeys(texts, evil), *alone]):
                if durable:
                    await bus.store(bus.subjects.command(which, verb), encode(said))
                else:
                    asked = encode(said | {"run": which, "verb": verb})
                    await bus.request(f"{bus.subjects.rpc}.command", asked, timeout_s=5)

        async def empty() -> bool:
            return not await all_.waiting_messages(bus.subjects.inbox)

        await eventually(empty, 10)
        assert result_of(await all_.run("echo", 2)) == 2
        assert all(member.bus.is_up and not member.host.gave_up for member in all_.members)
        assert all(member.bus.client.stats["reconnects"] == 0 for member in all_.members)


async def test_every_request_that_cannot_be_understood_is_answered_with_why(settings: BrokerSettings, bus: Bus) -> None:
    async with company(settings, bus):
        asked = {
            (verb, data): asyncio.ensure_future(bus.request(f"{bus.subjects.rpc}.{verb}", data, timeout_s=5))
            for verb in ("submit", "claim", "outcome", "children", "command")
            for data in (*GARBAGE, b'{"worker": "a b", "claims": []}')
        }
        for (verb, data), answer in asked.items():
            error = msgspec.json.decode((await answer).data)["error"]
            assert error["code"].startswith("invalid_"), (verb, data, error)
            assert error["message"], (verb, data, error)


async def test_unknown_verb_and_unknown_run(settings: BrokerSettings, bus: Bus) -> None:
    """A durable command nobody understands, or for nobody, is a dead letter with its reason; a late one is not."""
    async with company(settings, bus, [echo]) as all_:
        record = await all_.run("echo", 1)
        await bus.store(bus.subjects.command("nobody", "cancel"), b"")
        await bus.store(bus.subjects.command(record.id, "dance"), b"")
        await bus.store(bus.subjects.command(record.id, "cancel"), b"")

        async def two() -> bool:
            return len(await letters(bus)) == 2

        await eventually(two)
        await asyncio.sleep(0.1)
        assert sorted(await letters(bus)) == [("command", "invalid_message"), ("command", "not_found")]
        with pytest.raises(CallboardError) as caught:
            await all_.submitter.command(record.id, "dance")
        assert "known are" in str(caught.value)


async def test_duplicate_work_messages_run_once(settings: BrokerSettings, bus: Bus) -> None:
    """However often a dispatch is published, one attempt begins."""
    async with company(settings, bus, coordinators=2) as all_:
        run = await all_.submit("echo", 1)
        carrier = all_.members[0].actor._carrier
        await asyncio.gather(*(carrier.begin_dispatch(Dispatch("echo", run, 1)) for _ in range(20)))
        await all_.worker(echo)
        await all_.worker(echo)
        record = await all_.ended(run)
        await asyncio.sleep(0.3)
        assert (await all_.record(run)).attempt == record.attempt == 1
        assert await all_.waiting_messages(bus.subjects.work_stream) == 0


async def test_coordinator_keeps_nothing_of_runs_that_have_ended(settings: BrokerSettings, bus: Bus) -> None:
    """Two coordinators share the work, so one grants what the other concludes."""

    async def settled(all_: Company) -> bool:
        actors = [member.actor for member in all_.members[:2]]
        return all(
            len(actor._ledger._known) <= 1024
            and not any(actor._liveness._held.values())
            and not actor._carrier.family._turns
            and not actor._carrier.family._next
            for actor in actors
        )

    async with company(settings, bus, [echo], coordinators=2, concurrency=32) as all_:
        runs = await asyncio.gather(*(all_.submit("echo", n) for n in range(300)))
        for run in runs:
            await all_.ended(run)
        await eventually(lambda: settled(all_), 12, lambda: str([m.actor._liveness._held for m in all_.members[:2]]))
        worker = all_.members[2].actor
        assert not worker._running
        assert not worker._tasks
