"""Which methods are handlers, and what is refused when an actor is declared."""

from dataclasses import dataclass
from typing import Any

import pytest

from callboard.actors.actor import Actor
from callboard.actors.context import ActorContext
from callboard.actors.errors import InvalidActor
from callboard.actors.handler import ask, handlers_of, on
from callboard.topics.codec import TypeNotCarried
from callboard.topics.errors import InvalidSubject


@dataclass
class Review:
    n: int


class Reviews(Actor):
    @on("reviews", "more", replay=True)
    async def received(self, ctx: ActorContext, message: Review) -> None: ...

    @ask
    async def count(self, ctx: ActorContext, question: str) -> int:
        return len(question)


class Inherited(Reviews):
    @on("other")
    async def another(self, ctx: ActorContext, message: Any) -> None: ...


def test_handlers_are_found_with_their_types() -> None:
    found = handlers_of(Reviews)
    assert set(found.topics) == {"reviews", "more"}
    assert (found.topics["reviews"].takes, found.topics["reviews"].replay) == (Review, True)
    assert (found.asks["count"].takes, found.asks["count"].returns) == (str, int)
    assert found.asked("") is found.asked("count") is found.asks["count"]
    assert found.asked("other") is None


def test_handlers_are_inherited() -> None:
    assert set(handlers_of(Inherited).topics) == {"reviews", "more", "other"}


def test_an_actor_without_handlers_has_none() -> None:
    assert not handlers_of(Actor)
    assert Reviews().name == "reviews"


def test_two_methods_for_one_topic_are_refused() -> None:
    class Twice(Reviews):
        @on("reviews")
        async def again(self, ctx: ActorContext, message: Review) -> None: ...

    with pytest.raises(InvalidActor, match="both handle 'reviews'"):
        handlers_of(Twice)


def test_a_function_that_is_not_async_is_refused() -> None:
    class Sync(Actor):
        @on("reviews")  # type: ignore[type-var]  # what is tested
        def received(self, ctx: ActorContext, message: Review) -> None: ...

    with pytest.raises(InvalidActor, match="async def received"):
        handlers_of(Sync)


def test_a_method_without_a_message_is_refused() -> None:
    class Short(Actor):
        @on("reviews")
        async def received(self, ctx: ActorContext) -> None: ...

    with pytest.raises(InvalidActor, match="context and message"):
        handlers_of(Short)


def test_a_type_that_no_message_has_is_refused() -> None:
    class Odd(Actor):
        @on("reviews")
        async def received(self, ctx: ActorContext, message: Actor) -> None: ...

    with pytest.raises(TypeNotCarried):
        handlers_of(Odd)


@pytest.mark.parametrize("topic", ["", "a.b", "a b", "*", ">"])
def test_a_topic_is_one_token(topic: str) -> None:
    with pytest.raises(InvalidSubject):
        on(topic)


def test_a_subscription_names_a_topic() -> None:
    with pytest.raises(InvalidActor):
        on()
