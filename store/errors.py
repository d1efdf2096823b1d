"""The errors of the store, and errors as data: what stands in a reply or a dead letter, and the way back.

StoreError               what is durable is not as it should be
├── BlobMissing          the object store does not hold the blob, or not all of it
├── BlobCorrupt          what it holds is not what was put
├── CheckpointMissing    (NotFound) a checkpoint, or a message that holds a part of its state, is gone
├── UnknownNode          (InvalidInput) an edit names a node that the agent's graph does not have
└── CheckpointKeyMissing its values are encrypted with a key that this process does not have
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import msgspec

from ..topics.errors import CallboardError, InvalidInput, NotFound, error_from_code
from ..topics.messages import ErrorInfo, encode

_PLAIN = (str, int, float, bool, type(None))


class StoreError(CallboardError):
    """What is durable is not as it should be."""

    code = "store_error"


class BlobMissing(StoreError):
    """The blob, or a part of it, is not in the object store. Facts: `blob`, `bucket`, and `run` where one is known."""

    code = "blob_missing"


class BlobCorrupt(StoreError):
    """The bytes in the object store have another digest or size than the blob. Facts: as
    for `BlobMissing`."""

    code = "blob_corrupt"


class CheckpointMissing(StoreError, NotFound):
    """The checkpoint, or a message that holds a part of its state, is not in the log: it was pruned, or is older than
    what is kept. Facts: `run`, `checkpoint`."""

    code = "checkpoint_missing"


class UnknownNode(StoreError, InvalidInput):
    """An edit is to come from a node that the agent's graph does not have. Facts: `agent`, `node`."""

    code = "unknown_node"


class CheckpointKeyMissing(StoreError):
    """A value of a checkpoint is encrypted, and no key that this process has opens it."""

    code = "checkpoint_key_missing"


@contextmanager
def naming(what: str, run: str) -> Iterator[None]:
    """A blob that cannot be read inside of the block is told of as what it is: `what` (its result, …) of which run."""
    try:
        yield
    except (BlobMissing, BlobCorrupt) as error:
        if "run" in error.facts:
            raise
        message = f"{what} of run {run} cannot be read: {error.message}"
        raise type(error)(message, **error.facts | {"run": run}) from error


def info_of(error: BaseException) -> ErrorInfo:
    """The error as data, whatever it is: it can be sent, and nothing is raised here. An error that is not Callboard's
    own gets the code `error` and its class as `type`."""
    kind = type(error)
    name = sendable(f"{kind.__module__}.{kind.__qualname__}")
    if not isinstance(error, CallboardError):
        return ErrorInfo(code=CallboardError.code, message=text_of(error) or kind.__name__, type=name)
    return ErrorInfo(
        code=error.code,
        message=text_of(error.__dict__.get("message", "")) or kind.__name__,
        type=name,
        retryable=error.retryable,
        details=_plain(error.__dict__.get("facts") or {}) or None,
    )


def trace_of(error: BaseException, chars: int) -> str:
    """The end of the error's traceback, as text that can be sent; empty if it cannot be made."""
    try:
        return sendable("".join(traceback.format_exception(error))[-chars:])
    except Exception as failed:  # noqa: BLE001  # the author's `__str__`, `__notes__`, …
        return f"the traceback cannot be made: {type(failed).__name__}"


def sendable(text: str) -> str:
    """The text, with lone surrogates, as stand in names of files that are not UTF-8, written out."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def text_of(said: Any) -> str:
    """What an error, or any value of the author's, says of itself, as text that can be sent."""
    try:
        return sendable(str(said))
    except Exception as failed:  # noqa: BLE001  # the author's `__str__`
        return f"a {type(said).__name__} whose text cannot be made ({type(failed).__name__})"


def error_of(info: ErrorInfo) -> CallboardError:
    """The error that `info` tells of, to be raised here."""
    return error_from_code(info.code, info.message, info.details, retryable=info.retryable)


def _plain(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The facts that JSON can carry; others as text."""
    return {sendable(name): _carried(value) for name, value in facts.items()}


def _carried(value: Any) -> Any:
    try:
        plain = value if isinstance(value, _PLAIN) else msgspec.to_builtins(value)
        encode(plain)
    except Exception:  # noqa: BLE001  # the author's value: whatever keeps JSON from carrying it, it is told as text
        return text_of(value)
    return plain
