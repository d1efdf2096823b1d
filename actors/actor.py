"""What an actor is: a name, a life cycle, and where its messages come from.

Application actors mark methods with `@on` and `@ask` (see `handler`). System actors (the coordinator, the projector,
the agent worker) name their `sources()` and `tasks()`. The host in `runtime` runs both alike: bounded, supervised,
drained.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from ..topics.client import Message
from ..topics.pull import Delivery
from .context import ActorContext


@dataclass(frozen=True, slots=True)
class QueueSource:
    """A durable pull consumer. `handle` acknowledges; a delivery that it leaves open is delivered again.

    `config` is the consumer's configuration as the JetStream API takes it, without its name. With `key` None handling
    starts at once, in no order; otherwise one delivery at a time per key, in the order of arrival. An exception out of
    `handle` hands the delivery back with backoff; after `max_deliveries` of them it goes to the dead letters."""

    stream: str
    consumer: str
    config: dict[str, Any]
    handle: Callable[[Delivery], Awaitable[None]]
    key: Callable[[Delivery], str] | None = None


@dataclass(frozen=True, slots=True)
class RpcSource:
    """Core requests. `handle` answers on `message.reply`; processes that give the same `queue` share them.

    `key` as in QueueSource. Above the actor's capacity a request is dropped: its sender times out and tries again."""

    subject: str
    handle: Callable[[Message], Awaitable[None]]
    queue: str = ""
    key: Callable[[Message], str] | None = None


@dataclass(frozen=True, slots=True)
class SignalSource:
    """A core subscription whose `callback` runs in the read loop: it must be quick and not raise."""

    subject: str
    callback: Callable[[Message], None]
    queue: str = field(default="")


Source = QueueSource | RpcSource | SignalSource


class Actor:
    """Base of every actor. One instance lives in one host; several hosts may have the same actor.

    Life: `started`, messages, `stopping` (no new message comes; what runs may finish), `stopped`. When a handler of an
    application actor raises, the instance ends with `stopped` and another one begins, after a backoff."""

    capacity: int = 1000
    """Messages that may lie in the mailbox of one instance, those being handled included."""
    concurrency: int = 100
    """Messages of different keys that are handled at the same time."""
    max_deliveries: int = 5
    """Failed deliveries after which a message goes to the dead letters."""

    @property
    def name(self) -> str:
        """How others address it, and the name of its durable subscriptions: the class name in lower case."""
        return type(self).__name__.lower()

    async def started(self, ctx: ActorContext) -> None:
        """Before the first message. Raising counts as a failed start: backoff, then give up."""

    async def stopping(self, ctx: ActorContext) -> None:
        """The host drains: no new message comes. Finish or hand back what is held; limited by the grace time."""

    async def stopped(self, ctx: ActorContext) -> None:
        """After the last message, also after a failure."""

    def sources(self) -> list[Source]:
        """Where the messages of a system actor come from; called after `started`."""
        return []

    def tasks(self) -> list[Callable[[], Awaitable[None]]]:
        """Background loops, begun after the sources, cancelled after `stopping`, restarted (backoff) if they raise."""
        return []

    def beat(self) -> dict[str, Any]:
        """Fields that this actor adds to the host's heartbeat (`WorkerInfo`); lists of several actors are joined,
        figures in dicts added up."""
        return {}
