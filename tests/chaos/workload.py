"""What is asked of the installation while it is under faults: planned from the seed, sent by way of the proxies."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import httpx
import msgspec

from callboard.store.blobs import Blobs
from callboard.store.checkpoints import Checkpoints
from callboard.store.schedules import Schedules
from callboard.store.submit import Submitter
from callboard.topics.bus import Bus
from callboard.topics.errors import CallboardError, IllegalTransition, NotFound
from callboard.topics.ids import new_run_id
from callboard.topics.messages import Fork, Policy, TaskRequest
from tests.chaos import models
from tests.chaos.people import People
from tests.chaos.readers import Readers
from tests.chaos.stage import Stage

log = logging.getLogger(__name__)

_BETWEEN_S = 0.3
"""Mean time between two requests."""
_PATIENCE_S = 60.0
"""A client asks so long."""
_PAUSE_S = 0.25
_WEIGHTS = {
    "submit": 24, "publish": 14, "keyed": 10, "http": 14, "tree": 10, "deep": 3, "nap": 8, "cancel": 9, "flaky": 6,
    "later": 4, "pay": 7, "undo": 4, "thread": 8, "replace": 10,
    "rounds": 5, "rounds-async": 4, "rounds-exit": 4,
    "quit": 4, "asker": 9, "looper": 6, "listener": 5, "steered": 4, "fork": 8, "cruncher": 4,
}  # fmt: skip
_AGENTS = {
    "submit": "task", "keyed": "task", "later": "task", "thread": "task", "deep": "tree", "cancel": "tree",
    "pay": "payer", "undo": "payer", "replace": "payer", "quit": "rounds",
}  # fmt: skip
_CANCELED = ("cancel", "undo", "quit")
_ROUNDS = ("rounds", "rounds-async", "rounds-exit")
_ASKING = (*_ROUNDS, "asker", "looper")
_FORKED = (*_ROUNDS, "looper")
_THREADS = 5
_DESKS = 3
"""Threads in which each run replaces the one that is at work."""
SCHEDULE = "chaos-tick"
_SCHEDULE_S = 3.0


class Request(NamedTuple):
    """One request: `at` seconds after the beginning. `number` tells keys and gateways apart."""

    at: float
    kind: str
    number: int
    input: dict[str, Any]
    wait: float
    """Of a cancel: how long the tree may work before it. Of a delayed run: its delay."""


def plan(seed: int, seconds: float) -> list[Request]:
    """The requests of a run: the same for the same seed."""
    rng = random.Random(f"workload {seed}")
    found: list[Request] = []
    at = 0.0
    while (at := at + rng.expovariate(1 / _BETWEEN_S)) < seconds:
        kind = rng.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0]
        found.append(Request(at, kind, len(found), _input(kind, rng), rng.uniform(0.2, 3.0)))
    return found


def _input(kind: str, rng: random.Random) -> dict[str, Any]:
    short = {"steps": rng.randint(1, 4), "seconds": round(rng.uniform(0.01, 0.4), 3)}
    match kind:
        case "tree":
            return {"width": rng.randint(2, 5), "depth": 1} | short
        case "deep":
            return {"width": 2, "depth": rng.randint(2, 3)} | short
        case "cancel":
            return {"width": rng.randint(2, 4), "depth": rng.randint(1, 2), "steps": 600, "seconds": 0.1}
        case "nap":
            return {"seconds": round(rng.uniform(2.2, 6.0), 2)}
        case "flaky":
            return {"failures": rng.randint(1, 3)}
        case "pay":
            return {"payments": rng.randint(1, 3), "steps": 1}
        case "undo":
            return {"payments": rng.randint(1, 3), "steps": 600}
        case "replace":
            return {"payments": rng.randint(1, 2), "steps": rng.randint(1, 60)}
        case "rounds" | "rounds-async" | "rounds-exit" | "quit":
            return {"rounds": rng.randint(1, 3), "width": rng.randint(1, 4), "round": 0}
        case "asker":
            return {"questions": rng.randint(1, 4), "below": rng.random() < 0.4}
        case "looper":
            return {"turns": rng.randint(4, 16)}
        case "listener":
            return {"words": rng.randint(1, 5)}
        case "steered":
            return {"need": rng.randint(1, 4)}
        case "cruncher":
            return {"steps": rng.randint(1, 2)}
        case _:
            return short


def expected(kind: str, asked: dict[str, Any]) -> Any:
    """The result of a run that completes."""
    match kind:
        case "tree" | "deep":
            return int(asked["width"] ** asked["depth"] * asked["steps"])
        case "nap":
            return ["before", "after"]
        case "flaky":
            return "try"
        case "pay" | "undo" | "replace":
            return int(asked["payments"])
        case "rounds" | "rounds-async" | "rounds-exit" | "quit":
            return models.asked_by_rounds(asked)
        case "asker":
            return models.asked_by_asker(asked)
        case "looper":
            return models.asked_by_looper(asked)
        case "listener":
            return models.Unordered(models.words(asked["words"]))
        case "steered":
            return models.Unordered(models.words(asked["need"]), "chat")
        case _:
            return [str(index) for index in range(asked["steps"])]


@dataclass
class Promises:
    """What the installation has said yes to, and so must keep."""

    results: dict[str, Any] = field(default_factory=dict)
    """Runs that were acknowledged, with the result that each must have."""
    canceled: set[str] = field(default_factory=set)
    """Trees whose cancel was acknowledged."""
    uncanceled: set[str] = field(default_factory=set)
    """Trees whose cancel was not acknowledged in time: they are canceled once all faults are over."""
    keys: dict[str, set[str]] = field(default_factory=dict)
    """Idempotency keys, with the runs that they gave."""
    unanswered: set[str] = field(default_factory=set)
    """Runs that were asked for and never acknowledged: they may exist."""
    abandoned: set[str] = field(default_factory=set)
    """Of those without an answer, the ones that would work for minutes: they are canceled, if they exist."""
    forks: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Runs that begin from a checkpoint: of which run, and which."""
    replaceable: set[str] = field(default_factory=set)
    """Runs that another one in their thread may have ended."""
    asked: Counter[str] = field(default_factory=Counter)
    broken: list[str] = field(default_factory=list)
    """Answers that must not be."""


class Workload:
    """Sends a plan. `await run()`; what it still waits for then is given `_PATIENCE_S` seconds each."""

    def __init__(self, stage: Stage, planned: list[Request], people: People) -> None:
        self._stage, self._plan, self._people = stage, planned, people
        self.promises = Promises()
        self.readers = Readers(stage.gateways)
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Until every request has its answer, or its client has lost its patience."""
        bus = await Bus.connect(self._stage.proxied, name="chaos-client")
        http = httpx.AsyncClient(timeout=10)
        try:
            client = _Client(bus, http, self._stage.gateways, self.promises, self.readers, self._people)
            schedules = Schedules(bus)
            await client.insist(lambda: schedules.put(SCHEDULE, b'{"steps":1,"seconds":0.01}', every_s=_SCHEDULE_S,
                                                      agent="task"))  # fmt: skip
            await self._send(client)
            with suppress(NotFound):  # a removal whose answer got lost
                await client.insist(lambda: schedules.remove(SCHEDULE))
        finally:
            await http.aclose()
            await bus.close()

    async def finish(self) -> None:
        """Cancels what could not be canceled under faults. Call it when they are over."""
        bus = await Bus.connect(self._stage.broker, name="chaos-client")
        try:
            submitter = Submitter(bus, Blobs(bus))
            for run in self.promises.uncanceled:
                with suppress(IllegalTransition):  # it was stored at last, and has ended it
                    await submitter.cancel(run, reason="chaos, late")
            self.promises.canceled |= self.promises.uncanceled
            for run in self.promises.abandoned:
                with suppress(IllegalTransition, NotFound):
                    await submitter.cancel(run, reason="chaos, abandoned")
        finally:
            await bus.close()

    async def _send(self, client: _Client) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        async with asyncio.TaskGroup() as group:
            for request in self._plan:
                await asyncio.sleep(max(0.0, began + request.at - loop.time()))
                group.create_task(client.send(request))


class _Client:
    """Everybody who asks."""

    def __init__(
        self, bus: Bus, http: httpx.AsyncClient, gateways: list[str], promises: Promises, readers: Readers,
        people: People,
    ) -> None:  # fmt: skip
        blobs = Blobs(bus)
        self._submitter, self._checkpoints, self._http = Submitter(bus, blobs), Checkpoints(bus, blobs), http
        self._gateways, self._promises, self._readers, self._people = gateways, promises, readers, people
        self._sources: list[tuple[str, str, models.Asking]] = []
        """Runs that keep a state, with their agent and the result that each must have."""

    async def send(self, request: Request) -> None:
        """One request, with all that its client does about it."""
        self._promises.asked[request.kind] += 1
        match request.kind:
            case "publish":
                await self._publish(request)
            case "keyed":
                await self._keyed(request)
            case "http":
                await self._over_http(request)
            case "cancel" | "undo" | "quit":
                await self._cancel(request)
            case "fork":
                await self._fork(request)
            case _:
                await self._submit(request)

    async def insist(self, call: Any) -> Any:
        """Calls until it answers, or patience is at its end (None)."""
        try:
            async with asyncio.timeout(_PATIENCE_S):
                while True:
                    try:
                        return await call()
                    except CallboardError as error:
                        log.debug("asked again: %s", error)
                        if not error.retryable and error.code != "conflict":
                            raise
                    await asyncio.sleep(_PAUSE_S)
        except TimeoutError:
            return None

    async def _submit(self, request: Request, key: str | None = None) -> str | None:
        agent = _AGENTS.get(request.kind, request.kind)
        run = None if key else new_run_id()
        task = TaskRequest(
            agent=agent, run=run, key=key, run_at=request.wait if request.kind == "later" else None,
            metadata={"kind": request.kind},
            thread=_thread(request), policy=_policy(request),
        )  # fmt: skip
        if run is not None and request.kind in _ASKING:  # also if the answer gets lost: it may be there, and ask
            self._people.follow(run)
        value = msgspec.json.encode(request.input)
        reply = await self.insist(lambda: self._submitter.submit(task, value, 5.0))
        if reply is None:
            if run is not None:
                self._promises.unanswered.add(run)
                if request.kind in (*_CANCELED, "listener", "steered"):
                    self._promises.abandoned.add(run)
            return None
        self._promised(reply.run, request)
        if request.kind == "replace":
            self._promises.replaceable.add(reply.run)
        if request.kind in _FORKED:
            self._sources.append((reply.run, agent, self._promises.results[reply.run]))
        if request.kind in ("listener", "steered"):
            self._people.tell(reply.run, request.input["words" if request.kind == "listener" else "need"])
        return str(reply.run)

    def _promised(self, run: str, request: Request) -> None:
        self._promises.results[run] = expected("tree" if request.kind == "cancel" else request.kind, request.input)

    async def _publish(self, request: Request) -> None:
        run, value = new_run_id(), msgspec.json.encode(request.input)
        if await self.insist(lambda: self._submitter.publish("chaos", value, run=run)) is None:
            self._promises.unanswered.add(run)
        else:
            self._promised(run, request)

    async def _keyed(self, request: Request) -> None:
        """Three clients send one request under one key, two of them at once."""
        key = f"key-{request.number}"
        runs = list(await asyncio.gather(self._submit(request, key), self._submit(request, key)))
        runs.append(await self._submit(request, key))
        self._promises.keys[key] = {run for run in runs if run is not None}

    async def _over_http(self, request: Request) -> None:
        """By one gateway or the other; somebody reads the run's events from its beginning to its end."""
        key = f"http-{request.number}"
        body = {"agent": "task", "input": request.input}
        runs: set[str] = set()

        async def post() -> str | None:
            for turn in range(int(_PATIENCE_S / _PAUSE_S)):
                url = self._gateways[(request.number + turn) % len(self._gateways)]
                try:
                    answer = await self._http.post(f"{url}/runs", json=body, headers={"Idempotency-Key": key})
                except httpx.HTTPError:
                    await asyncio.sleep(_PAUSE_S)
                    continue
                if answer.status_code in (200, 202):
                    return str(answer.json()["run"])
                if answer.status_code not in (502, 503, 504):
                    self._promises.broken.append(f"POST /runs gave {answer.status_code}: {answer.text[:300]}")
                    return None
                await asyncio.sleep(_PAUSE_S)
            return None

        for _ in range(1 + request.number % 2):
            run = await post()
            if run is not None:
                runs.add(run)
                self._promised(run, request)
        self._promises.keys[key] = runs
        for run in runs:
            self._readers.follow(run, request.number)

    async def _cancel(self, request: Request) -> None:
        """Starts a tree that would work for a minute, and cancels it."""
        run = await self._submit(request)
        if run is None:
            return
        await asyncio.sleep(request.wait)
        if await self.insist(lambda: self._submitter.cancel(run, reason="chaos")) is not None:
            self._promises.canceled.add(run)
        else:
            self._promises.uncanceled.add(run)

    async def _fork(self, request: Request) -> None:
        """Begins a run from some checkpoint of one that was asked for before; that may be at work still."""
        rng = random.Random(f"fork {request.number}")
        chosen, saved = None, None
        for chosen in rng.sample(self._sources, len(self._sources)):
            saved = await self.insist(lambda run=chosen[0]: self._checkpoints.history(run))
            if saved:
                break
        if not saved or chosen is None:
            return
        source, agent, promised = chosen
        run, checkpoint = new_run_id(), rng.choice(saved).sequence
        update = None
        if rng.random() < 0.5:
            update = models.edit(agent, "fork", run)
            promised = promised._replace(notes={**promised.notes, "fork": run})
        self._promises.forks[run] = (source, checkpoint)
        self._people.follow(run)
        task = TaskRequest(run=run, fork=Fork(run=source, checkpoint=checkpoint), metadata={"kind": request.kind})
        body = None if update is None else msgspec.json.encode(update)
        if await self.insist(lambda: self._submitter.submit(task, None, 5.0, update=body)) is None:
            self._promises.unanswered.add(run)
            return
        self._people.done["forks with an edit"] += update is not None
        self._promises.results[run] = promised
        self._sources.append((run, agent, promised))


def _thread(request: Request) -> str | None:
    match request.kind:
        case "thread":
            return f"chaos-{request.number % _THREADS}"
        case "replace":
            return f"desk-{request.number % _DESKS}"
        case _:
            return None


def _policy(request: Request) -> Policy | None:
    """A replaced run is interrupted, or rolled back."""
    if request.kind != "replace":
        return None
    return "rollback" if request.number % 2 else "interrupt"
