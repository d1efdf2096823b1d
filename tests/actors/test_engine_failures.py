"""Whatever an author's code raises, and wherever: it is told, as often as the policy says and no more."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from callboard.actors.agent import Retry, Terminal, agent
from callboard.actors.engine import Context, effects
from callboard.actors.hook import Unsure, hook
from callboard.store.errors import info_of, trace_of
from callboard.topics.bus import Bus
from callboard.topics.config import BrokerSettings
from callboard.topics.errors import InvalidInput
from callboard.topics.messages import Status, encode
from tests.actors.auditing import look
from tests.actors.company import company, result_of

BAD = "cannot read a\udcff.txt"
"""A file name that is not UTF-8 comes like this into the message of an OSError."""
CALLS: Counter[str] = Counter()


class Mute(Exception):
    """Its text cannot be made."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


class Numeric(Exception):
    """Its text is no text."""

    def __str__(self) -> str:
        return 7  # type: ignore[return-value]  # noqa: PLE0307


class Own(BaseException):
    """No Exception."""


def circle() -> Exception:
    one, other = RuntimeError("one"), RuntimeError("other")
    one.__cause__, other.__cause__ = other, one
    return one


def noted() -> Exception:
    error = ValueError("with a note")
    error.add_note(BAD)
    return error


ODD: dict[str, Callable[[], BaseException]] = {
    "surrogate": lambda: RuntimeError(BAD),
    "fact": lambda: Terminal("bad", file=BAD),
    "facts of facts": lambda: Terminal("bad", files=[{"name": BAD}], **{"\udcff": 1}),
    "terminal": lambda: Terminal(BAD),
    "number": lambda: Terminal(123),  # type: ignore[arg-type]
    "object": lambda: Terminal("bad", it=object(), calls=CALLS, big=float("nan")),
    "mute": Mute,
    "numeric": Numeric,
    "group": lambda: ExceptionGroup("some", [RuntimeError(BAD), ValueError("other")]),
    "circle": circle,
    "note": noted,
    "own": lambda: Own(BAD),
    "exit": GeneratorExit,
    "stop": StopIteration,
}


pytestmark = pytest.mark.usefixtures("unlogged")


@pytest.fixture(autouse=True)
def fresh() -> None:
    CALLS.clear()


def raises(kind: str) -> None:
    CALLS[kind] += 1
    error = ODD[kind]()
    raise error


@pytest.mark.parametrize("kind", ODD)
def test_any_error_is_data_that_can_be_sent(kind: str) -> None:
    error = ODD[kind]()
    info = info_of(error)
    assert info.message
    assert encode(info)
    assert trace_of(error, 4000).encode()


@agent("odd")
async def odd(ctx: Context, task: dict[str, str]) -> None:
    kind = task["kind"]
    match task["where"]:
        case "agent":
            raises(kind)
        case "step":
            await ctx.step(raises, kind)
        case "process":
            await ctx.step(raises, kind, isolate="process")
        case "child":
            await ctx.call("odd", {"kind": kind, "where": "step"})


@pytest.mark.parametrize("where", ["agent", "step", "child"])
async def test_a_run_whose_code_raises_it_fails_once(settings: BrokerSettings, bus: Bus, where: str) -> None:
    async with company(settings, bus, [odd]) as all_:
        runs = {kind: await all_.submit("odd", {"kind": kind, "where": where}) for kind in ODD}
        for kind, run in runs.items():
            record = await all_.ended(run)
            assert (record.status, record.attempt) == (Status.FAILED, 1 if where != "child" else record.attempt), kind
            assert record.error is not None
            assert CALLS[kind] == 1, kind


async def test_a_process_that_raises_it_tells_it(settings: BrokerSettings, bus: Bus) -> None:
    async with company(settings, bus, [odd]) as all_:
        record = await all_.run("odd", {"kind": "surrogate", "where": "process"})
        assert record.error is not None
        assert record.error.message == r"cannot read a\udcff.txt"


@hook
def cannot_say(key: str) -> Any:
    if key == "unsure":
        return Unsure(BAD)
    raise RuntimeError(BAD)


@pytest.mark.parametrize("kind", [kind for kind in ODD if not isinstance(ODD[kind](), Terminal)])
async def test_an_effect_that_raises_it_is_unknown(
    settings: BrokerSettings, bus: Bus, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(effects, "_ASK_PAUSES_S", (0.0,))

    @agent("pays")
    async def pays(ctx: Context) -> None:
        await ctx.effect("pay", raises, kind, reconcile=cannot_say, key="unsure" if kind == "mute" else None)

    async with company(settings, bus, [pays]) as all_:
        run = await all_.submit("pays")
        record = await all_.reaches(run, Status.INPUT_REQUIRED)
        assert [one.name for one in record.unknown or ()] == ["pay"]
        assert CALLS[kind] == 1


async def test_an_effect_that_says_so_with_it_has_not_happened(settings: BrokerSettings, bus: Bus) -> None:
    @agent("pays")
    async def pays(ctx: Context) -> None:
        await ctx.effect("pay", raises, "fact")

    async with company(settings, bus, [pays]) as all_:
        assert (await all_.run("pays")).status is Status.FAILED


async def test_an_outcome_that_cannot_be_told_is_a_failure(settings: BrokerSettings, bus: Bus) -> None:
    """Its neighbours in the same batch are not harmed."""
    async with company(settings, bus, [odd]) as all_:
        worker = all_.members[-1].actor
        run = await all_.submit("odd", {"kind": "surrogate", "where": "agent"})
        first = await all_.ended(run)
        for value in (BAD, "x" * bus.max_payload):
            told = worker._desk._tellable(_outcome(first.id, value))
            assert told.kind == "failed"
            assert told.error is not None
            assert len(encode(told)) < 2000


def _outcome(run: str, text: str) -> Any:
    from callboard.topics.messages import ErrorInfo, Outcome

    return Outcome(run=run, attempt=1, kind="completed", error=ErrorInfo(code="x", message=text))


# -- children ---------------------------------------------------------------------------------------------------------


@agent("echo")
async def echo(ctx: Context, value: Any) -> Any:
    return value


WRONG: list[dict[str, Any]] = [
    {"metadata": {"a": "\udcff"}}, {"metadata": ["a"]}, {"metadata": {"a": object()}},
    {"metadata": {"a": "x" * 1_000_000}}, {"detached": 1}, {"unheard_of": True},
    {"thread": "a b"}, {"policy": "reject"},
]  # fmt: skip


async def test_a_child_that_cannot_be_is_refused_alone(settings: BrokerSettings, bus: Bus) -> None:
    """At once, beside siblings that are not harmed, and `check` finds nothing."""

    @agent("lead")
    async def lead(ctx: Context) -> list[str]:
        calls = [ctx.start("echo", n, **wrong) for n, wrong in enumerate(WRONG)]
        done = await ctx.gather(ctx.call("echo", "a"), *calls, ctx.call("echo", "b"), return_exceptions=True)
        return [one if isinstance(one, str) else one.code for one in done]

    async with company(settings, bus, [lead, echo]) as all_:
        found = result_of(await all_.run("lead"))
        assert (found[0], found[-1]) == ("a", "b")
        assert set(found[1:-1]) == {"encode_error", "invalid_input", "invalid_subject"}
        assert (await look(bus)).clean


async def test_metadata_of_a_child_is_carried_as_any_value(settings: BrokerSettings, bus: Bus) -> None:
    @agent("lead")
    async def lead(ctx: Context) -> str:
        child = await ctx.start("echo", 1, metadata={"file": Path("a.txt"), "every": timedelta(seconds=1)})
        await child.result()
        return child.id

    async with company(settings, bus, [lead, echo]) as all_:
        child = result_of(await all_.run("lead"))
        assert (await all_.record(child)).metadata == {"file": "a.txt", "every": "PT1S"}


async def test_an_artifact_that_has_no_bytes_is_refused_as_any_value(settings: BrokerSettings, bus: Bus) -> None:
    @agent("writes")
    async def writes(ctx: Context) -> None:
        await ctx.artifact("a.txt", BAD)

    async with company(settings, bus, [writes]) as all_:
        record = await all_.run("writes")
        assert record.error is not None
        assert record.error.code == "encode_error"
        assert "index 13" in record.error.message


# -- options of a step ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong", [{"timeout": timedelta(0)}, {"timeout": timedelta(seconds=-1)}, {"isolate": False}, {"isolate": "thread"}]
)
async def test_options_that_a_step_cannot_have(settings: BrokerSettings, bus: Bus, wrong: dict[str, Any]) -> None:
    @agent("steps")
    async def steps(ctx: Context) -> str:
        try:
            await ctx.step(raises, "mute", **wrong)
        except InvalidInput as error:
            return error.code
        return "taken"

    async with company(settings, bus, [steps]) as all_:
        assert result_of(await all_.run("steps")) == "invalid_input"
        assert not CALLS


@pytest.mark.parametrize(
    "policy",
    [Retry(max_attempts=1100, initial=timedelta(0)), Retry(max_attempts=3, factor=1e300, maximum=timedelta(0))],
)
async def test_a_step_that_is_tried_often_ends_with_its_own_error(
    settings: BrokerSettings, bus: Bus, policy: Retry
) -> None:
    async def fails() -> None:
        CALLS["fails"] += 1
        raise ConnectionError("mine")

    @agent("tries", retries=Retry(max_attempts=1))
    async def tries(ctx: Context) -> None:
        await ctx.step(fails, retries=policy)

    async with company(settings, bus, [tries]) as all_:
        record = await all_.run("tries")
        assert record.error is not None
        assert record.error.message == "mine"
        assert CALLS["fails"] == policy.max_attempts


@pytest.mark.parametrize("wrong", [{"factor": float("inf")}, {"factor": float("nan")}, {"max_attempts": 10**9},
                                   {"max_attempts": 1.5}, {"max_attempts": 0}, {"jitter": 2.0}])  # fmt: skip
def test_a_retry_that_no_registration_could_say(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        Retry(**wrong)


async def test_an_error_of_the_worker_itself_ends_the_attempt(
    settings: BrokerSettings, bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is repeated by the agent's policy, and then told."""
    from callboard.actors.engine.attempt import Attempt

    async def broken(self: Attempt) -> None:
        CALLS["broken"] += 1
        await asyncio.sleep(0)
        raise RuntimeError("of the worker")

    monkeypatch.setattr(Attempt, "execute", broken)
    quick = agent("quick", retries=Retry(max_attempts=2, initial=timedelta(0)))(echo.fn)
    async with company(settings, bus, [quick]) as all_:
        record = await all_.run("quick", 1)
        assert record.error is not None
        assert record.error.message == "of the worker"
        assert CALLS["broken"] == 2
