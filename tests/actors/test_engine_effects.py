"""Effects: claimed before, settled after, never repeated while unknown; undone in reverse order after a cancel."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from datetime import timedelta
from functools import partial
from typing import Any

import msgspec
import pytest

from callboard.actors.agent import Retry, Terminal, agent
from callboard.actors.engine import AttemptEnded, Context, StepFailed
from callboard.actors.engine.effects import EffectCalls
from callboard.actors.hook import DidNotHappen, Done, Happened, Unsure, hook
from callboard.store.attention import Attention
from callboard.store.lineage import load_effects
from callboard.topics.bus import Bus
from callboard.topics.config import BrokerSettings
from callboard.topics.errors import IllegalTransition, InvalidInput
from callboard.topics.messages import Command, Payload, RunRecord, Status, Step
from tests.actors.company import Company, company, eventually, result_of
from tests.support import invariants

QUICK = Retry(max_attempts=3, initial=timedelta(milliseconds=10), on=(Exception,))
SOON = Retry(max_attempts=3, initial=timedelta(milliseconds=5), on=(OSError,))
LEDGER: list[str] = []
"""What was done outside, in order."""
BROKEN: Counter[str] = Counter()
"""How often a compensation still fails."""
OPEN: list[bool] = []
"""Whether slow compensations may end."""


@pytest.fixture(autouse=True)
def outside() -> None:
    LEDGER.clear()
    BROKEN.clear()
    OPEN.clear()


@hook(retries=SOON)
def undo_line(effect: Done) -> str:
    name = str(effect.args[0])
    if BROKEN[name] > 0:
        BROKEN[name] -= 1
        raise ConnectionError(f"cannot undo {name} now")
    if BROKEN[name] < 0:
        raise ValueError(f"cannot undo {name} at all")
    LEDGER.append(f"-{name} {effect.result}")
    return effect.key


@hook
async def slow_undo(effect: Done) -> None:
    LEDGER.append(f"begin -{effect.name}")
    while not OPEN:
        await asyncio.sleep(0.01)
    LEDGER.append(f"-{effect.name}")


@hook
def happened(key: str) -> Any:
    return Happened(f"found {key.rpartition('/')[2]}")


@hook
def did_not(key: str) -> Any:
    return DidNotHappen()


def line(name: str, idempotency_key: str) -> str:
    LEDGER.append(f"+{name}")
    return f"id-{name}"


async def statuses(all_: Company, run: str) -> dict[str, str]:
    """Name and status of each effect, as people see it."""
    record = await all_.record(run)
    return {one.name: one.status(record) for one in (await load_effects(all_.bus, record)).all}


async def decide(all_: Company, run: str, effect: str, happened: bool, value: Any = None) -> RunRecord:
    payload = Payload(json=msgspec.Raw(msgspec.json.encode(value))) if happened else None
    return await all_.submitter.reconcile(run, effect, happened=happened, value=payload)


async def test_an_effect_is_claimed_before_its_call_and_settled_with_what_it_returned(
    settings: BrokerSettings, bus: Bus
) -> None:
    """The key is stable and given to a function that takes it; a later attempt gets the recorded result."""
    keys: list[str] = []
    claims: list[Any] = []

    async def pay(amount: int, *, idempotency_key: str) -> dict[str, int]:
        keys.append(idempotency_key)
        claims.extend([one.status for one in await all_.told(run) if isinstance(one, Step)])
        return {"paid": amount}

    def fragile() -> str:
        if len(keys) < 2:
            keys.append("failed once")
            raise ConnectionError("later")
        return "ok"

    @agent("payer", retries=QUICK)
    async def payer(ctx: Context) -> list[Any]:
        paid = await ctx.effect("pay", pay, 5)
        named = await ctx.effect("named", line, "b", key="order-7")
        return [paid, named, await ctx.step(fragile)]

    async with company(settings, bus, [payer]) as all_:
        run = await all_.submit("payer")
        record = await all_.ended(run)
        assert result_of(record) == [{"paid": 5}, "id-b", "ok"]
        assert record.attempt == 2
        assert keys == [f"{run}/0", "failed once"]
        assert claims == ["claimed"], "durable before the call"
        assert LEDGER == ["+b"]
        found = (await load_effects(bus, record)).all
        assert [(one.name, one.key, one.status(record), one.calls) for one in found] == [
            ("pay", f"{run}/0", "settled", 1), ("named", "order-7", "settled", 1),
        ]  # fmt: skip
        assert all(one.claimed_at and one.settled_at and one.claimed_at <= one.settled_at for one in found)
        await invariants.check(bus, [run])


async def test_only_what_an_author_says_means_that_nothing_happened(settings: BrokerSettings, bus: Bus) -> None:
    """DidNotHappen, Terminal and declared types settle an effect as failed; a retry of the run calls it again."""
    calls: Counter[str] = Counter()

    def refused(what: str) -> str:
        calls[what] += 1
        if calls[what] == 1 or what == "terminal":
            raise {"did_not": DidNotHappen("503"), "declared": KeyError("no"), "terminal": Terminal("declined")}[what]
        return what

    @agent("careful", retries=QUICK)
    async def careful(ctx: Context) -> list[str]:
        caught = ""
        try:
            await ctx.effect("terminal", refused, "terminal")
        except StepFailed as error:
            caught = error.error.code
        done = await ctx.effect("did_not", refused, "did_not")
        return [caught, done, await ctx.effect("declared", refused, "declared", harmless=(LookupError,))]

    async with company(settings, bus, [careful]) as all_:
        record = await all_.run("careful")
        assert result_of(record) == ["terminal", "did_not", "declared"]
        assert calls == {"terminal": 1, "did_not": 2, "declared": 2}
        assert await statuses(all_, record.id) == {"terminal": "failed", "did_not": "settled", "declared": "settled"}
        await invariants.check(bus, [record.id])


async def test_what_raises_anything_else_is_unknown_and_waits_for_a_person(settings: BrokerSettings, bus: Bus) -> None:
    """Not called again until it is said that it did not happen; what is said to have happened is the result."""
    calls: Counter[str] = Counter()

    def lost(name: str) -> str:
        calls[name] += 1
        if calls[name] == 1:
            raise TimeoutError("the answer was lost")
        return f"called {calls[name]}"

    @agent("asker", retries=QUICK)
    async def asker(ctx: Context) -> list[str]:
        return list(await asyncio.gather(ctx.effect("a", lost, "a"), ctx.effect("b", lost, "b")))

    async with company(settings, bus, [asker]) as all_:
        run = await all_.submit("asker")
        record = await all_.reaches(run, Status.INPUT_REQUIRED)
        assert {one.name: one.at for one in record.unknown or ()} == {"a": "0", "b": "1"}
        assert "'a' (0), 'b' (1)" in (record.reason or "")
        assert record.worker is None
        assert await statuses(all_, run) == {"a": "unknown", "b": "unknown"}
        with pytest.raises(IllegalTransition, match="0 \\(a\\), 1 \\(b\\)"):
            await decide(all_, run, "c", True)
        assert (await decide(all_, run, "0", True, "seen in the bank")).status is Status.INPUT_REQUIRED
        await decide(all_, run, "b", False)
        assert (await decide(all_, run, "b", False)).id == run, "saying it twice is harmless"
        record = await all_.ended(run)
        assert result_of(record) == ["seen in the bank", "called 2"]
        assert calls == {"a": 1, "b": 2}
        found = (await load_effects(bus, record)).all
        assert {one.name: (one.status(record), one.calls) for one in found} == {
            "a": ("settled", 1),
            "b": ("settled", 2),
        }
        assert {one.name: one.settlement.by for one in found if one.settlement} == {"a": "person", "b": "call"}
        await invariants.check(bus, [run])


@pytest.mark.parametrize("answer", ["happened", "did_not", "unsure", "raises", "nonsense"])
async def test_the_reconcile_hook_is_asked_first(settings: BrokerSettings, bus: Bus, answer: str) -> None:
    calls: list[str] = []
    asked: list[str] = []

    def pay() -> str:
        calls.append("pay")
        if len(calls) == 1:
            raise ConnectionResetError("in the middle")
        return "paid"

    async def look(key: str) -> Any:
        asked.append(key)
        if answer == "raises":
            raise OSError("the bank is down")
        found = {"happened": Happened("found"), "did_not": DidNotHappen, "unsure": Unsure("who knows")}
        return found.get(answer, "yes")

    @agent("payer", retries=QUICK)
    async def payer(ctx: Context) -> str:
        return await ctx.effect("pay", pay, reconcile=look)

    async with company(settings, bus, [payer], keeper=True) as all_:
        run = await all_.submit("payer")
        if answer in ("happened", "did_not"):
            record = await all_.ended(run)
            assert result_of(record) == {"happened": "found", "did_not": "paid"}[answer]
            assert len(calls) == {"happened": 1, "did_not": 2}[answer]
        else:
            record = await all_.reaches(run, Status.INPUT_REQUIRED)
            assert len(calls) == 1
            why = {"unsure": "who knows", "raises": "the bank is down", "nonsense": "returned str"}[answer]
            assert why in (record.reason or ""), "whoever has to decide is told what the hook has said"
            assert record.error is None
        assert set(asked) == {f"{run}/0"}


async def test_worker_killed_in_the_call_leaves_the_effect_unknown(settings: BrokerSettings, bus: Bus) -> None:
    """Another worker asks the hook of one, and a person about the other; neither is called again before."""
    held = asyncio.Event()

    async def pay(name: str) -> str:
        LEDGER.append(f"+{name}")
        if len(LEDGER) < 2:
            await held.wait()
        return name

    @agent("payer")
    async def payer(ctx: Context, hooked: bool) -> str:
        return await ctx.effect("pay", pay, "x", reconcile=happened if hooked else None)

    async with company(settings, bus, [payer]) as all_:
        for hooked in (True, False):
            LEDGER.clear()
            run = await all_.submit("payer", hooked)
            await eventually(lambda: LEDGER == ["+x"])
            assert await statuses(all_, run) == {"pay": "claimed"}
            await all_.members[-1].kill()
            await all_.worker(payer)
            if hooked:
                assert result_of(await all_.ended(run)) == "found 0"
            else:
                await all_.reaches(run, Status.INPUT_REQUIRED)
                assert await statuses(all_, run) == {"pay": "unknown"}
                await decide(all_, run, "pay", False)
                assert result_of(await all_.ended(run)) == "x"
            assert ["+x"] * (1 if hooked else 2) == LEDGER
            await invariants.check(bus, [run])


async def test_a_process_that_dies_before_it_makes_a_call_again_leaves_that_to_the_next(
    settings: BrokerSettings, bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its hook has said that nothing happened, and that stands in the log: it is no failure of the run."""
    claim, about_to = EffectCalls._claim, asyncio.Event()

    async def pay(idempotency_key: str) -> str:
        if not about_to.is_set():
            LEDGER.append("asked")
            await asyncio.Event().wait()
        return "paid"

    async def stands(self: EffectCalls, *args: Any) -> None:
        about_to.set()
        await asyncio.Event().wait()

    @agent("payer", retries=Retry(max_attempts=1))
    async def payer(ctx: Context) -> str:
        return await ctx.effect("pay", pay, reconcile=did_not)

    async with company(settings, bus, [payer]) as all_:
        run = await all_.submit("payer")
        await eventually(lambda: LEDGER == ["asked"])
        monkeypatch.setattr(EffectCalls, "_claim", stands)
        await all_.members[-1].kill()
        await all_.worker(payer)
        await asyncio.wait_for(about_to.wait(), 10)
        monkeypatch.setattr(EffectCalls, "_claim", claim)
        await all_.members[-1].kill()
        await all_.worker(payer)
        record = await all_.ended(run)
        assert (result_of(record), record.losses, record.failures) == ("paid", 2, 0)
        await invariants.check(bus, [run])


# -- undo -------------------------------------------------------------------------------------------------------


@agent("buyer")
async def buyer(ctx: Context, how: str) -> None:
    """Three effects, the second without a compensation; then it works, waits, or sleeps."""
    await ctx.effect("a", line, "a", compensate=undo_line)
    await ctx.effect("plain", line, "plain")
    await ctx.effect("c", line, "c", compensate=undo_line)
    if how == "sleeps":
        await ctx.sleep(timedelta(hours=1))
    await asyncio.Event().wait()


@pytest.mark.parametrize("how", ["works", "sleeps", "killed"])
@pytest.mark.parametrize(
    ("action", "status"),
    [("cancel", Status.CANCELED), ("rollback", Status.ROLLED_BACK), ("interrupt", Status.INTERRUPTED)],
)
async def test_cancel_and_rollback_undo_in_reverse_order_and_an_interrupt_keeps(
    settings: BrokerSettings, bus: Bus, how: str, action: Any, status: Status
) -> None:
    """Whoever holds the run at that moment, and also when nobody does."""
    async with company(settings, bus, [buyer], patience_s=0.05) as all_:
        run = await all_.submit("buyer", how)
        await eventually(lambda: len(LEDGER) == 3)
        if how == "sleeps":
            await all_.reaches(run, Status.WAITING)
        else:
            await asyncio.sleep(0.1)
        if how == "killed":
            await all_.members[-1].kill()
        await all_.submitter.cancel(run, action=action, scope="run" if how == "works" else "tree")
        if how == "killed":
            await all_.worker(buyer)
        record = await all_.ended(run)
        assert record.status is status, record.reason
        kept = action == "interrupt"
        assert ["+a", "+plain", "+c", *([] if kept else ["-c id-c", "-a id-a"])] == LEDGER
        expected = "settled" if kept else "compensated"
        assert await statuses(all_, run) == {"a": expected, "plain": "settled", "c": expected}
        await invariants.check(bus, [run])


async def test_compensation_that_fails_is_listed_and_the_others_are_run(settings: BrokerSettings, bus: Bus) -> None:
    """A transient failure is repeated in its place; another one is said in the run's reason."""
    BROKEN.update({"c": 1, "a": -1})
    async with company(settings, bus, [buyer], patience_s=0.05) as all_:
        run = await all_.submit("buyer", "works")
        await eventually(lambda: len(LEDGER) == 3)
        await all_.submitter.cancel(run, reason="enough")
        record = await all_.ended(run)
        assert LEDGER[3:] == ["-c id-c"]
        assert await statuses(all_, run) == {"a": "compensation_failed", "plain": "settled", "c": "compensated"}
        assert record.reason == "enough; 1 compensation failed"
        attention = Attention(bus)
        await eventually(lambda: _kinds_are(attention, {run: "not_undone"}))
        await attention.drop(run)
        assert await attention.items() == []
        failed = (await load_effects(bus, record)).get("0")
        assert failed is not None
        assert failed.error is not None
        assert "at all" in failed.error.message


async def test_worker_killed_in_a_compensation_is_followed_by_one_that_goes_on(
    settings: BrokerSettings, bus: Bus
) -> None:
    """Settled compensations are not run again; the one that was under way is, with the same key."""

    @agent("buyer")
    async def buyer(ctx: Context) -> None:
        await ctx.effect("first", line, "first", compensate=slow_undo)
        await ctx.effect("second", line, "second", compensate=undo_line)
        await asyncio.Event().wait()

    async with company(settings, bus, [buyer]) as all_:
        run = await all_.submit("buyer")
        await eventually(lambda: len(LEDGER) == 2)
        await all_.submitter.cancel(run, action="rollback")
        await eventually(lambda: "begin -first" in LEDGER)
        assert await statuses(all_, run) == {"first": "compensating", "second": "compensated"}
        await all_.members[-1].kill()
        OPEN.append(True)
        await all_.worker(buyer)
        assert (await all_.ended(run)).status is Status.ROLLED_BACK
        assert LEDGER[2:] == ["-second id-second", "begin -first", "begin -first", "-first"]
        assert await statuses(all_, run) == {"first": "compensated", "second": "compensated"}
        told = [one for one in await all_.told(run) if isinstance(one, Step) and one.kind == "compensation"]
        assert {one.key for one in told} == {f"{run}/0:undo", f"{run}/1:undo"}
        await invariants.check(bus, [run])


@pytest.mark.parametrize("how", ["sync", "async", "reconcile"])
async def test_a_hook_that_hangs_does_not_keep_its_run_from_ending(
    settings: BrokerSettings, bus: Bus, how: str
) -> None:
    """It is given up after its time, called once, and what is left undone is to be seen."""
    free = threading.Event()

    def hangs(effect: Any) -> None:
        LEDGER.append("-hangs")
        free.wait()

    async def hangs_async(effect: Any) -> None:
        LEDGER.append("-hangs")
        await asyncio.Event().wait()

    hanging = hook(name=f"hanging {how}", timeout=timedelta(seconds=0.2))(hangs if how == "sync" else hangs_async)
    more: dict[str, Any] = {"reconcile": hanging} if how == "reconcile" else {"compensate": hanging}

    def stuck_once(name: str) -> str:
        LEDGER.append(f"+{name}")
        if how == "reconcile":
            free.wait()
        return name

    @agent("buyer")
    async def buyer(ctx: Context) -> None:
        await ctx.effect("a", line, "a", compensate=undo_line)
        await ctx.effect("b", stuck_once, "b", **more)
        await asyncio.Event().wait()

    async with company(settings, bus, [buyer]) as all_:
        run = await all_.submit("buyer")
        await eventually(lambda: "+b" in LEDGER)
        await all_.submitter.cancel(run)
        record = await all_.ended(run)
        free.set()
        assert (record.status, record.left) == (Status.CANCELED, True)
        assert LEDGER == ["+a", "+b", "-hangs", "-a id-a"]
        found = await statuses(all_, run)
        assert found == {"a": "compensated", "b": "unknown" if how == "reconcile" else "compensation_failed"}
        assert [one.kind for one in await Attention(bus).items()] == ["not_undone"]


class Own(BaseException):
    """No Exception."""


@pytest.mark.parametrize("raised", [asyncio.CancelledError(), Own("mine")], ids=["cancel", "own"])
async def test_a_hook_that_raises_no_exception_does_not_keep_its_run_from_ending(
    settings: BrokerSettings, bus: Bus, raised: BaseException
) -> None:
    @hook(name=f"raises {raised!r}")
    async def odd(effect: Done) -> None:
        LEDGER.append("-odd")
        raise raised

    @agent("buyer")
    async def buyer(ctx: Context) -> None:
        await ctx.effect("a", line, "a", compensate=undo_line)
        await ctx.effect("b", line, "b", compensate=odd)
        await asyncio.Event().wait()

    async with company(settings, bus, [buyer]) as all_:
        run = await all_.submit("buyer")
        await eventually(lambda: "+b" in LEDGER)
        await all_.submitter.cancel(run)
        record = await all_.ended(run, 5)
        assert (record.status, record.left) == (Status.CANCELED, True)
        assert LEDGER == ["+a", "+b", "-odd", "-a id-a"]


def test_a_hook_has_time() -> None:
    with pytest.raises(InvalidInput):
        hook(name="none", timeout=timedelta(0))


async def test_second_cancel_during_compensations_does_not_stop_them(settings: BrokerSettings, bus: Bus) -> None:
    @agent("buyer")
    async def buyer(ctx: Context) -> None:
        await ctx.effect("a", line, "a", compensate=undo_line)
        await ctx.effect("slow", line, "slow", compensate=slow_undo)
        await asyncio.Event().wait()

    async with company(settings, bus, [buyer]) as all_:
        run = await all_.submit("buyer")
        await eventually(lambda: len(LEDGER) == 2)
        await all_.submitter.cancel(run, scope="run")
        await eventually(lambda: "begin -slow" in LEDGER)
        record, _ = await all_.submitter.cancel(run, action="rollback")
        assert record.epoch == 2
        OPEN.append(True)
        assert (await all_.ended(run)).status is Status.ROLLED_BACK
        assert LEDGER[2:] == ["begin -slow", "-slow", "-a id-a"]
        await invariants.check(bus, [run])


async def test_cancel_in_the_middle_of_a_call_waits_a_moment_for_its_end_and_undoes_it(
    settings: BrokerSettings, bus: Bus
) -> None:
    """So that it is known how it went; the code does not go on after it."""
    went_on: list[str] = []

    async def pay(name: str) -> str:
        LEDGER.append(f"+{name}")
        await asyncio.sleep(0.5)
        return name

    @agent("buyer")
    async def buyer(ctx: Context) -> None:
        await ctx.effect("pay", pay, "x", compensate=undo_line)
        went_on.append("after")

    async with company(settings, bus, [buyer]) as all_:
        run = await all_.submit("buyer")
        await eventually(lambda: LEDGER == ["+x"])
        await all_.submitter.cancel(run)
        await all_.ended(run)
        assert LEDGER == ["+x", "-x x"]
        assert await statuses(all_, run) == {"pay": "compensated"}
        assert not went_on
        await invariants.check(bus, [run])


async def test_unknown_effects_of_a_canceled_run_are_asked_of_registered_hooks_and_listed(
    settings: BrokerSettings, bus: Bus
) -> None:
    """What a hook says has happened is undone; what nobody knows stays unknown, and the run's reason says so."""

    def lost(name: str) -> str:
        LEDGER.append(f"+{name}")
        raise TimeoutError("no answer")

    @agent("buyer")
    async def buyer(ctx: Context) -> None:
        unsure = ctx.effect("unsure", lost, "unsure", compensate=undo_line)
        await asyncio.gather(
            unsure, ctx.effect("hooked", line_then_stuck, "hooked", compensate=undo_line, reconcile=happened)
        )

    async def line_then_stuck(name: str) -> None:
        LEDGER.append(f"+{name}")
        await asyncio.Event().wait()

    async with company(settings, bus, [buyer]) as all_:
        run = await all_.submit("buyer")
        await eventually(lambda: len(LEDGER) == 2)
        await all_.members[-1].kill()
        await all_.submitter.cancel(run)
        await all_.worker(buyer)
        record = await all_.ended(run)
        assert record.status is Status.CANCELED
        assert sorted(LEDGER) == ["+hooked", "+unsure", "-hooked found 1"]
        assert await statuses(all_, run) == {"unsure": "unknown", "hooked": "compensated"}
        assert "1 effect is unknown" in (record.reason or "")
        await invariants.check(bus, [run])


async def test_a_run_that_waits_for_a_person_is_canceled_and_undone(settings: BrokerSettings, bus: Bus) -> None:
    def lost(name: str) -> str:
        raise TimeoutError("no answer")

    @agent("buyer")
    async def buyer(ctx: Context) -> None:
        await ctx.effect("a", line, "a", compensate=undo_line)
        await ctx.effect("lost", lost, "b")

    async with company(settings, bus, [buyer]) as all_:
        run = await all_.submit("buyer")
        await all_.reaches(run, Status.INPUT_REQUIRED)
        await all_.submitter.cancel(run)
        record = await all_.ended(run)
        assert record.status is Status.CANCELED
        assert LEDGER == ["+a", "-a id-a"]
        assert await statuses(all_, run) == {"a": "compensated", "lost": "unknown"}
        with pytest.raises(IllegalTransition):
            await decide(all_, run, "lost", True)


async def test_a_retry_owns_the_effects_of_the_run_that_it_goes_on_from(settings: BrokerSettings, bus: Bus) -> None:
    """What stands is not called again, what was undone is, under a key of its own; a cancel undoes what stands."""
    keys: list[str] = []
    BROKEN["c"] = -1

    def keyed(name: str, idempotency_key: str) -> str:
        keys.append(f"{name} {idempotency_key}")
        return line(name, idempotency_key)

    @agent("buyer")
    async def buyer(ctx: Context) -> None:
        await ctx.effect("a", keyed, "a", compensate=undo_line)
        await ctx.effect("c", keyed, "c", compensate=undo_line)
        await asyncio.Event().wait()

    async with company(settings, bus, [buyer]) as all_:
        run = await all_.submit("buyer")
        await eventually(lambda: len(LEDGER) == 2)
        await all_.submitter.cancel(run)
        await all_.ended(run)
        assert await statuses(all_, run) == {"a": "compensated", "c": "compensation_failed"}
        BROKEN.clear()
        again = (await all_.submitter.command(run, "retry")).id
        await eventually(lambda: len(LEDGER) == 4)
        assert LEDGER[2:] == ["-a id-a", "+a"]
        assert keys == [f"a {run}/0", f"c {run}/1", f"a {again}/0"]
        await eventually(lambda: statuses_are(all_, again, {"a": "settled", "c": "compensation_failed"}))
        await all_.submitter.cancel(again)
        await all_.ended(again)
        assert LEDGER[4:] == ["-a id-a"]
        assert await statuses(all_, again) == {"a": "compensated", "c": "compensation_failed"}
        await invariants.check(bus, [run, again])


async def _kinds_are(attention: Attention, expected: dict[str, str]) -> bool:
    return {item.id: str(item.kind) for item in await attention.items()} == expected


async def statuses_are(all_: Company, run: str, expected: dict[str, str]) -> bool:
    return await statuses(all_, run) == expected


async def test_effects_that_cannot_be_kept_are_refused_before_they_are_made(settings: BrokerSettings, bus: Bus) -> None:
    """A compensation that is no hook, a bad name or key, arguments that cannot be carried to a hook."""
    problems: list[str] = []

    @agent("wrong")
    async def wrong(ctx: Context) -> None:
        for options in ({"compensate": lambda effect: None}, {"key": ""}, {"key": "a\nb"}):
            with pytest.raises(InvalidInput) as caught:
                await ctx.effect("x", line, "x", **options)
            problems.append(str(caught.value))
        with pytest.raises(InvalidInput):
            await ctx.effect("", line, "x")
        with pytest.raises(Exception, match="object"):
            await ctx.effect("x", line, object(), compensate=undo_line)

    async with company(settings, bus, [wrong]) as all_:
        record = await all_.run("wrong")
        assert record.status is Status.COMPLETED, record.error
        assert "@hook" in problems[0]
        assert LEDGER == []


def test_a_hook_has_a_name_of_its_own() -> None:
    def first(effect: Done) -> None: ...

    def second(effect: Done) -> None: ...

    hook(name="hook-of-its-own")(first)
    hook(name="hook-of-its-own")(first)
    with pytest.raises(InvalidInput, match="two hooks are called"):
        hook(name="hook-of-its-own")(second)


async def test_a_context_that_has_ended_makes_no_effect(settings: BrokerSettings, bus: Bus) -> None:
    kept: list[Context] = []

    @agent("leaky")
    async def leaky(ctx: Context) -> None:
        kept.append(ctx)

    async with company(settings, bus, [leaky]) as all_:
        await all_.run("leaky")
        with pytest.raises(AttemptEnded):
            await kept[0].effect("late", line, "late")
        assert LEDGER == []


async def test_a_word_on_an_effect_travels_as_a_durable_command_too(settings: BrokerSettings, bus: Bus) -> None:
    """`cb.cmd.{run}.reconcile`, from any client."""

    def lost() -> str:
        raise TimeoutError("no answer")

    @agent("asker")
    async def asker(ctx: Context) -> str:
        return await ctx.effect("lost", lost)

    async with company(settings, bus, [asker]) as all_:
        run = await all_.submit("asker")
        await all_.reaches(run, Status.INPUT_REQUIRED)
        body = b'{"effect": "lost", "happened": true, "value": {"json": "by hand"}}'
        await bus.store(bus.subjects.command(run, "reconcile"), body)
        assert result_of(await all_.ended(run)) == "by hand"
        assert msgspec.json.decode(body, type=Command).happened


async def test_a_person_is_asked_about_any_number_of_effects(settings: BrokerSettings, bus: Bus) -> None:
    """As many at a time as have room in a record, until all are told of; none is called again."""
    many = 300

    def fails(n: int) -> int:
        LEDGER.append(f"+{n}")
        raise ConnectionError(f"{n}" + "y" * 1990)

    @agent("many")
    async def buys_many(ctx: Context) -> int:
        return len(await asyncio.gather(*(ctx.effect(f"pay{n}", fails, n) for n in range(many))))

    async with company(settings, bus, [buys_many]) as all_:
        run, told = await all_.submit("many"), set[str]()
        while len(told) < many:
            record = await all_.reaches(run, Status.INPUT_REQUIRED)
            asked = [one.at for one in record.unknown or ()]
            assert asked
            assert told.isdisjoint(asked)
            told.update(asked)
            for at in asked:
                await decide(all_, run, at, True, 1)
        assert result_of(await all_.ended(run)) == many
        assert len(LEDGER) == many


async def test_a_word_that_is_no_result_is_asked_for_again(settings: BrokerSettings, bus: Bus) -> None:
    """With the reason: had it been settled with that, the run could never go on."""

    def fails() -> int:
        LEDGER.append("+1")
        raise ConnectionError("gone")

    @agent("counts")
    async def counts(ctx: Context) -> int:
        return await ctx.effect("count", fails)

    async with company(settings, bus, [counts]) as all_:
        run = await all_.submit("counts")
        for wrong in ("abc", None, [1]):
            asked = await all_.reaches(run, Status.INPUT_REQUIRED)
            await decide(all_, run, "count", True, wrong)
            await eventually(partial(_asks_anew, all_, run, asked.attempt))
            questions = (await all_.record(run)).unknown or []
            assert ["Expected `int`" in one.why for one in questions] == [True]
        await decide(all_, run, "count", True, 7)
        assert result_of(await all_.ended(run)) == 7
        assert LEDGER == ["+1"]


async def _asks_anew(all_: Company, run: str, attempt: int) -> bool:
    record = await all_.record(run)
    return record.status is Status.INPUT_REQUIRED and record.attempt > attempt
