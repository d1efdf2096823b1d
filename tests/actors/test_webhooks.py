"""Webhooks: every event reaches its receiver at least once, signed, whatever dies or is down meanwhile."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from callboard import Context, Retry, agent
from callboard.actors.errors import WebhookRefused
from callboard.actors.webhooks import WebhookActor, WebhookSettings
from callboard.actors.webhooks.deliverer import delay_s
from callboard.actors.webhooks.signature import signature
from callboard.actors.webhooks.target import refused, target
from callboard.store.attention import Attention
from callboard.store.deadletters import DeadLetters
from callboard.store.webhooks import ENDED, Webhooks, key_of, masked, new_secret, wants
from callboard.topics.bus import Bus
from callboard.topics.config import BrokerSettings
from callboard.topics.errors import Conflict, InvalidInput, InvalidMessage, NotFound
from callboard.topics.messages import Status
from tests.support.receiver import Receiver

from .company import Company, Member, company, eventually

QUICK = WebhookSettings(delay_initial_s=0.2, delay_max_s=1.0, timeout_s=2.0, attempts=50)


@agent("fine")
async def fine(ctx: Context, number: int) -> int:
    return number


@agent("failing", retries=Retry(max_attempts=1))
async def failing(ctx: Context, number: int) -> None:
    raise ValueError("no")


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    found = Receiver(new_secret())
    found.start()
    yield found
    found.stop()


def secret_of(receiver: Receiver) -> str:
    import base64

    return "whsec_" + base64.b64encode(receiver.key).decode()


async def deliverer(found: Company, settings: WebhookSettings = QUICK) -> Member:
    return await found.join(lambda bus, _: WebhookActor(bus, settings))


@asynccontextmanager
async def serving(settings: BrokerSettings, bus: Bus) -> AsyncIterator[Company]:
    async with company(settings, bus, [fine, failing]) as found:
        await deliverer(found)
        yield found


async def test_a_receiver_is_told_of_what_it_asked_for_and_of_nothing_else(
    settings: BrokerSettings, bus: Bus, receiver: Receiver
) -> None:
    async with serving(settings, bus) as found:
        before = await found.run("fine", 0)
        await Webhooks(bus).add(
            receiver.url, name="ends", events=["run.completed", "run.failed"], secret=secret_of(receiver)
        )
        good = await found.submit("fine", 1, thread="t", metadata={"who": "x"})
        bad = await found.submit("failing", 2)
        await eventually(lambda: len(receiver.got) >= 2)
        await asyncio.sleep(0.5)
    assert {one.type for one in receiver.got} == {"run.completed", "run.failed"}
    (completed,), (failed,) = receiver.of("run.completed"), receiver.of("run.failed")
    assert before.id not in {one.data["run"] for one in receiver.got}, "what was before it was defined"
    assert (completed.data["run"], completed.data["thread"]) == (good, "t")
    assert completed.data["metadata"] == {"who": "x"}
    assert "result" not in completed.data
    assert failed.data["run"] == bad
    assert failed.data["error"] == {"code": "exception", "message": "no"}
    assert all(one.valid and one.path == "/hooks?x=1" for one in receiver.got)
    assert receiver.got[0].host == f"127.0.0.1:{receiver.port}"
    assert len({one.id for one in receiver.got}) == 2


async def test_what_waits_for_a_person_is_told_unless_something_else_is_asked_for(
    settings: BrokerSettings, bus: Bus, receiver: Receiver
) -> None:
    async with serving(settings, bus) as found:
        await found.coordinator(unserved_after_s=1.5)
        await Webhooks(bus).add(receiver.url, secret=secret_of(receiver))
        run = await found.submit("failing", 2)
        await found.submit("nobody", 1)
        letter = await DeadLetters(bus).put("task", "cb.task.x", b"{", None, InvalidMessage("not JSON"))
        await eventually(lambda: len(receiver.got) >= 3)
    assert [one.data["run"] for one in receiver.of("run.parked")] == [run]
    assert receiver.of("run.parked")[0].data["kind"] == "failed"
    assert receiver.of("agent.unserved")[0].data["queue"] == "nobody"
    assert receiver.of("deadletter")[0].data["id"] == letter
    assert len(receiver.got) == 3


async def test_a_receiver_that_is_down_for_a_while_gets_everything(
    settings: BrokerSettings, bus: Bus, receiver: Receiver
) -> None:
    async with serving(settings, bus) as found:
        await deliverer(found)
        await Webhooks(bus).add(receiver.url, events=ENDED, secret=secret_of(receiver))
        runs = {await found.submit("fine", number) for number in range(10)}
        await eventually(lambda: len(receiver.got) >= 10)
        receiver.stop()
        runs |= {await found.submit("fine", number) for number in range(30)}
        for run in runs:
            await found.ended(run)
        await asyncio.sleep(1.0)
        receiver.status = 503
        receiver.start()
        await asyncio.sleep(1.0)
        refused_ids = {one.id for one in receiver.got[10:]}
        receiver.got.clear()
        receiver.status = 200
        await eventually(lambda: len({one.data["run"] for one in receiver.got}) >= 30, 20)
        assert all(one.valid for one in receiver.got)
        assert refused_ids <= {one.id for one in receiver.got}, "tried again under the same id"
        await eventually(lambda: nothing_waits(bus))


async def nothing_waits(bus: Bus) -> bool:
    return not await Webhooks(bus).waiting()


async def test_a_receiver_that_is_down_holds_no_other_up(
    settings: BrokerSettings, bus: Bus, receiver: Receiver
) -> None:
    slow = Receiver(new_secret())
    slow.delay_s = 10
    slow.start()
    async with serving(settings, bus) as found:
        await Webhooks(bus).add(slow.url, events=["*"], secret=secret_of(slow))
        await Webhooks(bus).add("http://127.0.0.1:1/", events=["*"])
        await Webhooks(bus).add(receiver.url, events=["run.completed"], secret=secret_of(receiver))
        runs = {await found.submit("fine", number) for number in range(40)}
        await eventually(lambda: {one.data["run"] for one in receiver.got} == runs, 10)
    slow.stop()


async def test_what_nobody_takes_becomes_a_dead_letter_that_can_be_replayed(
    settings: BrokerSettings, bus: Bus, receiver: Receiver
) -> None:
    receiver.status = 500
    async with company(settings, bus, [fine]) as found:
        await deliverer(found, QUICK.model_copy(update={"attempts": 3}))
        await Webhooks(bus).add(
            receiver.url, name="bad", events=["run.completed", "deadletter"], secret=secret_of(receiver)
        )
        run = await found.submit("fine", 1)
        letters: list[Any] = []

        async def set_aside() -> bool:
            letters[:] = await DeadLetters(bus).page()
            return bool(letters)

        await eventually(set_aside)
        assert [one.data["run"] for one in receiver.got] == [run] * 3
        assert letters[0].letter.reason.code == "webhook_failed"
        assert "HTTP 500" in letters[0].letter.reason.message
        assert [item.id for item in await Attention(bus).items()] == [f"dead:{letters[0].id}"]
        await asyncio.sleep(0.5)
        assert len(receiver.got) == 3, "of its own dead letters a webhook is not told"
        receiver.status = 200
        await DeadLetters(bus).replay(letters[0].id)
        await eventually(lambda: len(receiver.got) == 4)
        assert len({one.id for one in receiver.got}) == 1
        assert all(one.valid for one in receiver.got)


async def test_a_receiver_that_is_gone_for_good_is_not_asked_again(
    settings: BrokerSettings, bus: Bus, receiver: Receiver
) -> None:
    receiver.status = 410
    async with serving(settings, bus) as found:
        await Webhooks(bus).add(receiver.url, events=["run.completed"], secret=secret_of(receiver))
        await found.submit("fine", 1)

        async def set_aside() -> bool:
            return bool(await DeadLetters(bus).page())

        await eventually(set_aside)
        assert len(receiver.got) == 1


async def test_a_receiver_is_left_alone_as_long_as_it_asks_for(
    settings: BrokerSettings, bus: Bus, receiver: Receiver
) -> None:
    receiver.status, receiver.headers = 429, {"retry-after": "2"}
    async with company(settings, bus, [fine]) as found:
        await deliverer(found, QUICK.model_copy(update={"delay_max_s": 10.0}))
        await Webhooks(bus).add(receiver.url, events=["run.completed"], secret=secret_of(receiver))
        await found.submit("fine", 1)
        await eventually(lambda: len(receiver.got) == 1)
        receiver.status = 204
        await asyncio.sleep(1.5)
        assert len(receiver.got) == 1
        await eventually(lambda: len(receiver.got) == 2)


async def test_redirects_are_not_followed(settings: BrokerSettings, bus: Bus, receiver: Receiver) -> None:
    other = Receiver(new_secret())
    other.start()
    receiver.status, receiver.headers = 302, {"location": other.url}
    async with serving(settings, bus) as found:
        await Webhooks(bus).add(receiver.url, events=["run.completed"], secret=secret_of(receiver))
        await found.submit("fine", 1)
        await eventually(lambda: len(receiver.got) >= 2)
    assert not other.got
    other.stop()


async def test_paused_it_keeps_its_events_and_changed_it_goes_elsewhere(
    settings: BrokerSettings, bus: Bus, receiver: Receiver
) -> None:
    webhooks = Webhooks(bus)
    async with serving(settings, bus) as found:
        await webhooks.add("http://127.0.0.1:1/", name="one", events=["run.completed"], secret=secret_of(receiver))
        await webhooks.change("one", paused=True)
        await asyncio.sleep(2.5)
        run = await found.submit("fine", 1)
        await found.ended(run)
        await asyncio.sleep(0.5)
        assert await webhooks.waiting() == {"one": 1}
        await webhooks.change("one", url=receiver.url, paused=False)
        await eventually(lambda: [one.data["run"] for one in receiver.got] == [run])
        assert (await webhooks.test("one")).startswith("test-")
        await eventually(lambda: len(receiver.of("webhook.test")) == 1)
        await webhooks.remove("one")
        await asyncio.sleep(2.5)
        await found.ended(await found.submit("fine", 2))
        assert await webhooks.all() == []
        assert len(receiver.got) == 2
    names = [one["name"] for one in (await bus.api(f"CONSUMER.LIST.{bus.subjects.events}") or {})["consumers"]]
    assert not [name for name in names if name.startswith("webhooks")], "without webhooks nobody reads the log for them"


async def test_events_that_come_while_no_process_delivers_are_delivered_later(
    settings: BrokerSettings, bus: Bus, receiver: Receiver
) -> None:
    async with company(settings, bus, [fine]) as found:
        await Webhooks(bus).add(receiver.url, events=["run.completed"], secret=secret_of(receiver))
        runs = {await found.submit("fine", number) for number in range(20)}
        for run in runs:
            await found.ended(run)
        await deliverer(found)
        await eventually(lambda: {one.data["run"] for one in receiver.got} == runs)


async def test_two_deliverers_share_the_work_and_one_that_dies_loses_nothing(
    settings: BrokerSettings, bus: Bus, receiver: Receiver
) -> None:
    receiver.delay_s = 0.05
    async with serving(settings, bus) as found:
        second = await deliverer(found)
        await Webhooks(bus).add(receiver.url, events=["run.completed"], secret=secret_of(receiver))
        runs = {await found.submit("fine", number) for number in range(60)}
        await eventually(lambda: len(receiver.got) > 10)
        await second.stop()
        await eventually(lambda: {one.data["run"] for one in receiver.got} == runs, 40)
        assert all(one.valid for one in receiver.got)
        assert (await found.record(next(iter(runs)))).status is Status.COMPLETED


async def test_what_cannot_be_a_webhook_is_refused(bus: Bus) -> None:
    webhooks = Webhooks(bus)
    for url in (
        "ftp://x/",
        "//x",
        "http://",
        "file:///etc/passwd",
        "http://a b/",
        "https://user:pw@x/",
        "http://x:99999/",
    ):
        with pytest.raises(InvalidInput):
            await webhooks.add(url)
    wrong: list[dict[str, Any]] = [
        {"events": ["run.nonsense"]},
        {"events": []},
        {"secret": "whsec_YQ=="},
        {"secret": "x"},
        {"name": "a.b"},
    ]
    for options in wrong:
        with pytest.raises(InvalidInput):
            await webhooks.add("https://example.org/", **options)
    await webhooks.add("https://example.org/", name="one")
    with pytest.raises(Conflict):
        await webhooks.add("https://example.org/", name="one")
    with pytest.raises(NotFound):
        await webhooks.remove("other")
    with pytest.raises(NotFound):
        await webhooks.change("other", paused=True)


def test_a_key_is_shown_by_its_end_only() -> None:
    secret = new_secret()
    assert len(key_of(secret)) == 24
    assert secret[6:-4] not in masked(secret)


async def test_which_addresses_are_called() -> None:
    def of(text: str, *, private: bool = True) -> str | None:
        return refused(ipaddress.ip_address(text), private=private)

    assert not of("127.0.0.1")
    assert not of("10.0.0.1")
    assert of("169.254.169.254")
    assert of("::ffff:169.254.169.254")
    assert of("fe80::1")
    assert of("0.0.0.0")
    assert of("224.0.0.1")
    assert of("127.0.0.1", private=False)
    assert of("::1", private=False)
    assert of("192.168.1.1", private=False)
    assert not of("93.184.216.34", private=False)
    with pytest.raises(WebhookRefused):
        await target("http://169.254.169.254/latest/meta-data", private=True)
    found = await target("https://localhost:8443/x", private=True)
    assert (found.host, found.name) == ("localhost:8443", "localhost")
    assert found.url.host in ("127.0.0.1", "::1")


def test_the_signature_is_that_of_the_specification() -> None:
    """The example of the Standard Webhooks specification's libraries."""
    key = key_of("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    body = b'{"test": 2432232314}'
    assert signature(key, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, body) == (
        "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    )


def test_delays_double_up_to_a_limit() -> None:
    settings = WebhookSettings()
    assert 0.8 <= delay_s(settings, 1) <= 1
    assert 0.8 * 8 <= delay_s(settings, 4) <= 8
    assert delay_s(settings, 1000) <= 3600
    assert delay_s(settings, 1, 120) == 120
    total = sum(delay_s(settings, tries) for tries in range(1, settings.attempts)) / 3600
    assert 18 < total < 26, f"{total} hours"


async def test_types_of_event_and_their_patterns(bus: Bus, tmp_path: Path) -> None:
    webhook = await Webhooks(bus).add("https://example.org/", events=["run.*", "deadletter"])
    assert wants(webhook, "run.failed")
    assert wants(webhook, "run.parked")
    assert wants(webhook, "deadletter")
    assert not wants(webhook, "agent.unserved")
