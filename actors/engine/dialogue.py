"""`ctx.interrupt`: what a run asks, and gets answered."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from datetime import timedelta
from typing import Any, TypeVar, overload

import msgspec

from ...topics import codec
from ...topics.messages import Answer as Given
from ...topics.messages import Asked, Payload
from ..answer import Answer, Escalate, InterruptExpired, InterruptRejected
from .asking import Question
from .outside import Outside
from .parts import Parts

T = TypeVar("T")


class Dialogue(Outside):
    """The part of a context by which a run talks with people, and with agents that answer for them."""

    @overload
    def interrupt(
        self,
        payload: Any = ...,
        *,
        returns: type[T],
        id: str | None = ...,
        schema: dict[str, Any] | None = ...,
        auth: bool = ...,
        actions: Sequence[Asked] | None = ...,
        to: str | None = ...,
        expires: timedelta | None = ...,
        default: Any = ...,
        escalate: Escalate | Sequence[Escalate] = ...,
    ) -> Coroutine[Any, Any, T]: ...
    @overload
    def interrupt(
        self,
        payload: Any = ...,
        *,
        id: str | None = ...,
        returns: Any = ...,
        schema: dict[str, Any] | None = ...,
        auth: bool = ...,
        actions: Sequence[Asked] | None = ...,
        to: str | None = ...,
        expires: timedelta | None = ...,
        default: Any = ...,
        escalate: Escalate | Sequence[Escalate] = ...,
    ) -> Coroutine[Any, Any, Any]: ...
    def interrupt(
        self,
        payload: Any = None,
        *,
        id: str | None = None,
        returns: Any = None,
        schema: dict[str, Any] | None = None,
        auth: bool = False,
        actions: Sequence[Asked] | None = None,
        to: str | None = None,
        expires: timedelta | None = None,
        default: Any = msgspec.UNSET,
        escalate: Escalate | Sequence[Escalate] = (),
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
        type_ = Any if whole or returns is None else returns
        question = Question(
            payload=codec.encode(payload),
            id=id,
            schema=schema if schema is not None else codec.json_schema(type_),
            auth=auth,
            actions=actions,
            to=to,
            expires=expires,
            default=None if default is msgspec.UNSET else codec.encode(default),
            escalate=(escalate,) if isinstance(escalate, Escalate) else tuple(escalate),
        )
        return self._interrupt(place, question, type_, whole)

    async def _interrupt(self, place: str, question: Question, type_: Any, whole: bool) -> Any:
        self._parts.check()
        given = await self._parts.asking.ask(place, question)
        if whole and given.action != "expire":
            return await read(self._parts, given, Any)
        if given.action in ("expire", "reject"):
            raise await refusal(self._parts, given)
        return codec.decode(await self._parts.blobs.value(given.value or Payload()), type_)


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
