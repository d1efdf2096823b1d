"""Two real coordinators on a real server under any commands: doubled, late, in any order, several at once.

After each of them the log must show what the model of DESIGN §4 (`tests/support/life.py`) says, in one of the orders in
which they may have happened; and at the end every run ends once it is driven there, and the auditor finds nothing.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable, Coroutine, Iterator
from itertools import count, pairwise
from typing import Any, ClassVar, NamedTuple

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from callboard.runtime.nats_server import ServerProcess
from callboard.store.log import decode_record
from callboard.topics.errors import StaleFence
from callboard.topics.ids import child_run_id, new_run_id, new_token
from callboard.topics.messages import (
    NOTHING,
    ChildrenRequest,
    ChildRequest,
    Claim,
    ErrorInfo,
    Outcome,
    RunRecord,
    Step,
    TaskRequest,
    UnknownEffect,
    encode,
)
from callboard.topics.messages import Command as Word
from callboard.topics.units import now
from tests.support.invariants import check
from tests.support.life import ENDED, Command, Run, World, legal
from tests.support.troupe import AGENT, Troupe

THREADS = ["t1", "t2"]
POLICIES = ["enqueue", "reject", "interrupt", "rollback", "fork", "optimistic"]
KINDS = ["completed", "failed", "timed_out", "suspended", "input_required", "released", "stopped"]
WORDS = ["wake", "due", "deadline", "starved", "cancel_deadline", "fail", "reconcile", "sweep", "child"]
LIKED: dict[str, Callable[[Run], bool]] = {
    "wake": lambda one: one.status == "waiting",
    "due": lambda one: one.backoff,
    "deadline": lambda one: one.deadline and not one.ended,
    "starved": lambda one: one.starves and one.ready,
    "cancel_deadline": lambda one: one.status == "cancel_requested",
    "reconcile": lambda one: one.status == "input_required",
}
SEEDS = st.integers(0, 2**32 - 1)
FAR_S = 7200.0
REST_S = 20.0
OVER = ("worker", "dispatch")
"""Of a run that has ended these do not matter: one that was replaced may have had its turn for a moment, or not."""
COMPARED = ("status", "attempt", "dispatch", "epoch", "failures", "losses", "worker")


class Given(NamedTuple):
    """A command as it was given, to be given again."""

    command: Command
    message: Any


class Tried(NamedTuple):
    """An attempt that was granted: it may write and end, or try to, whenever it likes."""

    run: str
    attempt: int
    epoch: int
    fence: int


class Life(RuleBasedStateMachine):
    """Some trees and threads, three workers that die and are replaced, everything that may be said to a run."""

    loop: ClassVar[asyncio.AbstractEventLoop]
    troupe: ClassVar[Troupe]
    numbers: ClassVar[Iterator[int]] = count(1)
    failures: ClassVar[list[str]] = []
    """What was wrong, with all that was said before: a second time it may happen in another order."""

    def __init__(self) -> None:
        super().__init__()
        self.worlds = [World()]
        self.records: dict[str, RunRecord] = {}
        self.given: list[Given] = []
        self.tried: list[Tried] = []
        self.mark, self.broken, self.said = new_token(6), False, list[str]()
        self.workers: list[str] = []
        for _ in range(3):
            self.hire()

    def do(self, work: Coroutine[Any, Any, Any]) -> Any:
        try:
            return self.loop.run_until_complete(work)
        except BaseException as error:
            self.broken = True
            self.failures.append("\n".join([*self.said, f"{type(error).__name__}: {error}"]))
            raise

    def hire(self) -> None:
        self.workers.append(f"w{next(self.numbers)}-{self.mark}")
        self.do(self.troupe.worker(self.workers[-1]))

    @property
    def world(self) -> World:
        return self.worlds[0]

    # -- giving -------------------------------------------------------------------------------------------------

    def happen(self, *given: Given) -> None:
        """These happen at once; then the log must show one of the worlds that may follow."""
        self.said.append("at once: " + "; ".join(str(tuple(one.command)) for one in given))
        self.given += [one for one in given if one not in self.given]
        self.worlds = [after for world in self.worlds for after in world.after_all([one.command for one in given])]
        self.do(self._happen(given))

    async def _happen(self, given: tuple[Given, ...]) -> None:
        await asyncio.gather(*(self._give(one) for one in given))
        await self._compared()

    async def _give(self, given: Given) -> None:
        troupe, message = self.troupe, given.message
        match message:
            case TaskRequest():
                await troupe.submit(message)
            case (str() as worker, Claim() as claim):
                grant = await troupe.claim(worker, claim)
                if grant.verdict == "granted" and grant.record is not None:
                    self.tried.append(Tried(claim.run, grant.record.attempt, grant.record.epoch, grant.fence))
            case Outcome():
                await troupe.end(message)
            case ChildrenRequest():
                await troupe.children(message)
            case (Word() as word, bool() as stored):
                await troupe.command(word, stored=stored)
            case str() as worker:
                await self._dies(worker)

    async def _dies(self, worker: str) -> None:
        held = [record.id for record in self.records.values() if record.worker == worker]
        await self.troupe.die(worker)
        await asyncio.gather(*(self.troupe.command(Word(run=run, verb="sweep"), stored=True) for run in held))

    async def _compared(self) -> None:
        """The log shows one of the worlds; the others are not what has happened."""
        deadline = self.loop.time() + REST_S
        wanted = {run for world in self.worlds for run in world.runs}
        while True:
            await self.troupe.at_rest()
            self.records = await self.troupe.records(wanted)
            fitting = [world for world in self.worlds if self._fits(world)]
            if fitting:
                break
            assert self.loop.time() < deadline, self._differences()
            await asyncio.sleep(0.01)
        distinct: list[World] = []
        for world in fitting:
            if world not in distinct:
                distinct.append(world)
        self.worlds = distinct
        await self._supplied()

    def _fits(self, world: World) -> bool:
        return world.runs.keys() == self.records.keys() and all(
            getattr(self.records[run], name) == getattr(one, name) or (one.ended and name in OVER)
            for run, one in world.runs.items()
            for name in COMPARED
        )

    def _differences(self) -> str:
        lines = []
        for number, world in enumerate(self.worlds):
            for run in sorted(world.runs.keys() | self.records.keys()):
                model, record = world.runs.get(run), self.records.get(run)
                told = [", ".join(str(getattr(one, name, None)) for name in COMPARED) for one in (model, record)]
                if told[0] != told[1]:
                    lines.append(f"world {number}, run {run}: expected {told[0]}; found {told[1]}; {model}")
        return "\n".join(lines)

    async def _supplied(self) -> None:
        """Work messages are where workers find them."""
        deadline = self.loop.time() + REST_S
        ready = {run: one.dispatch for run, one in self.world.runs.items() if one.ready}
        while not all(self._message(run, dispatch) for run, dispatch in ready.items()):
            assert self.loop.time() < deadline, f"no work message: {ready}"
            await asyncio.sleep(0.002)

    def _message(self, run: str, dispatch: int) -> Any:
        found = [one for one in self.troupe.arrived[run] if self.troupe.dispatch_of(one) == dispatch]
        return found[-1] if found else None

    # -- commands -----------------------------------------------------------------------------------------------

    def submitting(self, thread: str | None, policy: str, deadline: bool, starves: bool) -> Given:
        run, terms = new_run_id(), {"deadline": deadline, "starves": starves}
        name = None if thread is None else f"{self.mark}-{thread}"
        request = TaskRequest(
            agent=AGENT, run=run, thread=name, policy=policy if name else None,  # type: ignore[arg-type]
            deadline_s=FAR_S if deadline else None, wait_timeout_s=FAR_S if starves else None,
        )  # fmt: skip
        return Given(Command("submit", run, {"thread": name, "policy": policy if name else ""} | terms), request)

    def claiming(self, worker: str, run: str, delivery: Any) -> Given:
        dispatch, lease, delivered = self.troupe.dispatch_of(delivery), delivery.sequence, delivery.delivered
        given = {"worker": worker, "dispatch": dispatch, "lease": lease, "delivery": delivered}
        return Given(Command("claim", run, given), (worker, Claim(run, dispatch, lease, delivered, AGENT)))

    def ending(self, run: str, attempt: int, kind: str, retryable: bool = True, waits: tuple[str, ...] = (),
               clock: bool = False) -> Given:  # fmt: skip
        outcome = Outcome(
            run=run, attempt=attempt, kind=kind, undone=kind == "stopped",  # type: ignore[arg-type]
            waits=[[child.partition("~")[2] for child in waits]] if waits else None,
            wake_at=now().replace(year=2099) if clock else None,
            value=NOTHING if kind == "completed" else None,
            error=ErrorInfo(code="exception", message="m", retryable=retryable),
            unknown=[UnknownEffect(at=at, name=f"e{at}", key=at, attempt=attempt, n=1) for at in ("1", "2")]
            if kind == "input_required" else None,
        )  # fmt: skip
        given: dict[str, Any] = {"attempt": attempt, "kind": kind, "retryable": retryable}
        if kind in ("suspended", "input_required"):
            given |= {"waits": waits, "clock": clock}
        return Given(Command("end", run, given), outcome)

    def starting(self, tried: Tried, names: list[Any], detached: bool) -> Given:
        wanted = [ChildRequest(run=name, agent=AGENT, input=NOTHING, detached=detached) for name in names]
        request = ChildrenRequest(parent=tried.run, attempt=tried.attempt, epoch=tried.epoch, children=wanted)
        given = {"attempt": tried.attempt, "epoch": tried.epoch, "names": names, "detached": detached}
        return Given(Command("children", tried.run, given), request)

    def saying(self, run: str, verb: str, stored: bool, **given: Any) -> Given:
        fields = dict(given)
        if verb == "reconcile":
            fields |= {"happened": True}
        return Given(Command(verb, run, given), (Word(run=run, verb=verb, **fields), stored))

    # -- rules --------------------------------------------------------------------------------------------------
    # What is drawn is a number, and the choice follows from it: what there is to choose from is the broker's.

    @initialize(seed=SEEDS)
    def begin(self, seed: int) -> None:
        """Two roots at work, one with children, one in a thread."""
        self.chance = random.Random(seed)
        for thread in (None, THREADS[0]):
            given = self._a_submit(thread)
            self.happen(given)
            run = given.command.run
            if self.world.runs[run].ready:
                self.happen(self.claiming(self.workers[0], run, self._message(run, self.world.runs[run].dispatch)))
        if self.tried:
            self.happen(self._some_children())

    @rule(seed=SEEDS)
    def one_thing(self, seed: int) -> None:
        """Something happens."""
        self.chance = random.Random(seed)
        match self.chance.choices(["given", "write", "redeliver", "die"], [20, 2, 2, 1])[0]:
            case "write":
                self.write()
            case "redeliver":
                self.redeliver()
            case "die":
                self.die()
            case _:
                self.happen(self._anything())

    @rule(seed=SEEDS)
    def several_at_once(self, seed: int) -> None:
        """Two or three things at the same time, to either coordinator."""
        self.chance = random.Random(seed)
        self.happen(*(self._anything() for _ in range(self.chance.choice([2, 2, 3]))))

    def _anything(self) -> Given:
        makers = {
            self._a_submit: 3, self._a_claim: 6, self._an_end: 5, self._some_children: 3, self._a_cancel: 2,
            self._a_word: 4, self._again: 3,
        }  # fmt: skip
        (make,) = self.chance.choices(list(makers), list(makers.values()))
        return make()

    def _one_of(self, liked: Callable[[Run], bool]) -> Run:
        """A run, most often one that is liked."""
        runs = list(self.world.runs.values())
        preferred = [one for one in runs if liked(one)]
        return self.chance.choice(preferred if preferred and self.chance.random() < 0.8 else runs)

    def _an_attempt(self) -> Tried:
        """Most often one that owns its run, sometimes one that lost it long ago."""
        owning = [one for one in self.tried if self._owns(one)]
        return self.chance.choice(owning if owning and self.chance.random() < 0.7 else self.tried)

    def _owns(self, tried: Tried) -> bool:
        one = self.world.runs[tried.run]
        return one.status == "running" and one.attempt == tried.attempt

    def _a_submit(self, thread: str | None = None) -> Given:
        thread = thread or self.chance.choice([None, *THREADS])
        return self.submitting(
            thread, self.chance.choice(POLICIES), self.chance.random() < 0.3, self.chance.random() < 0.3
        )

    def _a_claim(self) -> Given:
        """A work message comes to a worker: the first time, or again; perhaps one of long ago."""
        one = self._one_of(lambda one: one.ready)
        arrived = self.troupe.arrived[one.id]
        if not arrived:
            return self.saying(one.id, "sweep", True)
        newest = arrived[-1] if self.chance.random() < 0.8 else self.chance.choice(arrived)
        return self.claiming(self.chance.choice(self.workers), one.id, newest)

    def _an_end(self) -> Given:
        """An attempt hands its outcome in."""
        if not self.tried:
            return self._a_claim()
        tried, chance = self._an_attempt(), self.chance
        kind = chance.choices(KINDS, [2, 3, 1, 4, 2, 1, 1])[0]
        children = tuple(one.id for one in self.world.runs.values() if one.parent == tried.run)
        waits = children if kind == "suspended" and chance.random() < 0.8 else ()
        return self.ending(tried.run, tried.attempt, kind, chance.random() < 0.7, waits, chance.random() < 0.5)

    def _some_children(self) -> Given:
        if not self.tried:
            return self._a_claim()
        tried, chance = self._an_attempt(), self.chance
        first = chance.randrange(3)
        names = [child_run_id(tried.run, str(one)) for one in range(first, first + chance.randint(1, 2))]
        return self.starting(tried, names, chance.random() < 0.15)

    def _a_cancel(self) -> Given:
        scope = self.chance.choice(["tree", "tree", "run", "children"])
        action = self.chance.choice(["cancel", "interrupt", "rollback"])
        run = self._one_of(lambda one: not one.ended).id
        return self.saying(run, "cancel", self.chance.random() < 0.5, scope=scope, action=action)

    def _a_word(self) -> Given:
        """Of a person, or of a timer, which may be early, late, or of another dispatch."""
        verb, back = self.chance.choice(WORDS), self.chance.choice([0, 0, 0, 1])
        one = self._one_of(LIKED.get(verb, lambda one: not one.ended))
        stored = self.chance.random() < 0.5
        match verb:
            case "due" | "starved":
                return self.saying(one.id, verb, True, dispatch=one.dispatch - back)
            case "cancel_deadline":
                return self.saying(one.id, verb, True, epoch=one.epoch - back)
            case "reconcile":
                return self.saying(one.id, verb, stored, effect=self.chance.choice(["1", "2", "3"]))
            case _:
                return self.saying(one.id, verb, stored)

    def _again(self) -> Given:
        """Something that was said before."""
        return self.chance.choice(self.given)

    # -- what is no command -------------------------------------------------------------------------------------

    def redeliver(self) -> None:
        """The message that a worker holds goes to another one, because its lease was over."""
        held = [(one, message) for one in self.world.runs.values() if one.worker
                for message in self.troupe.arrived[one.id] if message.sequence == one.lease]  # fmt: skip
        if held:
            one, message = self.chance.choice(held)
            self.do(self._redelivered(one.id, message))
            (again,) = [other for other in self.troupe.arrived[one.id] if other.sequence == message.sequence]
            self.happen(self.claiming(self.chance.choice(self.workers), one.id, again))

    async def _redelivered(self, run: str, before: Any) -> None:
        before.nak()
        async with asyncio.timeout(REST_S):
            while any(one is before for one in self.troupe.arrived[run]):
                await asyncio.sleep(0.002)

    def write(self) -> None:
        """An attempt writes into its run's log. The broker takes it if, and only if, the run is its own."""
        if not self.tried:
            return
        tried = self._an_attempt()
        step = encode(Step(at=new_token(6), name="s", attempt=tried.attempt, n=next(self.numbers)))
        self.do(self._written(tried, step))

    async def _written(self, tried: Tried, step: bytes) -> None:
        try:
            await self.troupe.log.append(tried.run, "step", step, tried.fence)
        except StaleFence:
            assert not self._owns(tried), f"{tried} owns its run and was refused: {self.records[tried.run]}"
        else:
            assert self._owns(tried), f"{tried} has lost its run and was not refused: {self.records[tried.run]}"
            wrote = Command("write", tried.run, {"attempt": tried.attempt})
            self.worlds = [after for world in self.worlds for after in world.after(wrote)]

    def die(self) -> None:
        """The process of a worker is killed."""
        worker = self.chance.choice(self.workers)
        self.workers.remove(worker)
        self.hire()
        run = next(iter(self.world.runs))
        lost = Command("lost", run, {"worker": worker})
        self.worlds = [after for world in self.worlds for after in world.after(lost)]
        self.do(self._happen((Given(lost, worker),)))

    # -- the end ------------------------------------------------------------------------------------------------

    def teardown(self) -> None:
        """Driven there, every run ends; and the log is what it must be."""
        try:
            if self.broken:
                return
            for _ in range(200):
                left = [run for run, one in self.world.runs.items() if not one.ended]
                if not left:
                    break
                moves = [move for run in left if (move := self._move(run)) is not None]
                assert moves, f"nothing brings these on: {[self.records[run] for run in left]}"
                self.happen(moves[0])
            assert all(one.ended for one in self.world.runs.values())
            self.do(self._audited())
        finally:
            self.loop.run_until_complete(self.troupe.over(self.world.runs))
            for worker in self.workers:
                self.loop.run_until_complete(self.troupe.die(worker))

    def _move(self, run: str) -> Given | None:
        """What brings the run nearer to its end, if it is its turn."""
        one = self.world.runs[run]
        if one.worker:
            return self.ending(run, one.attempt, "stopped" if one.status == "cancel_requested" else "completed")
        match one.status:
            case "queued" if one.ready:
                return self.claiming(self.workers[0], run, self._message(run, one.dispatch))
            case "queued" if one.backoff:
                return self.saying(run, "due", True, dispatch=one.dispatch)
            case "waiting" if not any(not self.world.runs[child].ended for child in one.waits):
                return self.saying(run, "wake", True)
            case "input_required":
                return self.saying(run, "reconcile", False, effect=one.asked[0])
        return None

    async def _audited(self) -> None:
        await check(self.troupe.bus, self.world.runs)
        for run in self.world.runs:
            pages = [page async for page in self.troupe.log.history(run)]
            events = [one for page in pages for one in page]
            states = [decode_record(one.data) for one in events if one.kind == "state"]
            assert [one.rev for one in states] == list(range(1, len(states) + 1))
            assert [str(one.status) in ENDED for one in states].count(True) == 1
            assert events[-1].kind == "state"
            for before, after in pairwise(states):
                assert legal(str(before.status), str(after.status)), (before, after)
                assert all(getattr(before, name) <= getattr(after, name) for name in ("attempt", "dispatch", "epoch"))
            parent = self.world.runs[run].parent
            assert states[0].parent == parent
            assert parent is None or parent in self.records


@pytest.fixture(scope="module", autouse=True)
def _installation(nats: ServerProcess) -> Iterator[None]:
    loop = Life.loop = asyncio.new_event_loop()
    Life.troupe = loop.run_until_complete(Troupe.on(nats.url, f"m{new_token(8)}"))
    yield
    loop.run_until_complete(Life.troupe.close())
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()


def test_a_second_cancel_reaches_what_the_first_one_has_left() -> None:
    """A run canceled alone has ended, and its child lives on until the tree is canceled."""
    life = Life()
    life.happen(given := life.submitting(None, "", False, False))
    run = given.command.run
    life.happen(life.claiming(life.workers[0], run, life._message(run, 1)))
    child = child_run_id(run, "0")
    life.happen(life.starting(life.tried[0], [child], False))
    life.happen(life.saying(run, "cancel", False, scope="run", action="cancel"))
    life.happen(life.ending(run, 1, "stopped"))
    assert (life.world.runs[run].status, life.world.runs[child].status) == ("canceled", "queued")
    for _ in range(2):
        life.happen(life.saying(run, "cancel", False, scope="tree", action="interrupt"))
        assert life.world.runs[child].status == "interrupted"
    life.teardown()


def _play(examples: int, steps: int, *, derandomize: bool) -> None:
    """Without shrinking: it would take minutes, and all that was said before a failure is told."""
    Life.failures.clear()
    asked = settings(
        max_examples=examples, stateful_step_count=steps, deadline=None, derandomize=derandomize, database=None,
        print_blob=True, suppress_health_check=list(HealthCheck), phases=[Phase.generate],
    )  # fmt: skip
    try:
        run_state_machine_as_test(Life, settings=asked)
    except Exception as error:
        raise AssertionError("\n\n".join(Life.failures) or str(error)) from error


def test_the_log_is_as_the_model_says() -> None:
    _play(25, 20, derandomize=True)


@pytest.mark.proof
@pytest.mark.timeout(1200)
def test_the_log_is_as_the_model_says_for_long() -> None:
    """New commands in each run; MACHINE_EXAMPLES says how many lives (20)."""
    _play(int(os.environ.get("MACHINE_EXAMPLES", "20")), 50, derandomize=False)
