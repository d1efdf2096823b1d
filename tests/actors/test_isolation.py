"""Steps in processes of their own: what goes in and out, and that nothing of them outlives the step."""

from __future__ import annotations

import asyncio
import functools
import logging
import os
from collections.abc import Coroutine
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from callboard.actors.agent import Retry, Terminal, agent
from callboard.actors.engine import Context, StepFailed, StepProcessFailed, StepRaised
from callboard.topics import codec
from callboard.topics.bus import Bus
from callboard.topics.config import BrokerSettings
from callboard.topics.errors import InvalidInput
from callboard.topics.messages import Status
from tests.actors import apart
from tests.actors.company import Company, company, eventually, result_of

START = datetime(2024, 2, 29, tzinfo=UTC)


def alive(pid: int) -> bool:
    """Whether the process runs (a zombie does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def pids(file: Path) -> list[int]:
    """The processes that a function has named there."""
    await eventually(file.exists, 20, lambda: "the step's process has begun")
    return [int(word) for word in file.read_text().split()]


async def gone(found: list[int]) -> None:
    await eventually(lambda: not any(map(alive, found)), 5, lambda: f"{found} have ended")


async def test_values_go_in_and_out_as_their_declared_types_and_are_journaled(
    settings: BrokerSettings, bus: Bus, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    mine: list[list[int]] = []

    @agent("typed")
    async def typed(ctx: Context) -> list[Any]:
        order = apart.Order("a", START)
        found: list[Any] = await ctx.gather(
            ctx.step(apart.typed, order, START, START, x=order, isolate="process"),
            ctx.step(apart.asynchronous, "loud", isolate="process"),
            ctx.step(apart.big, 300_000, "y" * 200_000, isolate="process"),
            ctx.step(apart.prints, isolate="process"),
        )
        mine.append(await ctx.step(apart.where, isolate="process"))
        if ctx.run.attempt == 1:
            raise ConnectionError("once more")
        return [found[0], found[1], len(found[2]), ctx.run.attempt]

    async with company(settings, bus, [typed], keeper=True) as all_:
        record = await all_.run("typed", within_s=40)
        assert result_of(record) == [{"name": "a", "year": 2026, "named": {"x": 2024}}, "LOUD", 500_000, 2]
        assert mine[0] == mine[1], "the second attempt remembers"
        assert mine[0][0] not in (os.getpid(), mine[0][1])
        assert mine[0][1] != os.getpgid(0), "a group of its own"
        assert [one.name for one in await all_.steps(record.id)].count("where") == 1
    said = [one for one in caplog.records if one.name == "callboard.agent.typed"]
    assert {"to standard output", "to standard error, without an endmine: logged"} <= {one.message for one in said}
    assert {one.run_id for one in said} == {record.id}  # type: ignore[attr-defined]
    assert sum(len(one.message) for one in said if set(one.message) == {"x"}) == 20_000


@pytest.mark.parametrize(
    ("kind", "cause", "message"),
    [
        ("plain", apart.Plain, "no"),
        ("odd", StepRaised, "Odd: 1 and 2"),
        ("file", FileNotFoundError, "[Errno 2] No such file or directory: '/nonexistent/x'"),
        ("exit", Terminal, "the step's function called sys.exit(3)"),
        ("leave", StepProcessFailed, "the process of raises ended with exit code 3 before it had a result"),
        ("crash", StepProcessFailed, "the process of raises was killed by signal 11 before it had a result"),
        ("result", codec.EncodeError, ""),
    ],
)
async def test_an_exception_comes_back_as_what_it_was(
    settings: BrokerSettings, bus: Bus, kind: str, cause: type[Exception], message: str
) -> None:
    found: list[BaseException] = []

    @agent("fails", retries=Retry(max_attempts=1))
    async def fails(ctx: Context) -> None:
        try:
            await ctx.step(apart.raises, kind, isolate="process")
        except StepFailed as error:
            found.extend([error.__cause__] if error.__cause__ else [])
            raise

    async with company(settings, bus, [fails], keeper=True) as all_:
        record = await all_.run("fails", within_s=30)
        assert record.status is Status.FAILED
        assert record.error is not None
        assert type(found[0]) is cause
        assert message in str(found[0])
        if cause is not StepProcessFailed:
            assert "apart.py" in "".join(found[0].__notes__) or kind == "result"


async def test_what_another_process_cannot_call_is_refused_where_it_is_asked_for(
    settings: BrokerSettings, bus: Bus
) -> None:
    def inner() -> None: ...

    @agent("refused")
    async def refused(ctx: Context) -> list[str]:
        said = []
        for fn in (inner, lambda: 1, functools.partial(apart.big, 1), apart.Order("a", START).__eq__, len):
            try:
                await ctx.step(fn, isolate="process")
            except InvalidInput as error:
                said.append(error.message.partition('isolate="process": it ')[2])
            except StepFailed as error:
                said.append(error.error.message)
        for args in ((), (ctx,)):
            try:
                await ctx.step(apart.asynchronous, *args, isolate="process")
            except StepFailed as error:
                said.append(type(error.__cause__).__name__)
        return said

    async with company(settings, bus, [refused], keeper=True) as all_:
        said = result_of(await all_.run("refused", within_s=30))
        inside = "is defined inside a function: move it to the top level of its module"
        assert said[:2] == [inside, inside]
        assert said[2].startswith("is no function")
        assert "only what is found under its own name" in said[3]
        assert "len() takes exactly one argument" in said[4] or "missing a required argument" in said[4]
        assert said[5:] == ["TypeError", "EncodeError"]


@agent("lingering", retries=Retry(max_attempts=1))
async def lingering(ctx: Context, file: str) -> str:
    """Waits for a step that does not end."""
    await ctx.step(apart.lingers, file, isolate="process")
    return "not reached"


async def test_a_cancel_kills_the_process_and_what_it_has_started(
    settings: BrokerSettings, bus: Bus, tmp_path: Path
) -> None:
    async with company(settings, bus, [lingering], keeper=True) as all_:
        run = await all_.submit("lingering", str(tmp_path / "a"))
        found = await pids(tmp_path / "a")
        assert all(map(alive, found))
        await all_.submitter.cancel(run)
        assert (await all_.ended(run)).status is Status.CANCELED
        await gone(found)


async def test_a_timeout_kills_it_too_and_the_run_goes_on(settings: BrokerSettings, bus: Bus, tmp_path: Path) -> None:
    file = tmp_path / "a"

    @agent("impatient")
    async def impatient(ctx: Context) -> str:
        for seconds in (2, 4, 8, 16):  # until there was time to begin
            step = ctx.step(apart.lingers, str(file), isolate="process", timeout=timedelta(seconds=seconds))
            with pytest.raises(StepFailed) as found:
                await step
            if file.exists():
                return type(found.value.__cause__).__name__
        return "it has not begun"

    async with company(settings, bus, [impatient], keeper=True) as all_:
        assert result_of(await all_.run("impatient", within_s=60)) == "StepTimeout"
        await gone(await pids(file))


async def test_what_a_step_leaves_behind_ends_with_it(settings: BrokerSettings, bus: Bus, tmp_path: Path) -> None:
    @agent("untidy")
    async def untidy(ctx: Context) -> str:
        return await ctx.step(apart.leaves, str(tmp_path / "a"), isolate="process")

    async with company(settings, bus, [untidy], keeper=True) as all_:
        assert result_of(await all_.run("untidy", within_s=30)) == "done"
        await gone(await pids(tmp_path / "a"))


async def test_an_attempt_that_was_fenced_off_kills_its_processes(
    settings: BrokerSettings, bus: Bus, tmp_path: Path
) -> None:
    """Also when a task of the agent's own, which nobody cancels, waits for the step."""
    tasks: list[asyncio.Task[None]] = []

    @agent("scattered", retries=Retry(max_attempts=1))
    async def scattered(ctx: Context, file: str) -> None:
        step: Coroutine[Any, Any, None] = ctx.step(apart.lingers, file, isolate="process")
        tasks.append(asyncio.create_task(step))
        while True:  # by what it writes it hears that it has lost its run
            await asyncio.sleep(0.1)
            await ctx.emit("still here")

    async with company(settings, bus, [scattered], keeper=True) as all_:
        run = await all_.submit("scattered", str(tmp_path / "a"))
        found = await pids(tmp_path / "a")
        await taken_over(all_, run)
        await gone(found)
        await all_.submitter.cancel(run)
        await asyncio.gather(*tasks, return_exceptions=True)


async def taken_over(all_: Company, run: str) -> None:
    """Has somebody else own the run: the attempt hears of it at its next write."""
    loaded = await all_.log.require(run)
    await all_.log.append_state(
        msgspec.structs.replace(loaded.record, attempt=2, rev=loaded.record.rev + 1), loaded.sequence
    )
