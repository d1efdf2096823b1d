"""`ctx.interrupt`: what a run asks, and gets answered. `ctx.heard` and `ctx.hear`: what is said to it unasked."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, TypeVar, Unpack, overload

import msgspec

from ...store.words import Spoken
from ...topics import codec, units
from ...topics.messages import Answer as Given
from ...topics.messages import Payload, Step, Word, encode
from ..answer import Answer, Escalate, InterruptExpired, InterruptOptions, InterruptRejected, require_known
from ..heard import Heard
from .asking import Question
from .outside import Outside
from .parts import Parts

T = TypeVar("T")
_FOREVER_S = 86_400.0


class Dialogue(Outside):
    """The part of a context by which a run talks with people, and with agents that answer for them."""

    @overload
    def interrupt(
        self,
        payload: Any = ...,
        *,
        returns: type[T],
        id: str | None = ...,
        **options: Unpack[InterruptOptions],
    ) -> Coroutine[Any, Any, T]: ...
    @overload
    def interrupt(
        self,
        payload: Any = ...,
        *,
        id: str | None = ...,
        returns: Any = ...,
        **options: Unpack[InterruptOptions],
    ) -> Coroutine[Any, Any, Any]: ...
    def interrupt(
        self,
        payload: Any = None,
        *,
        id: str | None = None,
        returns: Any = None,
        **options: Unpack[InterruptOptions],
    ) -> Coroutine[Any, Any, Any]:
        """Asks for an answer and waits for it, for any time: the run is `input_required` (`auth_required` with
        `auth`), and neither process nor message nor lease of it is left. Nothing before it is executed again when the
        answer has come.

        `payload` is what is shown. `id` names the interrupt, once in a run; by default its place does. The answer's
        value is of the type `returns`, whose JSON Schema every answer is held against before it is accepted (`schema`
        says it otherwise). It is the payload when that was approved, what was given instead when it was edited, else
        what was responded; `returns=Answer` gives the answer as a whole. `actions`: which of these are taken. `to`:
        whose task it is. After `expires` the `default` is the answer. `escalate`: who is asked if nobody has answered.

        Raises InterruptRejected, unless `returns=Answer`; InterruptExpired without a default; InvalidInput for what
        cannot be asked; JournalMismatch when the code has changed; DecodeError for a value that its type refuses for
        a reason which the schema does not know."""
        place, whole = self._place(), returns is Answer
        question = asked(payload, id=id, returns=returns, **options)
        return self._interrupt(place, question, Any if whole or returns is None else returns, whole)

    async def _interrupt(self, place: str, question: Question, type_: Any, whole: bool) -> Any:
        self._parts.check()
        if question.id is not None and "/" in place:  # in a node of a graph
            step = place.rpartition("|")[2].partition("/")[0]
            name = self._parts.asking.free(place, (question.id, f"{question.id}@{step}", place))
            question = replace(question, id=None if name == place else name)
        given = await self._parts.asking.ask(place, question)
        if given.update is not None and "/" not in place:  # of a graph, the engine edits the state
            self._parts.memory.edit(await self._parts.blobs.value(given.update))
        if whole and given.action != "expire":
            return await read(self._parts, given, Any)
        if given.action in ("expire", "reject"):
            raise await refusal(self._parts, given)
        return codec.decode(await self._parts.blobs.value(given.value or Payload()), type_)

    # -- what is said to it -------------------------------------------------------------------------------------

    async def heard(self) -> list[Heard]:
        """What was said to the run (`callboard say`) since this was last asked: each message once, in order; often
        nothing. Journaled, so that every attempt hears the same at the same place."""
        place, parts = self._place(), self._parts
        parts.check()
        found = parts.steps.recorded(place, "heard", "heard")
        if found is None:
            new = await parts.inbox.take()
            found = await self._journaled(place, "heard", [one.word for one in new])
        return await self._spoken(found)

    @overload
    async def hear(self) -> Heard: ...
    @overload
    async def hear(self, timeout: timedelta) -> Heard | None: ...
    async def hear(self, timeout: timedelta | None = None) -> Heard | None:
        """The next message that is said to the run; waits for it, for any time, holding no worker. None after
        `timeout`."""
        clock, place, parts = self._place(), self._place(), self._parts
        parts.check()
        found = parts.steps.recorded(place, "hear", "heard")
        if found is None:
            until = None if timeout is None else await self._until(clock, timeout)
            new = await self._waited(until)
            found = await self._journaled(place, "hear", [one.word for one in new], durable=True)
        return next(iter(await self._spoken(found)), None)

    async def _waited(self, until: datetime | None) -> list[Spoken]:
        """The next message, or none when the time is up."""
        inbox = self._parts.inbox
        new = await inbox.take(1)
        with self._parts.hold.for_message(), self._parts.hold.until(until) if until else contextlib.nullcontext():
            while not new and (until is None or units.now() < until):
                left = _FOREVER_S if until is None else max(0.0, (until - units.now()).total_seconds())
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(left):
                        await inbox.more()
                new = await inbox.take(1)
        return new

    async def _until(self, place: str, timeout: timedelta) -> datetime:
        """When the waiting ends: from when it was first begun."""
        parts = self._parts
        found = parts.steps.recorded(place, "hear", "sleep")
        if found is not None and found.until is not None:
            return found.until
        until = units.now() + timeout
        entry = Step(
            at=place, name="hear", attempt=parts.record.attempt, n=parts.writer.number(), kind="sleep", until=until
        )  # fmt: skip
        await parts.steps.note(entry)
        return until

    async def _journaled(self, place: str, name: str, words: list[Word], *, durable: bool = False) -> Step:
        """The journal's entry. That nothing was said is written with whatever comes next."""
        parts = self._parts
        value = await parts.blobs.payload(encode(words)) if words else None
        entry = Step(
            at=place, name=name, attempt=parts.record.attempt, n=parts.writer.number(), kind="heard", value=value,
            heard=parts.inbox.position if words else 0,
        )  # fmt: skip
        if words or durable:
            await parts.steps.note(entry)
        else:
            parts.writer.put("step", entry, lazily=True)
        return entry

    async def _spoken(self, entry: Step) -> list[Heard]:
        if entry.value is None:
            return []
        blobs = self._parts.blobs
        found = []
        for word in msgspec.json.decode(await blobs.value(entry.value), type=list[Word]):
            content = codec.decode(await blobs.value(word.content or Payload()), Any)
            found.append(Heard(content, word.by, word.at, word.key))
        return found


def asked(payload: Any, *, id: str | None = None, returns: Any = None, **options: Unpack[InterruptOptions]) -> Question:
    """The question of an interrupt with these options: see `ctx.interrupt`. Raises InvalidInput, EncodeError; TypeError
    for an option that there is not."""
    require_known(options)
    schema, default = options.get("schema"), options.get("default", msgspec.UNSET)
    escalate = options.get("escalate", ())
    return Question(
        payload=codec.encode(payload),
        id=id,
        schema=schema if schema is not None else codec.json_schema(Any if returns in (None, Answer) else returns),
        auth=options.get("auth", False),
        actions=options.get("actions"),
        to=options.get("to"),
        expires=options.get("expires"),
        default=None if default is msgspec.UNSET else codec.encode(default),
        escalate=(escalate,) if isinstance(escalate, Escalate) else tuple(escalate),
    )


async def read(parts: Parts, given: Given, type_: Any) -> Answer:
    """The answer as authors see it. Raises DecodeError."""
    value = codec.decode(await parts.blobs.value(given.value or Payload()), type_)
    update = None if given.update is None else codec.decode(await parts.blobs.value(given.update), dict[str, Any])
    return Answer(
        id=given.id, action=given.action, value=value, by=given.by, comment=given.comment, at=given.at, update=update
    )


async def refusal(parts: Parts, given: Given) -> InterruptRejected | InterruptExpired:
    """What the code sees raised for an answer that is none."""
    return InterruptExpired(given.id) if given.action == "expire" else InterruptRejected(await read(parts, given, Any))
