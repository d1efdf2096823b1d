"""Messages that the broker delivers no more, because somebody has changed a consumer or terminated them."""

from __future__ import annotations

from typing import Any

import pytest

from callboard.actors.agent import agent
from callboard.actors.engine import Context
from callboard.store.deadletters import DeadLetters, Letter
from callboard.topics.bus import Bus
from callboard.topics.config import BrokerSettings
from callboard.topics.pull import Delivery, Puller
from callboard.topics.units import nanoseconds
from tests.actors.company import company, eventually, result_of


@agent("small")
async def small(ctx: Context) -> str:
    """Ends at once."""
    return "done"


async def letters(bus: Bus, count: int = 1) -> list[Letter]:
    """The dead letters, once there are so many."""
    found: list[Letter] = []

    async def there() -> bool:
        found[:] = await DeadLetters(bus).page()
        return len(found) >= count

    await eventually(there, 15, lambda: f"{count} dead letters, not {found}")
    return found


async def test_work_that_a_limited_consumer_has_given_up_is_set_aside_and_sent_anew(
    settings: BrokerSettings, bus: Bus
) -> None:
    subjects = bus.subjects
    got: list[Delivery] = []
    config: dict[str, Any] = {
        "filter_subject": f"{subjects.work}.small", "ack_wait": nanoseconds(0.2), "max_deliver": 2,
    }  # fmt: skip
    async with company(settings, bus, coordinators=2) as all_:
        foreign = Puller(bus, subjects.work_stream, "small", config, got.append, lambda: 10)
        await foreign.start()
        run = await all_.submit("small")
        letter = (await letters(bus))[0]
        assert (letter.kind, letter.letter.subject) == ("work", f"{subjects.work}.small")
        assert letter.letter.reason.code == "max_deliveries"
        assert "consumer small of stream" in letter.letter.reason.message
        assert "after 2 deliveries" in letter.letter.reason.message
        assert run.encode() in letter.letter.data

        await foreign.stop()
        await all_.worker(small)  # it declares its consumer again, without a limit
        record = await all_.ended(run, 20)
        assert result_of(record) == "done"
        assert record.dispatch > 1

        async def gone() -> bool:
            return await all_.waiting_messages(subjects.work_stream) == 0

        await eventually(gone)


async def test_a_terminated_message_is_told_of(settings: BrokerSettings, bus: Bus) -> None:
    subjects = bus.subjects
    config: dict[str, Any] = {
        "filter_subject": f"{subjects.work}.small",
        "ack_wait": nanoseconds(10),
        "max_deliver": -1,
    }

    def terminate(delivery: Delivery) -> None:
        bus.publish(delivery.reply, b"+TERM it annoyed me")

    async with company(settings, bus) as all_:
        foreign = Puller(bus, subjects.work_stream, "small", config, terminate, lambda: 10)
        await foreign.start()
        await all_.submit("small")
        letter = (await letters(bus))[0]
        await foreign.stop()
        assert letter.letter.reason.code == "terminated"
        assert "because it annoyed me" in letter.letter.reason.message


@pytest.mark.parametrize("body", [b"", b"[]", b'{"stream": 3}'])
async def test_what_is_no_advisory_is_ignored(settings: BrokerSettings, bus: Bus, body: bytes) -> None:
    async with company(settings, bus, [small]) as all_:
        bus.publish(f"$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.{bus.subjects.inbox}.x", body)
        assert result_of(await all_.run("small")) == "done"
