"""What happens to one envelope: decode, call the handler under supervision, try again, set aside, or answer."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from typing import Any

from ..actors.asking import METHOD_HEADER, answer_error, answer_value
from ..actors.errors import ActorGaveUp, HandlerFailed
from ..actors.handler import Handler, Handlers
from ..actors.publication import key_of
from ..store.errors import info_of, text_of
from ..topics import codec, trace
from ..topics.bus import Bus
from ..topics.errors import BrokerError, CallboardError, NotFound, Unavailable
from .context import HostContext
from .envelope import Asked, Envelope, Published
from .setaside import set_aside
from .supervision import Supervisor

log = logging.getLogger(__name__)

ADDRESSEE = "Callboard-Actor"
_RETRY_INITIAL_S = 0.1
_RETRY_MAX_S = 30.0


class Handling:
    """Carries envelopes to the handlers of one application actor."""

    def __init__(self, bus: Bus, actor: str, handlers: Handlers, supervisor: Supervisor, max_deliveries: int) -> None:
        self._bus, self._actor, self._handlers = bus, actor, handlers
        self._supervisor, self._max_deliveries = supervisor, max_deliveries

    async def handle(self, envelope: Envelope) -> None:
        """Handles it, or drops it when this host does not own its key any more: the new owner has it."""
        if not await envelope.partition.confirm():
            return
        try:
            if isinstance(envelope, Published):
                async with envelope.partition.caution(envelope.topic, envelope.stored.sequence):
                    await self._deliver(envelope)
            else:
                await self._answer(envelope)
        except ActorGaveUp:
            log.debug("actor %s is given up; left for another host", self._actor)

    # -- published ----------------------------------------------------------------------------------------------

    async def _deliver(self, envelope: Published) -> None:
        stored, partition = envelope.stored, envelope.partition
        sequence, headers = stored.sequence, stored.headers
        if headers.get(ADDRESSEE, self._actor) != self._actor:  # replayed for another actor
            await partition.finish(envelope.topic, sequence)
            return
        handler = self._handlers.topics[envelope.topic]
        try:
            message = codec.decode(stored.data, handler.takes)
        except codec.DecodeError as error:
            await self._set_aside(envelope, error)
            return
        tries = partition.progress[envelope.topic].tries.get(sequence, 0)
        failure: BaseException = HandlerFailed("the process died each time while it handled the message", tries=tries)
        while tries < self._max_deliveries:
            key = key_of(envelope.token, headers)
            context = HostContext(self._bus, self._actor, key, envelope.topic, tries + 1)
            try:
                with trace.span(f"{self._actor} {envelope.topic}", trace.extract(headers)):
                    await self._call(handler, context, message)
            except Exception as error:  # noqa: BLE001  # the actor boundary: supervision has seen it, the loop decides
                failure = error
            else:
                await partition.finish(envelope.topic, sequence)
                return
            if not isinstance(failure, Unavailable) or self._bus.is_up:
                tries += 1
                partition.failed(envelope.topic, sequence, tries)
            if tries < self._max_deliveries:
                await asyncio.sleep(_backoff(tries))
            if not await partition.confirm():
                return
        await self._set_aside(envelope, failure)

    async def _set_aside(self, envelope: Published, error: BaseException) -> None:
        stored, subjects = envelope.stored, self._bus.subjects
        subject = f"{subjects.topic}.{envelope.topic}.{envelope.token}"
        headers = {name: value for name, value in stored.headers.items() if not name.startswith("Nats-")}
        headers[ADDRESSEE] = self._actor  # a replay is for this actor alone
        delay = _RETRY_INITIAL_S
        while await envelope.partition.confirm():
            try:
                await set_aside(self._bus, "topic", subject, stored.data, headers, error)
            except Exception as problem:  # noqa: BLE001  # whatever it is, nothing of this key goes before the message
                log.warning("%s could not be set aside: %s; trying again", subject, problem)
                if not isinstance(problem, BrokerError):
                    error = HandlerFailed(f"a {type(error).__name__} that cannot be told: {info_of(problem).message}")
                await asyncio.sleep(delay)
                delay = min(delay * 2, _RETRY_MAX_S)
            else:
                await envelope.partition.finish(envelope.topic, stored.sequence)
                return

    # -- asked --------------------------------------------------------------------------------------------------

    async def _answer(self, envelope: Asked) -> None:
        request = envelope.request
        headers = request.headers
        try:
            name = headers.get(METHOD_HEADER, "")
            handler = self._handlers.asked(name)
            if handler is None:
                known = sorted(self._handlers.asks)
                raise NotFound(f"actor {self._actor} answers no question {name!r}; it has {known}")
            message = codec.decode(request.data, handler.takes)
            context = HostContext(self._bus, self._actor, key_of(envelope.token, headers), None, 1)
            with trace.span(f"{self._actor} {handler.method}", trace.extract(headers)):
                value = await self._call(handler, context, message, is_answer=True)
            answer_value(self._bus, request, value)
        except Exception as error:
            if not isinstance(error, CallboardError):
                log.exception("actor %s failed to answer %s", self._actor, request.subject)
            answer_error(self._bus, request, info_of(error))

    # -- both ---------------------------------------------------------------------------------------------------

    async def _call(self, handler: Handler, context: HostContext, message: Any, is_answer: bool = False) -> Any:
        """Calls the handler. What it raises ends the instance, unless it is meant: Callboard's own errors as an answer,
        and those of a broker that is away."""
        instance = await self._supervisor.enter()
        try:
            value = await _called(handler.bind(instance), context, message)
        except Exception as error:
            meant = isinstance(error, CallboardError) and (is_answer or error.retryable)
            log.log(
                logging.INFO if meant else logging.ERROR, "actor %s failed on %s, key %r",
                self._actor, context.topic or handler.method, context.key, exc_info=not meant,
            )  # fmt: skip
            self._supervisor.leave(instance, None if meant else error, handled=False)
            raise
        except BaseException:
            self._supervisor.leave(instance, None, handled=False)
            raise
        self._supervisor.leave(instance)
        return value


async def _called(method: Callable[..., Awaitable[Any]], context: HostContext, message: Any) -> Any:
    try:
        return await method(context, message)
    except (SystemExit, KeyboardInterrupt) as error:  # would end the event loop, and all else that this process does
        quitting = f"called sys.exit({error.code!r})" if isinstance(error, SystemExit) else "raised KeyboardInterrupt"
        raise HandlerFailed(f"the handler {quitting}") from error
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():  # the host lets go of the message
            raise
        raise HandlerFailed("the handler canceled itself") from error
    except (Exception, GeneratorExit):
        raise
    except BaseException as error:
        raise HandlerFailed(f"the handler raised {type(error).__name__}: {text_of(error)}") from error


def _backoff(tries: int) -> float:
    return float(min(_RETRY_MAX_S, _RETRY_INITIAL_S * 2.0**tries) * (0.5 + random.random()))
