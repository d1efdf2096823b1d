"""What an actor may ask of its host. `runtime.Host` fulfils it."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from typing import Any, Protocol, TypeVar, overload, runtime_checkable

T = TypeVar("T")


@runtime_checkable
class ActorContext(Protocol):
    """Given to the life-cycle hooks, and to each handler with `key`, `topic` and `attempt` of its message filled in."""

    @property
    def name(self) -> str:
        """The actor's name."""
        ...

    @property
    def key(self) -> str | None:
        """The key of the message in hand; None outside a handler and for a message published without one."""
        ...

    @property
    def topic(self) -> str | None:
        """The topic of the message in hand; None outside a handler and in an answer to `ask`."""
        ...

    @property
    def attempt(self) -> int:
        """Which delivery of the message this is, counted from 1; 0 outside a handler."""
        ...

    @property
    def logger(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger that names the actor and the key."""
        ...

    @property
    def now(self) -> datetime:
        """The host's wall clock, with zone."""
        ...

    async def publish(self, topic: str, message: Any, key: str | None = None) -> int:
        """Publishes to whoever subscribes to `topic`; gives the stream sequence once stored.

        Messages of one key reach every subscribing actor in the order of their sequences, at least once. Raises
        EncodeError, InvalidSubject, PayloadTooLarge; BrokerError when it was not stored within 30 s (or not known to
        be)."""
        ...

    @overload
    async def ask(
        self, actor: str, key: str, message: Any, *, timeout: timedelta = ..., method: str | None = ...
    ) -> Any: ...

    @overload
    async def ask(
        self,
        actor: str,
        key: str,
        message: Any,
        *,
        returns: type[T],
        timeout: timedelta = ...,
        method: str | None = ...,
    ) -> T: ...

    async def ask(
        self,
        actor: str,
        key: str,
        message: Any,
        *,
        returns: Any = Any,
        timeout: timedelta = timedelta(seconds=5),
        method: str | None = None,
    ) -> Any:
        """Asks the `@ask` method of another actor and gives its answer, decoded as `returns`.

        The request goes to the process that owns `key` and waits its turn behind that key's other messages. It is
        sent at most once. Raises NoResponders when no process owns the key at this moment (a retry helps once one
        does), Unavailable after `timeout` (whether it was carried out is unknown), AskFailed with the `code` of the
        other side's error."""
        ...
