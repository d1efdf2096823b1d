"""Request and reply between actors, by name and key: `cb.ask.{actor}.{partition}.{key}` on core NATS.

The request carries the JSON of the message, `Callboard-Method` if it names a method, and the key as a publication does.
The reply is the JSON of the answer, or an `ErrorInfo` under the header `Callboard-Error: {code}`.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ..topics import codec, trace
from ..topics.bus import Bus
from ..topics.client import Message, head_bytes
from ..topics.errors import NoResponders
from ..topics.messages import ErrorInfo, encode
from ..topics.subjects import Subjects, require_token
from .errors import AskFailed
from .publication import key_headers, key_token, partition_of

METHOD_HEADER = "Callboard-Method"
ERROR_HEADER = "Callboard-Error"


def ask_filter(subjects: Subjects, actor: str, partition: int) -> str:
    """What the owner of a partition of an actor's keys subscribes to."""
    return f"{subjects.ask}.{actor}.{partition}.*"


async def ask_actor(
    bus: Bus, actor: str, key: str, message: Any, returns: Any, timeout_s: float, method: str | None
) -> Any:
    """See `ActorContext.ask`."""
    token = key_token(key)
    headers = trace.inject(key_headers(key, token))
    if method is not None:
        headers[METHOD_HEADER] = method
    subject = f"{bus.subjects.ask}.{require_token('actor', actor)}.{partition_of(token)}.{token}"
    try:
        reply = await bus.request(subject, codec.encode(message), timeout_s, head_bytes(headers) if headers else None)
    except NoResponders as error:
        raise NoResponders(
            f"no process serves key {key[:80]!r} of actor {actor!r}: none hosts it, or its partition changes hands",
            actor=actor,
            key=key,
        ) from error
    if reply.head is not None and ERROR_HEADER in reply.headers:
        raise AskFailed(_info(reply))
    return codec.decode(reply.data, returns)


def _info(reply: Message) -> ErrorInfo:
    try:
        return msgspec.json.decode(reply.data, type=ErrorInfo)
    except msgspec.MsgspecError:
        return ErrorInfo(code=reply.headers[ERROR_HEADER], message=reply.data[:200].decode(errors="replace"))


def answer_value(bus: Bus, request: Message, value: Any) -> None:
    """Answers with a value. Raises EncodeError, PayloadTooLarge: answer with the error then."""
    bus.publish(request.reply, codec.encode(value))


def answer_error(bus: Bus, request: Message, info: ErrorInfo) -> None:
    """Answers with an error."""
    bus.publish(request.reply, encode(info), head_bytes({ERROR_HEADER: info.code}))
