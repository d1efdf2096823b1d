"""The gate of an agent with limits as pure functions: slots, keys, classes, rates, and records that are late."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.actors.coordinator import gate as rules
from callboard.actors.coordinator.gate import CLASSES, Turn
from callboard.actors.limit import Limit, Rate, limits
from callboard.topics.errors import InvalidInput
from callboard.topics.messages import KEYLESS, BlobRef, Gate, Holder, Limits, Payload, Priority, Status
from tests.actors.test_transitions import NOW, queued, running

KEYS = st.sampled_from([KEYLESS, "=a", "=b", "=c"])
WAITING = st.dictionaries(st.builds(Turn, st.sampled_from(CLASSES), KEYS), st.integers(1, 6), max_size=12)
HOLDERS = st.lists(st.builds(Holder, st.uuids().map(str), st.just(1), KEYS), max_size=6)
LIMITS = st.builds(
    lambda concurrency, per_key, rate, burst: Limits(concurrency=concurrency, per_key=per_key, rate=rate, burst=burst),
    st.integers(1, 8), st.none() | st.integers(1, 3), st.none() | st.floats(0.1, 100), st.integers(1, 5),
)  # fmt: skip


@given(waiting=WAITING, holders=HOLDERS, bound=LIMITS, tokens=st.floats(0, 5))
def test_nobody_passes_who_may_not_and_nobody_waits_who_may(
    waiting: dict[Turn, int], holders: list[Holder], bound: Limits, tokens: float
) -> None:
    before = Gate(agent="a", holders=holders, tokens=tokens, filled_at=NOW)
    found = rules.turns(before, bound, waiting, NOW)
    passed = [(turn, Holder(f"new {n}", 1, turn.key)) for n, turn in enumerate(found)]
    after = rules.let_through(before, bound, passed, NOW)
    assert not found or len(after.holders) <= bound.concurrency
    keys = Counter(one.key for one in after.holders if one.key != KEYLESS)
    if bound.per_key is not None:
        assert all(keys[turn.key] <= bound.per_key for turn in found if turn.key != KEYLESS)
    if bound.rate is not None:
        assert after.tokens >= 0
    taken = Counter(found)
    assert all(taken[turn] <= waiting[turn] for turn in found)
    assert [CLASSES.index(turn.priority) for turn in found] == sorted(CLASSES.index(turn.priority) for turn in found)
    left = {turn: count - taken[turn] for turn, count in waiting.items() if count > taken[turn]}
    assert rules.turns(after, bound, left, NOW) == []


@given(
    counts=st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 30), min_size=2), rooms=st.lists(st.integers(1, 4))
)
def test_keys_take_turns(counts: dict[str, int], rooms: list[int]) -> None:
    """Whatever is let through at a time: while two keys wait, neither gets two turns more than the other."""
    current, bound = Gate(agent="a"), Limits(concurrency=1000)
    waiting: dict[Turn, int] = {Turn("normal", key): count for key, count in counts.items()}
    served: Counter[str] = Counter()
    for room in rooms:
        found = rules.turns(current, msgspec.structs.replace(bound, concurrency=room), waiting, NOW)
        for turn in found:
            served[turn.key] += 1
            waiting[turn] -= 1
            still = [served[one.key] for one, count in waiting.items() if count > 0]
            assert not still or max(still) - min(still) <= 1
        current = rules.let_through(current, None, [(turn, Holder("r", 1, turn.key)) for turn in found], NOW)
        current = msgspec.structs.replace(current, holders=[])
        waiting = {turn: count for turn, count in waiting.items() if count}


@given(steps=st.lists(st.tuples(st.floats(-2, 5), st.integers(0, 20)), max_size=40), rate=st.floats(0.5, 20))
def test_a_rate_is_kept_in_every_span_of_time(steps: list[tuple[float, int]], rate: float) -> None:
    """Also when the clock goes back a little, as between two servers."""
    bound, current, now = Limits(concurrency=1000, rate=rate, burst=3), Gate(agent="a"), NOW
    newest, begun = NOW - timedelta(days=1), []
    for seconds, wanted in steps:
        now += timedelta(seconds=seconds)
        found = rules.turns(current, bound, {Turn("normal", KEYLESS): wanted} if wanted else {}, now)
        if found:
            current = rules.let_through(current, bound, [(turn, Holder("r", 1)) for turn in found], now)
            current = msgspec.structs.replace(current, holders=[])
            newest = max(newest, now)
            begun += [newest] * len(found)
    for first in begun:
        for last in begun:
            if last >= first:
                count = sum(first <= one <= last for one in begun)
                assert count <= 3 + rate * (last - first).total_seconds() + 1e-6


@pytest.mark.parametrize(
    ("record", "holds", "waits"),
    [
        (queued(), True, True),
        (queued(dispatch=0), True, True),
        (queued(dispatch=2), False, False),
        (queued(wake_at=NOW), False, False),
        (running(), True, False),
        (running(status=Status.WAITING, worker=None), False, False),
        (running(status=Status.CANCEL_REQUESTED), True, False),
        (running(status=Status.CANCEL_REQUESTED, worker=None), False, False),
        (running(status=Status.COMPLETED, worker=None), False, False),
    ],
)
def test_a_slot_is_held_by_a_dispatch_that_is_queued_or_at_work(record: Any, holds: bool, waits: bool) -> None:
    assert rules.holds(record, 1) is holds
    assert rules.waits(record, 1) is waits


def test_a_release_frees_the_dispatches_up_to_it() -> None:
    current = Gate(agent="a", holders=[Holder("r", 1), Holder("r", 2), Holder("s", 1)])
    assert rules.without(current, {"r": 1}).holders == [Holder("r", 2), Holder("s", 1)]
    assert rules.without(current, {"r": 0, "x": 9}) is current


@pytest.mark.parametrize(
    ("key", "fields", "found"),
    [
        ("thread", {"thread": "t1"}, "=t1"),
        ("thread", {}, KEYLESS),
        ("metadata.tenant", {"metadata": {"tenant": "acme"}}, "=acme"),
        ("metadata.tenant", {"metadata": {"tenant": 7}}, "=7"),
        ("metadata.tenant", {"metadata": {"tenant": ["no"]}}, KEYLESS),
        ("metadata.tenant", {"metadata": {"tenant": 7.0}}, "=7"),
        ("metadata.tenant", {"metadata": {"tenant": True}}, "=True"),
        ("$.tenant", {"input": Payload(json=msgspec.Raw(b'{"tenant": "-"}'))}, "=-"),
        ("$.tenant", {"input": Payload(json=msgspec.Raw(b'{"tenant": 1e3}'))}, "=1000"),
        ("$.tenant", {"input": Payload(json=msgspec.Raw(b'{"tenant": true}'))}, "=True"),
        ("$.tenant", {"input": Payload(json=msgspec.Raw(b'{"other": 1}'))}, KEYLESS),
        ("$.tenant", {"input": Payload(json=msgspec.Raw(b"[1]"))}, KEYLESS),
        ("$.tenant", {"input": Payload(ref=BlobRef("sha256:0", 1, "blobs"))}, KEYLESS),
    ],
)
def test_where_a_key_is_found(key: str, fields: dict[str, Any], found: str) -> None:
    assert rules.key_of(Limits(concurrency=1, per_key=1, key=key), queued(**fields)) == found


def test_numbers_with_a_part_behind_the_point_are_keys() -> None:
    bound = Limits(concurrency=1, per_key=1, key="metadata.k")
    keys = [rules.key_of(bound, queued(metadata={"k": number})) for number in (1.5, 1.50, -0.25, 1e300)]
    assert KEYLESS not in keys
    assert keys[0] == keys[1]
    assert len(set(keys)) == 3


def test_a_key_that_is_no_token_becomes_one() -> None:
    bound = Limits(concurrency=1, per_key=1, key="metadata.tenant")
    keys = {rules.key_of(bound, queued(metadata={"tenant": text})) for text in ("a.b", "a.*", "ä", "x" * 200, "", "> ")}
    assert len(keys) == 6
    assert all(key.startswith("~") and key[1:].isalnum() for key in keys)


def test_classes_go_in_their_order() -> None:
    waiting: dict[Turn, int] = {Turn(priority, KEYLESS): 1 for priority in ("low", "high", "normal")}
    found = rules.turns(Gate(agent="a"), Limits(concurrency=2), waiting, NOW)
    wanted: list[Priority] = ["high", "normal"]
    assert [turn.priority for turn in found] == wanted


@pytest.mark.parametrize(
    "make",
    [
        lambda: Limit(concurrency=0),
        lambda: Limit(concurrency=1001),
        lambda: Limit(per_key=1),
        lambda: Limit(key="thread"),
        lambda: Limit(per_key=0, key="thread"),
        lambda: Limit(per_key=1, key="tenant"),
        lambda: Rate(0),
        lambda: Rate(float("nan")),
        lambda: Rate(1, per=timedelta(0)),
        lambda: Rate(1, burst=0),
    ],
)
def test_a_limit_that_is_none_is_refused_where_it_is_written(make: Any) -> None:
    with pytest.raises(InvalidInput):
        make()


def test_what_is_registered() -> None:
    assert limits(None, None) is None
    assert limits(Limit(concurrency=3), None) == Limits(concurrency=3)
    assert limits(None, Rate(120, per=timedelta(minutes=1))) == Limits(concurrency=1000, rate=2.0, burst=2)
