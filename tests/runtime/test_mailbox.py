"""The mailbox: order within a key, concurrency over keys, bounds, and an orderly end."""

import asyncio

import pytest

from callboard.runtime.mailbox import Mailbox

Item = tuple[str, int]


class Recorder:
    """A handler that waits for its gate and remembers what ran when."""

    def __init__(self) -> None:
        self.started: list[Item] = []
        self.ended: list[tuple[Item, BaseException | None]] = []
        self.gates: dict[Item, asyncio.Event] = {}
        self.running = 0
        self.most = 0

    async def handle(self, item: Item) -> None:
        self.started.append(item)
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            if item in self.gates:
                await self.gates[item].wait()
            else:
                await asyncio.sleep(0)
            if item[1] < 0:
                raise ValueError(item)
        finally:
            self.running -= 1

    def done(self, item: Item, error: BaseException | None) -> None:
        self.ended.append((item, error))


def mailbox(recorder: Recorder, capacity: int = 1000, concurrency: int = 100) -> Mailbox[Item]:
    return Mailbox(recorder.handle, recorder.done, capacity, concurrency)


async def test_one_at_a_time_and_in_order_within_a_key() -> None:
    recorder = Recorder()
    box = mailbox(recorder)
    for n in range(50):
        for key in ("a", "b", "c"):
            box.put(key, (key, n))
    assert await box.join(5)
    for key in ("a", "b", "c"):
        assert [n for k, n in recorder.started if k == key] == list(range(50))
    assert recorder.most == 3


async def test_a_slow_key_does_not_hold_up_the_others() -> None:
    recorder = Recorder()
    box = mailbox(recorder)
    gate = recorder.gates["slow", 0] = asyncio.Event()
    box.put("slow", ("slow", 0))
    box.put("slow", ("slow", 1))
    box.put("quick", ("quick", 0))
    await asyncio.sleep(0.01)
    assert ("quick", 0) in recorder.started
    assert ("slow", 1) not in recorder.started
    gate.set()
    assert await box.join(5)
    assert recorder.started[-1] == ("slow", 1)


async def test_no_more_keys_at_once_than_the_concurrency() -> None:
    recorder = Recorder()
    box = mailbox(recorder, concurrency=4)
    for n in range(40):
        box.put(f"k{n}", (f"k{n}", n))
    assert await box.join(5)
    assert recorder.most == 4
    assert len(recorder.ended) == 40


async def test_without_a_key_all_start_at_once() -> None:
    recorder = Recorder()
    box = mailbox(recorder, concurrency=1)
    for n in range(20):
        box.put(None, ("", n))
    assert await box.join(5)
    assert recorder.most == 20


async def test_room_counts_what_runs_waits_and_is_reserved() -> None:
    recorder = Recorder()
    box = mailbox(recorder, capacity=10)
    recorder.gates["a", 0] = asyncio.Event()
    box.put("a", ("a", 0))
    box.put("a", ("a", 1))
    assert (box.room, len(box)) == (8, 2)
    assert box.reserve(20) == 8
    assert (box.room, box.is_full) == (0, False)
    box.reserve(-8)
    recorder.gates["a", 0].set()
    assert await box.join(5)
    assert box.room == 10


async def test_a_failure_is_told_and_the_next_of_the_key_goes_on() -> None:
    recorder = Recorder()
    box = mailbox(recorder)
    box.put("a", ("a", -1))
    box.put("a", ("a", 2))
    assert await box.join(5)
    assert [(item, type(error)) for item, error in recorder.ended] == [
        (("a", -1), ValueError),
        (("a", 2), type(None)),
    ]


async def test_close_returns_what_had_not_started_and_lets_the_rest_end() -> None:
    recorder = Recorder()
    box = mailbox(recorder)
    gate = recorder.gates["a", 0] = asyncio.Event()
    for n in range(3):
        box.put("a", ("a", n))
    assert box.close() == [("a", 1), ("a", 2)]
    box.put("a", ("a", 3))
    assert not await box.join(0.01)
    gate.set()
    assert await box.join(5)
    assert recorder.started == [("a", 0)]


async def test_what_is_removed_never_runs_and_its_key_stays_usable() -> None:
    recorder = Recorder()
    box = mailbox(recorder, concurrency=1)
    gate = recorder.gates["a", 0] = asyncio.Event()
    box.put("a", ("a", 0))
    box.put("b", ("b", 0))
    box.put("b", ("b", 1))
    box.put("c", ("c", 0))
    assert box.remove(lambda item: item[0] == "b") == [("b", 0), ("b", 1)]
    box.put("b", ("b", 2))
    gate.set()
    assert await box.join(5)
    assert recorder.started == [("a", 0), ("c", 0), ("b", 2)]
    assert box.room == 1000


async def test_cancel_ends_what_runs() -> None:
    recorder = Recorder()
    box = mailbox(recorder)
    recorder.gates["a", 0] = asyncio.Event()
    box.put("a", ("a", 0))
    await asyncio.sleep(0)
    await box.cancel()
    await asyncio.sleep(0)
    assert isinstance(recorder.ended[0][1], asyncio.CancelledError)


@pytest.mark.parametrize("concurrency", [1, 3, 64])
async def test_nothing_is_lost_or_doubled_under_load(concurrency: int) -> None:
    recorder = Recorder()
    box = mailbox(recorder, capacity=10_000, concurrency=concurrency)
    for n in range(2000):
        box.put(f"k{n % 37}", (f"k{n % 37}", n))
        if n % 50 == 0:
            await asyncio.sleep(0)
    assert await box.join(10)
    assert sorted(n for _, n in recorder.started) == list(range(2000))
    assert (len(box), box.room) == (0, 10_000)
