"""The errors of the store, and errors as data: what stands in a reply or a dead letter, and the way back.

StoreError               what is durable is not as it should be
├── BlobMissing          the object store does not hold the blob, or not all of it
├── BlobCorrupt          what it holds is not what was put
├── CheckpointMissing    (NotFound) a checkpoint, or a message that holds a part of its state, is gone
├── UnknownNode          (InvalidInput) an edit names a node that the agent's graph does not have
└── CheckpointKeyMissing its values are encrypted with a key that this process does not have
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import msgspec

from ..topics.errors import CallboardError, InvalidInput, NotFound, error_from_code
from ..topics.messages import ErrorInfo

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
    """The error as data. An error that is not Callboard's own gets the code `error` and its class as `type`."""
    kind = type(error)
    name = f"{kind.__module__}.{kind.__qualname__}"
    if not isinstance(error, CallboardError):
        return ErrorInfo(code=CallboardError.code, message=str(error) or kind.__name__, type=name)
    return ErrorInfo(
        code=error.code,
        message=error.message,
        type=name,
        retryable=error.retryable,
        details=_plain(error.facts) or None,
    )


def error_of(info: ErrorInfo) -> CallboardError:
    """The error that `info` tells of, to be raised here."""
    return error_from_code(info.code, info.message, info.details, retryable=info.retryable)


def _plain(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The facts that JSON can carry; others as text."""
    return {name: _carried(value) for name, value in facts.items()}


def _carried(value: Any) -> Any:
    if isinstance(value, _PLAIN):
        return value
    try:
        return msgspec.to_builtins(value)
    except (TypeError, ValueError):
        return str(value)
