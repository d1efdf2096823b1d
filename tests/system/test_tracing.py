"""Traces of the whole system, as a collector receives them from real processes: one trace for each tree of runs."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import nats as nats_py
import pytest

from callboard.runtime.nats_server import ServerProcess
from callboard.store.log import EventLog
from callboard.topics.messages import RunRecord, Status
from tests.support.otlp import Collector, Span, collector
from tests.support.system import CALLBOARD, System, free_port, serving, system

AGENTS = str(Path(__file__).with_name("traced_agents.py"))
ROOT = Path(__file__).parents[2]
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
CLIENT = "00f067aa0ba902b7"
TRACEPARENT = f"00-{TRACE}-{CLIENT}-01"
QUICK = {"OTEL_BSP_SCHEDULE_DELAY": "100"}


@pytest.fixture
def spans() -> Iterator[Collector]:
    with collector() as found:
        yield found


@asynccontextmanager
async def traced(nats: ServerProcess, folder: Path, spans: Collector) -> AsyncIterator[tuple[System, str]]:
    """Two coordinators, a worker and a gateway that send their spans, and the gateway's URL."""
    told = QUICK | {"OTEL_EXPORTER_OTLP_ENDPOINT": spans.url}
    port = free_port()
    async with system(nats.url, folder) as whole:
        for _ in range(2):
            whole.start("coordinator", **told)
        whole.start("worker", AGENTS, PYTHONPATH=str(ROOT), **told)
        whole.start("gateway", "--port", str(port), **told)
        await whole.ready(coordinators=2)
        url = f"http://127.0.0.1:{port}"
        async with httpx.AsyncClient(base_url=url) as http:
            await serving(http)
        yield whole, url


async def post(url: str, body: dict[str, Any], **headers: str) -> str:
    async with httpx.AsyncClient(base_url=url) as http:
        answer = await http.post("/runs", json=body, headers=headers)
    assert answer.status_code == 202, answer.text
    run: str = answer.json()["run"]
    return run


async def ended(whole: System, spans: Collector, run: str, status: Status = Status.COMPLETED) -> RunRecord:
    """The record of a run that has ended, once its own span has been received."""
    record = await whole.finished(run)
    assert record.status is status, record
    await spans.until(lambda: any(one.name.startswith("run ") for one in spans.of_run(run)))
    return record


def only(found: list[Span], prefix: str) -> Span:
    matching = [one for one in found if one.name.startswith(prefix)]
    assert len(matching) == 1, (prefix, found)
    return matching[0]


def attempts(found: list[Span]) -> list[Span]:
    return sorted(
        (one for one in found if one.name.startswith("attempt ")), key=lambda one: one.attributes["callboard.attempt"]
    )


async def all_received(spans: Collector, trace: str, runs: int) -> list[Span]:
    """The spans of a trace once those of so many runs are there, each with what lies above it."""

    def whole() -> bool:
        found = spans.of(trace)
        ids = {one.id for one in found} | {"", CLIENT}
        return sum(one.name.startswith("run ") for one in found) == runs and {one.parent for one in found} <= ids

    await spans.until(whole)
    await asyncio.sleep(0.3)  # what would be too much gets its time to come
    found = spans.of(trace)
    assert len({one.id for one in found}) == len(found), "a span was sent twice"
    assert sum(one.name.startswith("run ") for one in found) == runs
    return found


def check_run(found: list[Span], record: RunRecord, above: str) -> None:
    """One span of the run below `above`, its attempts below it, its steps below its attempts."""
    mine = [one for one in found if one.attributes.get("callboard.run") == record.id and one.name != "POST /runs"]
    run = only(mine, "run ")
    assert (run.name, run.parent, run.service) == (f"run {record.agent}", above, "callboard-coordinator")
    assert run.attributes["callboard.root"] == record.root
    assert run.attributes["callboard.agent"] == record.agent
    assert run.attributes["callboard.status"] == record.status
    assert run.attributes["callboard.attempts"] == record.attempt
    assert run.attributes.get("callboard.parent") == record.parent
    assert run.start / 1e9 == pytest.approx(record.created_at.timestamp(), abs=1e-5)
    assert record.ended_at is not None
    assert run.end / 1e9 == pytest.approx(record.ended_at.timestamp(), abs=1e-5)
    tries = attempts(mine)
    assert [one.attributes["callboard.attempt"] for one in tries] == list(range(1, record.attempt + 1))
    for one in tries:
        assert (one.parent, one.name, one.service) == (run.id, f"attempt {record.agent}", "callboard-worker")
        assert run.start <= one.start <= one.end <= run.end
    for step in (one for one in mine if one.name.startswith("step ")):
        attempt = tries[step.attributes["callboard.attempt"] - 1]
        assert step.parent == attempt.id
        assert attempt.start <= step.start <= step.end <= attempt.end
        assert step.name == f"step {step.attributes['callboard.step']}"
        assert step.attributes["callboard.root"] == record.root


async def test_a_tree_of_runs_is_one_trace_from_the_client_over_the_gateway_to_every_step(
    nats: ServerProcess, tmp_path: Path, spans: Collector
) -> None:
    async with traced(nats, tmp_path, spans) as (whole, url):
        root = await post(url, {"agent": "trunk", "input": 3}, traceparent=TRACEPARENT)
        await ended(whole, spans, root)
        found = await all_received(spans, TRACE, runs=6)
        records = await EventLog(whole.bus).tree(root)
        assert len(records) == 6
        assert {one.attributes.get("callboard.root") for one in found if one.name != "POST /runs"} == {root}, found

        request = only(found, "POST /runs")
        assert (request.parent, request.kind, request.service) == (CLIENT, "server", "callboard-gateway")
        assert request.attributes["callboard.run"] == root
        above = {root: request.id}
        for record in records:
            parents = attempts([one for one in found if one.attributes.get("callboard.run") == record.parent])
            if record.parent is not None:
                assert only(
                    [one for one in found if one.attributes.get("callboard.run") == record.id], "run "
                ).parent in {one.id for one in parents}
                above[record.id] = next(
                    one.parent for one in found
                    if one.name.startswith("run ") and one.attributes["callboard.run"] == record.id
                )  # fmt: skip
            check_run(found, record, above[record.id])
        steps = sorted(one.attributes["callboard.step"] for one in found if one.name.startswith("step "))
        assert steps == sorted(["before", "after", *["first", "second"] * 4])
        assert {one.trace for one in spans.spans} == {TRACE}
        assert spans.paths == {"/v1/traces"}


async def test_a_suspended_and_a_retried_run_have_one_span_with_several_attempts_below(
    nats: ServerProcess, tmp_path: Path, spans: Collector
) -> None:
    async with traced(nats, tmp_path, spans) as (whole, _):
        slept = await whole.submit("sleeper", 2.6)
        retried = await whole.submit("moody", 3)
        failed = await whole.submit("hopeless", None)
        record = await ended(whole, spans, retried)
        found = await all_received(spans, only(spans.of_run(retried), "run ").trace, runs=1)
        check_run(found, record, "")
        assert outcomes(found) == ["failed", "failed", "completed"]
        assert [one.failed for one in attempts(found)] == [True, True, False]
        assert "not at attempt 1" in attempts(found)[0].message
        assert attempts(found)[0].events == ("exception",)
        assert not only(found, "run ").failed
        assert only(found, "step before").attributes["callboard.attempt"] == 1, "remembered steps are not executed"

        record = await ended(whole, spans, failed, Status.FAILED)
        found = await all_received(spans, only(spans.of_run(failed), "run ").trace, runs=1)
        check_run(found, record, "")
        assert all(one.failed for one in found)
        assert record.error is not None
        assert {one.attributes.get("error.type") for one in found if one.name.startswith(("run", "attempt"))} == {
            record.error.code
        }

        record = await ended(whole, spans, slept)
        found = await all_received(spans, only(spans.of_run(slept), "run ").trace, runs=1)
        check_run(found, record, "")
        assert outcomes(found) == ["suspended", "completed"]
        assert only(found, "step before").attributes["callboard.attempt"] == 1
        assert only(found, "step after").attributes["callboard.attempt"] == 2

        canceled = await whole.submit("nobody", None)
        await whole.submitter.command(canceled, "cancel", "not needed")
        record = await ended(whole, spans, canceled, Status.CANCELED)
        check_run(spans.of_run(canceled), record, "")
        assert not only(spans.of_run(canceled), "run ").failed
        assert len({one.trace for one in spans.spans}) == 4, "each tree has a trace of its own"


async def test_tasks_from_the_command_line_and_from_any_nats_client(
    nats: ServerProcess, tmp_path: Path, spans: Collector
) -> None:
    async with traced(nats, tmp_path, spans) as (whole, _):
        told = QUICK | {"OTEL_EXPORTER_OTLP_ENDPOINT": spans.url, "TRACEPARENT": TRACEPARENT}
        run = (await cli(whole, "run", "leaf", "1", **told)).strip()
        published = (await cli(whole, "publish", "leaves", "1", **told)).strip()
        passed_on = (await cli(whole, "publish", "leaves", "1", TRACEPARENT=TRACEPARENT)).strip()
        records = [await ended(whole, spans, one) for one in (run, published, passed_on)]
        found = await all_received(spans, TRACE, runs=3)
        for record, name in zip(records, ("callboard run leaf", "callboard publish leaves"), strict=False):
            command = only([one for one in found if one.service == "callboard-cli"], name)
            assert (command.parent, command.kind) == (CLIENT, "producer")
            check_run(found, record, command.id)
        check_run(found, records[2], CLIENT)

        bare = await nats_py.connect(nats.url)
        subject = f"{whole.settings.namespace}.task.leaves"
        other = TRACE[::-1]
        await bare.jetstream().publish(
            subject, b"1", headers={"traceparent": f"00-{other}-{CLIENT}-01", "Callboard-Run": "with"}
        )
        await bare.jetstream().publish(subject, b"1", headers={"Callboard-Run": "without"})
        await bare.jetstream().publish(subject, b"1", headers={"traceparent": "not one", "Callboard-Run": "garbage"})
        unsampled = f"00-{'ab' * 16}-{CLIENT}-00"
        await bare.jetstream().publish(subject, b"1", headers={"traceparent": unsampled, "Callboard-Run": "unsampled"})
        await bare.close()
        check_run(await received(whole, spans, "with", other), await whole.finished("with"), CLIENT)
        for name in ("without", "garbage"):
            record = await ended(whole, spans, name)
            trace = only(spans.of_run(name), "run ").trace
            check_run(await all_received(spans, trace, runs=1), record, "")
        record = await whole.finished("unsampled")
        assert record.trace is not None
        assert record.trace.startswith(f"00-{'ab' * 16}-")
        assert not spans.of_run("unsampled"), "who began the trace did not want it recorded"


async def received(whole: System, spans: Collector, run: str, trace: str) -> list[Span]:
    await ended(whole, spans, run)
    return await all_received(spans, trace, runs=1)


async def cli(whole: System, *words: str, **environment: str) -> str:
    process = await asyncio.create_subprocess_exec(
        str(CALLBOARD), *words, env=whole.environment(**environment), cwd=whole.folder,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, err = await asyncio.wait_for(process.communicate(), 30)
    assert process.returncode == 0, err.decode()
    return out.decode()


async def test_a_worker_and_a_coordinator_are_killed_and_their_successors_go_on_with_the_trace(
    nats: ServerProcess, tmp_path: Path, spans: Collector
) -> None:
    told = QUICK | {"OTEL_EXPORTER_OTLP_ENDPOINT": spans.url}
    async with system(nats.url, tmp_path) as whole:
        creator = whole.start("coordinator", **told)
        first = whole.start("worker", **told)
        await whole.ready()
        run = await whole.submit("job", {"steps": 6, "seconds": 0.3})
        await spans.until(lambda: len(spans.of_run(run)) >= 2)
        whole.kill(first)
        whole.kill(creator)
        whole.start("coordinator", **told)
        whole.start("worker", **told)
        await ended(whole, spans, run)
        await spans.until(lambda: bool(attempts(spans.of_run(run))))
        found = spans.of_run(run)
        assert len({one.trace for one in found}) == 1
        assert [one.attributes["callboard.attempt"] for one in attempts(found)] == [2]
        assert attempts(found)[0].parent == only(found, "run ").id, "fixed by one coordinator, recorded by another"
        above = {one.parent for one in found if one.name == "step slow"}
        assert len(above) == 2
        assert attempts(found)[0].id in above, "the lost attempt's span went with its process; its steps had been sent"


async def test_roles_that_record_nothing_pass_the_context_on(
    nats: ServerProcess, tmp_path: Path, spans: Collector
) -> None:
    """Only the worker records: its attempts are still one trace, below the client's span if there is one."""
    port = free_port()
    async with system(nats.url, tmp_path) as whole:
        whole.start("coordinator")
        whole.start("gateway", "--port", str(port))
        told = QUICK | {"OTEL_EXPORTER_OTLP_ENDPOINT": spans.url}
        whole.start("worker", AGENTS, PYTHONPATH=str(ROOT), **told)
        await whole.ready()
        url = f"http://127.0.0.1:{port}"
        async with httpx.AsyncClient(base_url=url) as http:
            await serving(http)
        for above, headers in (("", {}), (CLIENT, {"traceparent": TRACEPARENT})):
            root = await post(url, {"agent": "branch", "input": 2}, **headers)
            record = await whole.finished(root)
            assert (record.trace, record.trace_parent) == (headers.get("traceparent"), None)
            await spans.until(partial(has_completed, spans, root))
            top = attempts(spans.of_run(root))
            assert {one.parent for one in top} == {above}
            found = await all_received(spans, top[0].trace, runs=0)
            children = [one for one in found if one.name == "attempt leaf"]
            assert len(children) == 2
            assert {one.parent for one in children} <= {one.id for one in top}
            assert len({one.trace for one in spans.spans}) == (2 if headers else 1)


def has_completed(spans: Collector, run: str) -> bool:
    return "completed" in outcomes(spans.of_run(run))


def outcomes(found: list[Span]) -> list[str]:
    return [one.attributes["callboard.outcome"] for one in attempts(found)]


async def test_without_the_variables_nothing_is_recorded_and_nothing_imported(
    nats: ServerProcess, tmp_path: Path, spans: Collector
) -> None:
    async with system(nats.url, tmp_path) as whole:
        whole.start("coordinator")
        whole.start("worker")
        await whole.ready()
        record = await whole.finished(await whole.submit("plus", 1))
        assert (record.trace, record.trace_parent) == (None, None)
        assert not spans.spans
    program = (
        "import sys, callboard.cli, callboard.runtime.telemetry as t; t.set_up_telemetry('worker')(); "
        "sys.exit(any(name.startswith('opentelemetry.sdk') for name in sys.modules))"
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    assert subprocess.run([sys.executable, "-c", program], env=environment, timeout=30).returncode == 0


async def test_a_collector_that_is_away_costs_no_run_and_no_orderly_end(nats: ServerProcess, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # the kernel takes connections; nobody ever answers
        await check_unharmed(nats, tmp_path, silent.getsockname()[1])


async def check_unharmed(nats: ServerProcess, folder: Path, silent: int) -> None:
    async with system(nats.url, folder) as whole:
        away = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{silent}"} | QUICK
        nothing = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{free_port()}"} | QUICK
        coordinator = whole.start("coordinator", **away)
        worker = whole.start("worker", **nothing)
        await whole.ready()
        for _ in range(3):
            assert (await whole.finished(await whole.submit("plus", 1))).status is Status.COMPLETED
        for name in (worker, coordinator):
            began = time.monotonic()
            assert whole.stop(name) == 0
            assert time.monotonic() - began < 6
            assert "Traceback" not in whole.log(name)
