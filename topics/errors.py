"""The errors of Callboard: one root, one branch a folder, each with a stable code.

    CallboardError
    ├── InvalidInput         what was handed in cannot be used; the message says where and what to do
    │   ├── InvalidSubject, InvalidRunId, InvalidMessage
    │   └── InvalidAnswer    an answer that its interrupt does not take
    ├── NotFound             the named thing does not exist
    │   └── InterruptNotFound
    ├── Conflict             the thing exists and differs
    │   ├── IdempotencyConflict, ThreadBusy, InterruptAnswered, InterruptAmbiguous
    ├── IllegalTransition    a command that the run's status does not allow
    ├── BrokerError          the broker refused or could not be reached
    │   ├── StaleFence       the fenced subject has moved on: whoever writes has lost the run
    │   ├── WriteInFlight    another fenced write is being replicated; try again
    │   ├── StorageFull      a stream limit or the disk is reached
    │   ├── Unavailable      not connected, no leader, no answer in time; the outcome may be unknown
    │   ├── NoResponders     nobody serves the subject
    │   └── PayloadTooLarge  above the server's max_payload
    └── …                    the branches of the other folders, in their own `errors`

`code` goes on the wire and into HTTP bodies and never changes its meaning. `retryable` says whether the same call can
succeed later without a change by the caller. Facts are attributes, never parsed out of the text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any, ClassVar


class CallboardError(Exception):
    """Root of every error that Callboard raises on purpose."""

    code: ClassVar[str] = "error"
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, **facts: Any) -> None:
        super().__init__(message)
        self.message = message
        self.facts = facts

    def __getattr__(self, name: str) -> Any:
        facts = self.__dict__.get("facts") or {}
        if name in facts:
            return facts[name]
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")


class InvalidInput(CallboardError):
    """What was handed in cannot be used."""

    code = "invalid_input"


class InvalidSubject(InvalidInput):
    """A topic, agent, key or namespace that cannot be a subject token."""

    code = "invalid_subject"


class InvalidRunId(InvalidInput):
    """Not the form of a run id."""

    code = "invalid_run_id"


class InvalidMessage(InvalidInput):
    """A message whose body or headers do not have the form that its subject asks for."""

    code = "invalid_message"


class InvalidAnswer(InvalidInput):
    """An interrupt does not take this answer: its action, or its value by the interrupt's schema. Nothing was accepted.
    Facts: `run`, `interrupt`, `faults`."""

    code = "invalid_answer"


class NotFound(CallboardError):
    """The named run, thread, artifact, agent or message does not exist."""

    code = "not_found"


class InterruptNotFound(NotFound):
    """No interrupt of this id is open in the run or below it. Facts: `run`, `open` (those that are)."""

    code = "interrupt_not_found"


class Conflict(CallboardError):
    """The named thing exists and differs from what was asked for."""

    code = "conflict"


class IdempotencyConflict(Conflict):
    """The idempotency key was used before, with another body."""

    code = "idempotency_conflict"


class ThreadBusy(Conflict):
    """A run was rejected because another one is at work in its thread. Facts: `run`, `thread`, `busy`."""

    code = "thread_busy"


class InterruptAnswered(Conflict):
    """The interrupt was answered before, in another way. Facts: `run`, `interrupt`, `open`."""

    code = "interrupt_answered"


class InterruptAmbiguous(Conflict):
    """The answer does not say which of several open interrupts it is for. Facts: `run`, `open`."""

    code = "interrupt_ambiguous"


class IllegalTransition(Conflict):
    """The run's status does not allow the command."""

    code = "illegal_transition"


class BrokerError(CallboardError):
    """The broker refused, or could not be reached."""

    code = "broker_error"


class StaleFence(BrokerError):
    """The fenced subject has moved on (err_code 10071, 10164 after retries): the writer does not own the run any
    more."""

    code = "stale_fence"


class WriteInFlight(BrokerError):
    """Another write under the same fence (err_code 10164) or message id (10158) is being replicated."""

    code = "write_in_flight"
    retryable = True


class StorageFull(BrokerError):
    """A limit of the stream or the disk is reached; nothing was stored."""

    code = "storage_full"
    retryable = True


class Unavailable(BrokerError):
    """Not connected, no leader, or no answer in time. A write may or may not have been stored."""

    code = "unavailable"
    retryable = True


class NoResponders(BrokerError):
    """Nobody serves the subject at this moment."""

    code = "no_responders"
    retryable = True


class PayloadTooLarge(BrokerError):
    """The message is above the server's max_payload."""

    code = "payload_too_large"


def error_from_code(
    code: str, message: str, facts: Mapping[str, Any] | None = None, *, retryable: bool | None = None
) -> CallboardError:
    """The error that has this code on the wire, as the class that raised it there.

    A code that no loaded class has (another version's, or the agent's own) gives a CallboardError with that code.
    `retryable`, when given, is what the sender said."""
    kind = _class_of(CallboardError, code) or CallboardError
    error = kind.__new__(kind)
    CallboardError.__init__(
        error, message, **{str(name): value for name, value in (facts or {}).items() if name != "message"}
    )
    own: dict[str, Any] = error.__dict__
    if kind.code != code:
        own["code"] = code
    if retryable is not None and kind.retryable != retryable:
        own["retryable"] = retryable
    return error


def _class_of(root: type[CallboardError], code: str) -> type[CallboardError] | None:
    if root.__dict__.get("code") == code:
        return root
    for kind in root.__subclasses__():
        found = _class_of(kind, code)
        if found is not None:
            return found
    return None


def did_you_mean(name: str, known: Iterable[Any]) -> str:
    """`; did you mean 'x'?`, or what there is."""
    names = sorted(str(one) for one in known)
    close = get_close_matches(str(name), names, n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; there are {', '.join(names) or 'none'}"
