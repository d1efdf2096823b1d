"""The scenes of the crash tests: what is asked of an installation in which one process dies at a named point, and what
must hold after that."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import msgspec

from callboard.actors.audit import audit
from callboard.store.agents import AgentRegistry
from callboard.store.schedules import Schedules
from callboard.topics.crash import VARIABLE
from callboard.topics.ids import new_run_id
from callboard.topics.messages import Answer, Payload, RunRecord, Status
from tests.support import invariants
from tests.support.system import System, free_port, result, system

DEATH_S = 60.0
END_S = 110.0
CONCURRENCY = 2
JOB = {"steps": 2, "seconds": 0.05}
LONG = {"steps": 200, "seconds": 0.1}


@dataclass
class Asked:
    """What was asked for, by run, with the result that it must have (None: it is canceled)."""

    results: dict[str, object] = field(default_factory=dict)

    def jobs(self, *runs: str) -> None:
        """Runs of `job` with the input JOB."""
        for run in runs:
            self.results[run] = [f"{run} {step}" for step in range(JOB["steps"])]  # type: ignore[call-overload]


async def mixed(whole: System, asked: Asked) -> None:
    """Tasks on a topic, plain runs, a tree and a sleep, more of them than the worker has slots."""
    published = [new_run_id() for _ in range(2)]
    for run in published:
        await whole.submitter.publish("job", msgspec.json.encode(JOB), run=run)
    asked.jobs(*published, *[await whole.submit("job", JOB) for _ in range(2)])
    tree = await whole.submit("tree", {"width": 3, **JOB})
    nap = await whole.submit("napper", 3)
    asked.results |= {tree: 6, nap: f"{nap} awake"}


async def cancel(whole: System, asked: Asked) -> None:
    """A tree with runs that work and runs that wait for a slot is canceled; a plain run goes on."""
    tree = await whole.submit("tree", {"width": 4, **LONG})
    asked.results[tree] = None
    async with asyncio.timeout(20):
        while len(await whole.submitter._log.tree(tree)) < 5:
            await asyncio.sleep(0.05)
    await asyncio.sleep(0.3)
    await whole.submitter.cancel(tree, reason="enough")
    asked.jobs(await whole.submit("job", JOB))


async def schedule(whole: System, asked: Asked) -> None:
    """One due time, in a moment."""
    schedules = Schedules(whole.bus)
    due = await schedules.now() + timedelta(seconds=1)
    found = await schedules.put("once", msgspec.json.encode(JOB), at=due, agent="job")
    assert found.at is not None
    asked.jobs(found.run_at(found.at))


async def threads(whole: System, asked: Asked) -> None:
    """Runs that wait for one another in a thread."""
    asked.jobs(*[await whole.submit("job", JOB, thread="common") for _ in range(4)])


async def outside(whole: System, asked: Asked) -> None:
    """An effect that stays, and one that is undone when its run is canceled."""
    stays, undone = [await whole.submit("payer", seconds) for seconds in (0, 3600)]
    asked.results |= {stays: f"{stays}/0", undone: None}
    async with asyncio.timeout(DEATH_S):
        while (await invariants.load(whole.bus, undone)).status is not Status.WAITING:
            await asyncio.sleep(0.05)
    await whole.submitter.cancel(undone)


async def over_http(whole: System, asked: Asked, url: str) -> None:
    """The same request under one idempotency key until it is answered."""
    async with httpx.AsyncClient(base_url=url, timeout=10) as http, asyncio.timeout(END_S):
        while True:
            try:
                answer = await http.post("/runs", json={"agent": "job", "input": JOB}, headers={"Idempotency-Key": "k"})
            except httpx.HTTPError:
                await asyncio.sleep(0.1)
                continue
            if answer.status_code in (200, 202):
                break
            await asyncio.sleep(0.1)
    assert answer.json()["duplicate"] is True, "the first one was durable"
    asked.jobs(answer.json()["run"])


async def limited(whole: System, asked: Asked) -> None:
    """More runs than their agent may have at once, of a few keys. Before it is registered it has no limits."""
    async with asyncio.timeout(DEATH_S / 2):
        while await AgentRegistry(whole.bus).current("narrow") is None:
            await asyncio.sleep(0.05)
    asked.jobs(*[await whole.submit("narrow", JOB | {"key": n % 3}) for n in range(8)])


async def people(whole: System, asked: Asked) -> None:
    """Runs that ask: answered one by one, twice, and while a worker holds the run; some things are said as well."""
    runs = [await whole.submit("asker", number) for number in range(3)]
    for number, run in enumerate(runs):
        asked.results[run] = [number, f"{run} left", f"{run} right"]
    for name in ("left", "right"):
        for run in runs:
            await _asks(whole, run, name)
            for _ in range(2):
                await whole.submitter.resume(run, [Answer(id=name, value=Payload(json=msgspec.Raw(b"1")))])
    hearers = [await whole.submit("hearer", None) for _ in range(2)]
    for run in hearers:
        asked.results[run] = ["one", "two"]
        for word in ("one", "two"):
            for _ in range(2):
                await whole.submitter.say(run, Payload(json=msgspec.Raw(f'"{word}"'.encode())), key=word)


async def _asks(whole: System, run: str, name: str) -> None:
    async with asyncio.timeout(DEATH_S):
        while not any(one.id == name for one in (await invariants.load(whole.bus, run)).interrupts or ()):
            await asyncio.sleep(0.05)


async def states(whole: System, asked: Asked) -> None:
    """A graph with parallel nodes, and a function that saves its state."""
    woven = await whole.submit("weaver", {"rounds": 3})
    kept = await whole.submit("keeper", 6)
    done = [f"{woven} {turn} {node}" for turn in range(3) for node in ("first", "left", "right")]
    asked.results[woven] = {"done": done}
    asked.results[kept] = [f"{kept} {index}" for index in range(6)]


Load = Callable[[System, Asked], Coroutine[Any, Any, None]]
SCENES: dict[str, tuple[Load, int]] = {
    "coordinator.before-ack.task": (mixed, 1),
    "coordinator.before-ack.command": (mixed, 2),
    "coordinator.before-submit-reply": (mixed, 2),
    "coordinator.after-create": (mixed, 3),
    "coordinator.after-join": (threads, 2),
    "coordinator.after-leave": (threads, 1),
    "coordinator.after-gate": (limited, 2),
    "coordinator.after-hand-over": (limited, 2),
    "coordinator.before-grant": (mixed, 3),
    "coordinator.before-effects.queued": (mixed, 1),
    "coordinator.before-effects.waiting": (mixed, 1),
    "coordinator.before-effects.cancel_requested": (cancel, 1),
    "coordinator.before-effects.completed": (mixed, 2),
    "coordinator.before-effects.canceled": (cancel, 1),
    "coordinator.before-verdict": (mixed, 3),
    "coordinator.before-children-reply": (mixed, 1),
    "coordinator.before-effects.input_required": (people, 2),
    "coordinator.after-resume": (people, 2),
    "coordinator.after-said": (people, 2),
    "coordinator.cancel-one": (cancel, 3),
    "coordinator.before-root-ends": (cancel, 1),
    "coordinator.between-timer-and-run": (schedule, 1),
    "worker.after-claim": (mixed, 3),
    "worker.before-step-write": (mixed, 2),
    "worker.after-step-write": (mixed, 2),
    "worker.after-effect-claim": (outside, 2),
    "worker.before-effect-settle": (outside, 2),
    "worker.after-effect-settle": (outside, 1),
    "worker.before-compensation": (outside, 1),
    "worker.before-compensation-settle": (outside, 1),
    "worker.before-answer-taken": (people, 2),
    "worker.after-answer-taken": (people, 2),
    "worker.before-checkpoint-write": (states, 5),
    "worker.after-checkpoint-write": (states, 4),
    "worker.before-note-write": (states, 2),
    "worker.after-note-write": (states, 2),
    "worker.before-children": (mixed, 1),
    "worker.after-children": (mixed, 1),
    "worker.before-hand-in.completed": (mixed, 2),
    "worker.before-hand-in.suspended": (mixed, 1),
    "worker.before-hand-in.stopped": (cancel, 1),
    "worker.before-ack": (mixed, 2),
    "projector.before-commit": (mixed, 1),
    "projector.after-commit": (mixed, 1),
}
"""Every point with its load, and at which pass the process dies. `gateway.before-answer` has a scene of its own."""


class Scene:
    """One installation, one process of which dies at a point."""

    def __init__(self, whole: System, point: str, at_pass: int = 1) -> None:
        self.whole, self.point = whole, point
        self.role = point.partition(".")[0]
        self._variable = {VARIABLE: f"{point}:{at_pass}"}
        self.asked = Asked()
        self.port = free_port() if self.role == "gateway" else 0

    def _start(self, role: str, **environment: str) -> str:
        if role == "worker":
            return self.whole.start(role, "--concurrency", str(CONCURRENCY), **environment)
        if role == "projector":
            return self.whole.start(role, "--projection", str(self.projection), **environment)
        if role == "gateway":
            return self.whole.start(role, "--port", str(self.port), "--no-projector", **environment)
        return self.whole.start(role, **environment)

    @property
    def projection(self) -> Path:
        """The file of a projector."""
        return self.whole.folder / "projection.db"

    async def play(self, load: Load) -> None:
        """Starts the mortal process with healthy ones of the other roles; when it has died, a healthy one in its
        place."""
        for role in {"coordinator", "worker"} - {self.role}:
            self._start(role)
        mortal = self._start(self.role, **self._variable)
        loading = asyncio.create_task(load(self.whole, self.asked))
        try:
            await self._died(mortal, loading)
            self._start(self.role)
            await loading
        finally:
            loading.cancel()
        await self._hold()

    async def _died(self, mortal: str, loading: asyncio.Task[None]) -> None:
        """The process has ended by SIGKILL, and at this point."""
        process = self.whole.processes[mortal]
        async with asyncio.timeout(DEATH_S):
            while process.poll() is None:
                assert not (loading.done() and loading.exception()), loading.exception()
                await asyncio.sleep(0.05)
        self.whole.processes.pop(mortal)
        assert process.returncode == -signal.SIGKILL, self.whole.log(mortal)
        assert f"killed at crash point {self.point}, pass" in self.whole.log(mortal)

    async def _hold(self) -> None:
        """All that was asked for has ended as it must, nothing was lost, and what ran twice was under way."""
        whole, asked = self.whole, self.asked.results
        for run, expected in asked.items():
            record = await whole.finished(run, END_S)
            if expected is None:
                await self._canceled(record)
            else:
                assert (record.status, result(record)) == (Status.COMPLETED, expected), record
        found = await invariants.check(whole.bus, asked)
        executed = Counter(whole.effects())
        self._executed(executed, found)
        if self.role == "projector":
            report = await audit(whole.bus, projection=await self._projected())
            assert report.clean, report.findings

    async def _canceled(self, root: RunRecord) -> None:
        assert root.status is Status.CANCELED, root
        records = await self.whole.submitter._log.tree(root.id)
        assert {record.status for record in records} == {Status.CANCELED}, records
        before = self._lines(root.root)
        await asyncio.sleep(0.3)
        assert self._lines(root.root) == before, "something still works"

    def _lines(self, root: str) -> int:
        return sum(line.startswith(root) for line in self.whole.effects())

    def _executed(self, executed: Counter[str], found: dict[str, RunRecord]) -> None:
        """Every step of a completed job was executed; twice at most those under way in a worker that died."""
        jobs = [run for run, record in found.items() if record.agent == "job" and record.status is Status.COMPLETED]
        steps = {f"{run} {step}" for run in jobs for step in range(int(JOB["steps"]))}
        assert steps <= executed.keys(), f"never executed: {steps - executed.keys()}"
        twice = [line for line, count in executed.items() if count > 1]
        assert len(twice) <= (CONCURRENCY if self.role == "worker" else 0), f"executed again: {twice}"
        assert max(executed.values()) <= 2

    async def _projected(self) -> Path:
        for name in [name for name in self.whole.processes if name.startswith("projector")]:
            async with asyncio.timeout(END_S):
                while " keeps " not in self.whole.log(name):
                    await asyncio.sleep(0.05)
            assert self.whole.stop(name) == 0
        once = self.whole.start("projector", "--projection", str(self.projection), "--once")
        process = self.whole.processes[once]
        async with asyncio.timeout(END_S):
            while process.poll() is None:
                await asyncio.sleep(0.05)
        assert process.returncode == 0, self.whole.log(once)
        return self.projection


async def play(url: str, folder: Path, point: str) -> None:
    """Plays the scene of a point in an installation of its own."""
    async with system(url, folder) as whole:
        if point == "gateway.before-answer":
            scene = Scene(whole, point)
            await scene.play(lambda whole, asked: over_http(whole, asked, f"http://127.0.0.1:{scene.port}"))
        else:
            load, at_pass = SCENES[point]
            await Scene(whole, point, at_pass).play(load)
