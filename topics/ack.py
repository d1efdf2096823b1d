"""What JetStream answers: acknowledgements of writes, and refusals as errors of ours."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from .client import Message
from .errors import BrokerError, PayloadTooLarge, StaleFence, StorageFull, Unavailable, WriteInFlight

_WRONG_LAST_SEQUENCE = 10071
_IN_PROGRESS = {10158, 10164}  # the same message id, another write under the same fence
_FULL = {10023, 10028, 10047, 10077, 10122}  # resources, storage, memory, store failed, stream bytes
_TOO_LARGE = {10054, 10097}  # above the max_msg_size of the stream, headers above 64 KiB
_TIMES_OUT = {408, 503}


class Refusal(msgspec.Struct):
    """The `error` of an answer of JetStream."""

    code: int = 0
    err_code: int = 0
    description: str = ""


class _PubAck(msgspec.Struct):
    seq: int = 0
    error: Refusal | None = None


_decode = msgspec.json.Decoder(_PubAck).decode


def settle(future: asyncio.Future[int], message: Message, subject: str) -> None:
    """Ends the future of a write on `subject` by its answer: with the stream sequence, or with the error."""
    if future.done():
        return
    if message.status:
        what = "no stream takes this subject at this moment (no leader, or not created)"
        future.set_exception(Unavailable(f"NATS: {what}"))
        return
    try:
        ack = _decode(message.data)
    except msgspec.MsgspecError as error:
        future.set_exception(BrokerError(f"NATS: acknowledgement not understood: {error}"))
        return
    if ack.error is None:
        future.set_result(ack.seq)
    else:
        future.set_exception(error_of(ack.error, f"publish on {subject}"))


def refusal_of(answer: dict[str, Any]) -> Refusal | None:
    """The refusal in an answer of the JetStream API, if it is one."""
    problem = answer.get("error")
    return None if problem is None else msgspec.convert(problem, Refusal)


def error_of(refusal: Refusal, where: str) -> BrokerError:
    """The refusal as the error that says what to do about it. Facts: `err_code`, `status`."""
    kind: type[BrokerError]
    if refusal.err_code == _WRONG_LAST_SEQUENCE:
        kind = StaleFence
    elif refusal.err_code in _IN_PROGRESS:
        kind = WriteInFlight
    elif refusal.err_code in _TOO_LARGE:
        kind = PayloadTooLarge
    elif refusal.err_code in _FULL or "maximum" in refusal.description or "insufficient" in refusal.description:
        kind = StorageFull
    elif refusal.code in _TIMES_OUT:
        kind = Unavailable
    else:
        kind = BrokerError
    text = f"NATS ({where}): {refusal.description} (err_code {refusal.err_code})"
    return kind(text, err_code=refusal.err_code, status=refusal.code)
