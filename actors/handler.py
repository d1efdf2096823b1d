"""How a method becomes a handler: `@on(topic)` for what is published, `@ask` for requests.

    class Reviews(Actor):
        @on("reviews")
        async def received(self, ctx: ActorContext, message: Review) -> None: ...

        @ask
        async def count(self, ctx: ActorContext, question: Question) -> int: ...

The types are read from the annotations, once, when the actor is hosted.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar, overload

from ..topics import codec
from ..topics.subjects import require_token
from .actor import Actor
from .errors import InvalidActor

Method = Callable[..., Awaitable[Any]]
F = TypeVar("F", bound=Method)

_ON = "__callboard_on__"
_ASK = "__callboard_ask__"


@dataclass(frozen=True, slots=True)
class Handler:
    """One handler of an actor class. `topic` is None for an `@ask` method."""

    method: str
    takes: Any
    """The declared type of the message."""
    returns: Any
    topic: str | None = None
    replay: bool = False

    def bind(self, instance: Actor) -> Method:
        """The method of this instance."""
        bound: Method = getattr(instance, self.method)
        return bound


def on(*topics: str, replay: bool = False) -> Callable[[F], F]:
    """Subscribes the method to topics, durably, under the actor's name.

    Messages of one key come one at a time and in order, each at least once: it counts as handled when the method
    returns; one that raises is handled again with backoff, `max_deliveries` times, then goes to the dead letters.
    `replay` says where a subscription begins that did not exist before: with the oldest stored message, or (default)
    with what comes from now on."""
    if not topics:
        raise InvalidActor("@on needs at least one topic: write @on('reviews')")
    names = [require_token("topic", topic) for topic in topics]

    def mark(method: F) -> F:
        setattr(method, _ON, (names, replay))
        return method

    return mark


@overload
def ask(method: F) -> F: ...
@overload
def ask(*, name: str | None = None) -> Callable[[F], F]: ...


def ask(method: Any = None, *, name: str | None = None) -> Any:
    """Answers `ctx.ask(actor, key, message)`: what the method returns is the answer, what it raises the asker's error.

    An actor with several names the one it means by `method=`; `name` defaults to the method's. At most once."""

    def mark(found: Any) -> Any:
        setattr(found, _ASK, name or found.__name__)
        return found

    return mark if method is None else mark(method)


@dataclass(frozen=True, slots=True)
class Handlers:
    """All handlers of an actor class: by topic, and by the name of the question."""

    topics: dict[str, Handler]
    asks: dict[str, Handler]

    def __bool__(self) -> bool:
        return bool(self.topics or self.asks)

    def asked(self, name: str) -> Handler | None:
        """The `@ask` method of this name; without a name the only one."""
        if not name and len(self.asks) == 1:
            return next(iter(self.asks.values()))
        return self.asks.get(name)


def handlers_of(cls: type[Actor]) -> Handlers:
    """Reads the marked methods of a class.

    Raises InvalidActor for a method that is not `async def method(self, ctx, message: Type)` and for a topic or name
    that two methods claim; TypeNotCarried for a type that no message can have."""
    found = Handlers({}, {})
    for attribute in dir(cls):
        method = inspect.getattr_static(cls, attribute)
        marked, name = getattr(method, _ON, None), getattr(method, _ASK, None)
        if marked is not None:
            for topic in marked[0]:
                _add(cls, found.topics, topic, _handler(cls, method, attribute, topic, marked[1]))
        if name is not None:
            _add(cls, found.asks, name, _handler(cls, method, attribute, None, False))
    return found


def _add(cls: type[Actor], into: dict[str, Handler], name: str, handler: Handler) -> None:
    if name in into:
        raise InvalidActor(
            f"{cls.__qualname__}.{handler.method} and .{into[name].method} both handle {name!r}: leave one of them"
        )
    into[name] = handler


def _handler(cls: type[Actor], method: Any, attribute: str, topic: str | None, replay: bool) -> Handler:
    where = f"{cls.__qualname__}.{attribute}"
    if not inspect.iscoroutinefunction(method):
        raise InvalidActor(f"{where} must be an async method: write `async def {attribute}(self, ctx, message: …)`")
    if len(inspect.signature(method).parameters) != 3:
        raise InvalidActor(f"{where} must take context and message: `async def {attribute}(self, ctx, message: …)`")
    takes, returns = codec.handler_types(method)
    return Handler(attribute, takes, returns, topic, replay)
