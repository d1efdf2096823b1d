"""Application actors in one host: subscriptions, types, failures, supervision, questions, drain."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar

import pytest
from pydantic import BaseModel

from callboard.actors.actor import Actor
from callboard.actors.asking import ask_actor
from callboard.actors.context import ActorContext
from callboard.actors.errors import ActorGaveUp, AskFailed, InvalidActor
from callboard.actors.handler import ask, on
from callboard.actors.publication import publish
from callboard.runtime.config import RuntimeSettings
from callboard.runtime.host import Host
from callboard.runtime.nats_server import ServerProcess
from callboard.store.deadletters import DeadLetters
from callboard.topics.bus import Bus
from callboard.topics.errors import InvalidInput, NoResponders

Hosts = Callable[..., Any]
SETTINGS = RuntimeSettings(
    beat_s=0.2, owner_lease_s=0.5, grace_s=3, restart_initial_s=0.01, restart_max_s=0.05, restart_limit=8
)


class Review(BaseModel):
    n: int
    fail: int = 0


@dataclass
class Question:
    text: str


class Reviews(Actor):
    """Keeps what it saw on the class, since instances are replaced."""

    seen: ClassVar[list[tuple[str | None, int, int]]]
    life: ClassVar[list[str]]
    delay = 0.0
    max_deliveries = 3

    async def started(self, ctx: ActorContext) -> None:
        self.life.append("started")

    async def stopping(self, ctx: ActorContext) -> None:
        self.life.append("stopping")

    async def stopped(self, ctx: ActorContext) -> None:
        self.life.append("stopped")

    @on("reviews", "more")
    async def received(self, ctx: ActorContext, message: Review) -> None:
        assert isinstance(ctx, ActorContext)
        await asyncio.sleep(self.delay)
        self.seen.append((ctx.key, message.n, ctx.attempt))
        if message.fail >= ctx.attempt:
            raise ValueError(f"no luck with {message.n}")

    @ask
    async def echo(self, ctx: ActorContext, question: Question) -> str:
        await asyncio.sleep(self.delay)
        if question.text == "fail":
            raise ValueError("this is a defect")
        if question.text == "refuse":
            raise InvalidInput("not like this")
        return f"{ctx.key}: {question.text}"

    @ask(name="how-many")
    async def count(self, ctx: ActorContext, of: str) -> int:
        return len([1 for key, _, _ in self.seen if key == of])


@pytest.fixture
def reviews() -> type[Reviews]:
    return type("Reviews", (Reviews,), {"seen": [], "life": []})


@pytest.fixture
async def hosts(bus: Bus) -> AsyncIterator[Callable[..., Any]]:
    """Makes a started host with these actors."""
    made: list[Host] = []

    async def make(*actors: Any) -> Host:
        host = Host(bus, SETTINGS)
        made.append(host)
        for actor in actors:
            host.add(actor)
        await host.start()
        return host

    yield make
    for host in made:
        await host.stop()


async def eventually(condition: Callable[[], bool], within_s: float = 10) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


async def test_messages_of_a_key_come_in_order_typed_and_once(bus: Bus, hosts: Hosts, reviews: type[Reviews]) -> None:
    await hosts(reviews)
    for n in range(30):
        for key in ("a", "b c", None):
            await publish(bus, "reviews", Review(n=n), key)
    await eventually(lambda: len(reviews.seen) == 90)
    for key in ("a", "b c", None):
        assert [n for k, n, _ in reviews.seen if k == key] == list(range(30))


async def test_two_topics_of_one_actor_share_the_order_of_a_key(bus: Bus, hosts: Hosts, reviews: type[Reviews]) -> None:
    reviews.delay = 0.01
    await hosts(reviews)
    await asyncio.gather(*(publish(bus, topic, Review(n=n), "a") for n, topic in enumerate(["reviews", "more"] * 5)))
    await eventually(lambda: len(reviews.seen) == 10)


async def test_a_plain_client_publishes_without_knowing_of_partitions(
    bus: Bus, hosts: Hosts, reviews: type[Reviews]
) -> None:
    await hosts(reviews)
    await bus.write(f"{bus.subjects.topic}.reviews.whatever", b'{"n": 7}')
    await eventually(lambda: reviews.seen == [("whatever", 7, 1)])


async def test_a_host_goes_on_where_the_last_one_stopped(bus: Bus, hosts: Hosts, reviews: type[Reviews]) -> None:
    first = await hosts(reviews)
    await publish(bus, "reviews", Review(n=1), "a")
    await eventually(lambda: len(reviews.seen) == 1)
    await first.drain()
    await publish(bus, "reviews", Review(n=2), "a")
    await hosts(reviews)
    await publish(bus, "reviews", Review(n=3), "a")
    await eventually(lambda: len(reviews.seen) == 3)
    assert [n for _, n, _ in reviews.seen] == [1, 2, 3]


@pytest.mark.parametrize("replay", [True, False])
async def test_a_new_subscription_begins_now_or_with_the_oldest(bus: Bus, hosts: Hosts, replay: bool) -> None:
    seen: list[int] = []

    class Late(Actor):
        @on("reviews", replay=replay)
        async def received(self, ctx: ActorContext, message: Review) -> None:
            seen.append(message.n)

    await publish(bus, "reviews", Review(n=1), "a")
    await hosts(Late)
    await publish(bus, "reviews", Review(n=2), "a")
    await eventually(lambda: 2 in seen)
    assert seen == ([1, 2] if replay else [2])


async def test_a_handler_that_raises_ends_its_instance_and_is_tried_again(
    bus: Bus, hosts: Hosts, reviews: type[Reviews]
) -> None:
    await hosts(reviews)
    await publish(bus, "reviews", Review(n=1, fail=1), "a")
    await publish(bus, "reviews", Review(n=2), "a")
    await eventually(lambda: len(reviews.seen) == 3)
    assert reviews.seen == [("a", 1, 1), ("a", 1, 2), ("a", 2, 1)]
    assert reviews.life == ["started", "stopped", "started"]


async def test_a_poisonous_message_is_set_aside_and_the_key_goes_on(
    bus: Bus, hosts: Hosts, reviews: type[Reviews], caplog: pytest.LogCaptureFixture
) -> None:
    await hosts(reviews)
    await publish(bus, "reviews", Review(n=1, fail=99), "a")
    await publish(bus, "reviews", Review(n=2), "a")
    await eventually(lambda: ("a", 2, 1) in reviews.seen)
    assert [attempt for _, n, attempt in reviews.seen if n == 1] == [1, 2, 3]
    [letter] = await DeadLetters(bus).page()
    assert letter.kind == "topic"
    assert letter.letter.subject == f"{bus.subjects.topic}.reviews.a"
    assert "no luck with 1" in letter.letter.reason.message
    assert "set aside" in caplog.text


@pytest.mark.parametrize("leaves", [SystemExit(3), KeyboardInterrupt()], ids=["exit", "interrupt"])
async def test_a_handler_that_would_end_the_process_fails_its_message_alone(
    bus: Bus, hosts: Hosts, reviews: type[Reviews], leaves: BaseException
) -> None:
    class Leaver(Actor):
        name = "leaver"
        max_deliveries = 1

        @on("reviews")
        async def received(self, ctx: ActorContext, message: Review) -> None:
            raise leaves

    await hosts(Leaver, reviews)
    await publish(bus, "reviews", Review(n=1), "a")
    await eventually(lambda: ("a", 1, 1) in reviews.seen)
    letters = DeadLetters(bus)
    async with asyncio.timeout(10):
        while not (found := await letters.page()):
            await asyncio.sleep(0.05)
    assert found[0].letter.reason.code == "handler_failed"
    assert "the handler" in found[0].letter.reason.message


class Own(BaseException):
    """No Exception."""


@pytest.mark.usefixtures("unlogged")
@pytest.mark.parametrize(
    ("poison", "said"),
    [
        (asyncio.CancelledError(), "canceled itself"),
        (Own("mine"), "Own: mine"),
        (OSError("a\udcff.txt"), r"a\udcff.txt"),
    ],
    ids=["cancel", "own", "surrogate"],
)
async def test_a_message_is_never_skipped_whatever_its_handler_raises(
    bus: Bus, hosts: Hosts, poison: BaseException, said: str
) -> None:
    """It is tried again, then set aside with the reason, and nothing of its key goes before that."""
    seen: list[int] = []

    class Careless(Actor):
        name = "careless"
        max_deliveries = 2

        @on("reviews")
        async def received(self, ctx: ActorContext, message: Review) -> None:
            seen.append(message.n)
            if message.n == 2:
                raise poison

    await hosts(Careless)
    for n in (1, 2, 3):
        await publish(bus, "reviews", Review(n=n), "a")
    await eventually(lambda: 3 in seen)
    assert seen == [1, 2, 2, 3]
    (letter,) = await DeadLetters(bus).page()
    assert said in letter.letter.reason.message


async def test_a_dead_letter_is_replayed_to_the_actor_that_failed_alone(
    bus: Bus, hosts: Hosts, reviews: type[Reviews]
) -> None:
    class Other(Reviews):
        seen: ClassVar[list[tuple[str | None, int, int]]] = []
        life: ClassVar[list[str]] = []

    await hosts(reviews, Other)
    await publish(bus, "reviews", Review(n=1, fail=99), "a")
    letters = DeadLetters(bus)
    async with asyncio.timeout(10):
        while len(found := await letters.page()) < 2:
            await asyncio.sleep(0.05)
    ours = next(each for each in found if (each.letter.headers or {})["Callboard-Actor"] == "reviews")
    await letters.replay(ours.id)
    await publish(bus, "reviews", Review(n=2), "a")
    await eventually(lambda: ("a", 2, 1) in reviews.seen and ("a", 2, 1) in Other.seen)
    assert [n for _, n, _ in reviews.seen] == [1, 1, 1, 1, 1, 1, 2]
    assert [n for _, n, _ in Other.seen] == [1, 1, 1, 2]


async def test_a_bad_payload_is_set_aside_at_once_and_nobody_is_restarted(
    bus: Bus, hosts: Hosts, reviews: type[Reviews]
) -> None:
    await hosts(reviews)
    for body in (b"not json", b'{"n": "x"}', b""):
        await bus.write(f"{bus.subjects.topic}.reviews.a", body)
    await publish(bus, "reviews", Review(n=2), "a")
    await eventually(lambda: reviews.seen == [("a", 2, 1)])
    letters = await DeadLetters(bus).page()
    assert [letter.letter.reason.code for letter in letters] == ["decode_error"] * 3
    assert reviews.life == ["started"]


async def test_an_actor_that_never_succeeds_is_given_up_visibly(
    bus: Bus, reviews: type[Reviews], caplog: pytest.LogCaptureFixture
) -> None:
    reviews.max_deliveries = 1000
    host = Host(bus, SETTINGS.model_copy(update={"restart_limit": 3}))
    host.add(reviews)
    told: list[ActorGaveUp] = []
    host.on_give_up.append(told.append)
    await host.start()
    await publish(bus, "reviews", Review(n=1, fail=1000), "a")
    await asyncio.wait_for(host.abandoned(), 20)
    assert host.gave_up == ["reviews"]
    assert [error.actor for error in told] == ["reviews"]
    assert any("given up" in record.message and record.levelno == logging.ERROR for record in caplog.records)
    assert len(reviews.seen) == 4
    beats = await bus.gather(f"{bus.subjects.worker}.{host.id}")
    assert b'"failed":["reviews"]' in beats[0].data
    await eventually(lambda: host.owned("reviews") == [])
    await host.stop()


async def test_an_actor_that_does_not_start_is_an_error_of_the_start(bus: Bus) -> None:
    class Broken(Actor):
        async def started(self, ctx: ActorContext) -> None:
            raise RuntimeError("no database")

    host = Host(bus, SETTINGS)
    host.add(Broken)
    with pytest.raises(ActorGaveUp, match="no database"):
        await host.start()


# -- questions ------------------------------------------------------------------------------------------------------


async def test_a_question_is_answered_with_the_declared_type(bus: Bus, hosts: Hosts, reviews: type[Reviews]) -> None:
    await hosts(reviews)
    assert await ask_actor(bus, "reviews", "k/1", Question("hello"), str, 2, "echo") == "k/1: hello"
    await publish(bus, "reviews", Review(n=1), "a")
    await eventually(lambda: len(reviews.seen) == 1)
    assert await ask_actor(bus, "reviews", "a", "a", int, 2, "how-many") == 1


@pytest.mark.parametrize(
    ("message", "method", "code"),
    [
        (Question("refuse"), "echo", "invalid_input"),
        (Question("fail"), "echo", "error"),
        ("no question", "echo", "decode_error"),
        (Question("x"), "nothing", "not_found"),
        (Question("x"), None, "not_found"),
    ],
)
async def test_what_goes_wrong_there_is_an_error_here(
    bus: Bus, hosts: Hosts, reviews: type[Reviews], message: Any, method: str | None, code: str
) -> None:
    await hosts(reviews)
    with pytest.raises(AskFailed) as caught:
        await ask_actor(bus, "reviews", "a", message, str, 2, method)
    assert caught.value.code == code
    assert await ask_actor(bus, "reviews", "a", Question("still there"), str, 2, "echo") == "a: still there"


async def test_nobody_there_is_told_at_once(bus: Bus) -> None:
    begun = time.monotonic()
    with pytest.raises(NoResponders, match="nobody"):
        await ask_actor(bus, "nobody", "a", 1, int, 5, None)
    assert time.monotonic() - begun < 1


async def test_a_question_waits_its_turn_behind_the_messages_of_its_key(
    bus: Bus, hosts: Hosts, reviews: type[Reviews]
) -> None:
    reviews.delay = 0.05
    await hosts(reviews)
    for n in range(4):
        await publish(bus, "reviews", Review(n=n), "a")
    await eventually(lambda: len(reviews.seen) >= 1)
    asking = asyncio.create_task(ask_actor(bus, "reviews", "a", Question("x"), str, 5, "echo"))
    assert await ask_actor(bus, "reviews", "b", Question("y"), str, 5, "echo") == "b: y"
    assert len(reviews.seen) < 4
    assert await asking == "a: x"
    assert len(reviews.seen) == 4


async def test_actors_ask_and_publish_through_their_context(bus: Bus, hosts: Hosts, reviews: type[Reviews]) -> None:
    answers: list[str] = []

    class Curious(Actor):
        @on("reviews")
        async def received(self, ctx: ActorContext, message: Review) -> None:
            answers.append(
                await ctx.ask("reviews", "k", Question("?"), returns=str, timeout=timedelta(seconds=2), method="echo")
            )
            await ctx.publish("answers", answers[-1], key="k")
            ctx.logger.info("asked at %s", ctx.now)

    class Listener(Actor):
        @on("answers")
        async def received(self, ctx: ActorContext, message: str) -> None:
            answers.append(message)

    await hosts(reviews, Curious, Listener)
    await publish(bus, "reviews", Review(n=1), "a")
    await eventually(lambda: answers == ["k: ?", "k: ?"])


# -- bounds, end ----------------------------------------------------------------------------------------------------


async def test_a_small_mailbox_takes_all_in_time(bus: Bus, hosts: Hosts, reviews: type[Reviews]) -> None:
    reviews.capacity, reviews.concurrency, reviews.delay = 20, 4, 0.001
    await hosts(reviews)
    for n in range(20):
        await asyncio.gather(*(publish(bus, "reviews", Review(n=n), f"k{key}") for key in range(20)))
    await eventually(lambda: len(reviews.seen) == 400, 20)
    for key in range(20):
        assert [n for k, n, _ in reviews.seen if k == f"k{key}"] == list(range(20))


async def test_drain_finishes_what_runs_and_leaves_the_rest(bus: Bus, hosts: Hosts, reviews: type[Reviews]) -> None:
    reviews.delay = 0.3
    host = await hosts(reviews)
    for n in range(3):
        await publish(bus, "reviews", Review(n=n), "a")
    await asyncio.sleep(0.1)
    await host.drain()
    assert [n for _, n, _ in reviews.seen] == [0]
    assert reviews.life == ["started", "stopping", "stopped"]
    reviews.delay = 0
    await hosts(reviews)
    await eventually(lambda: [n for _, n, _ in reviews.seen] == [0, 1, 2])


async def test_drain_works_with_the_broker_gone(
    bus: Bus, hosts: Hosts, reviews: type[Reviews], nats: ServerProcess
) -> None:
    host = await hosts(reviews)
    await publish(bus, "reviews", Review(n=1), "a")
    await eventually(lambda: len(reviews.seen) == 1)
    nats.kill()
    try:
        begun = time.monotonic()
        await host.drain()
        assert time.monotonic() - begun < 5
        assert reviews.life == ["started", "stopping", "stopped"]
    finally:
        await asyncio.to_thread(nats.start)


async def test_a_second_host_takes_its_part_and_gives_it_back(bus: Bus, hosts: Hosts, reviews: type[Reviews]) -> None:
    one = await hosts(reviews)
    assert one.owned("reviews") == list(range(16))
    two = await hosts(reviews)
    await eventually(lambda: 2 < len(two.owned("reviews")) < 14)
    await eventually(lambda: sorted(one.owned("reviews") + two.owned("reviews")) == list(range(16)))
    await two.drain()
    await eventually(lambda: one.owned("reviews") == list(range(16)))


async def test_what_cannot_be_hosted_is_refused(bus: Bus) -> None:
    with pytest.raises(InvalidActor):
        Host(bus, SETTINGS).add("not an actor")  # type: ignore[arg-type]
