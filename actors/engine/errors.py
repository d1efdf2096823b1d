"""What an agent's code may see raised by its context."""

from __future__ import annotations

from ...topics.errors import CallboardError
from ...topics.messages import ErrorInfo, Status


class EngineError(CallboardError):
    """Something about the execution of a run."""

    code = "engine_error"


class StepFailed(EngineError):
    """A step raised, now or in an earlier attempt. `error` says what; the exception itself is the cause, if it was
    raised now."""

    code = "step_failed"

    def __init__(self, name: str, error: ErrorInfo, place: str = "") -> None:
        super().__init__(f"step {name!r} failed: {error.message}", step=name)
        self.place = place
        self.name = name
        self.error = error
        self.retryable = error.retryable  # type: ignore[misc]


class ChildFailed(EngineError):
    """A child run ended without a result. `status` and `error` say how; it is data for the parent."""

    code = "child_failed"

    def __init__(self, run: str, agent: str, status: Status, error: ErrorInfo | None) -> None:
        why = f": {error.message}" if error else ""
        super().__init__(
            f"child run {run} of agent {agent!r} is {status}{why}", run=run, agent=agent, status=str(status)
        )
        self.error = error


class JournalMismatch(EngineError):
    """The code asks for another operation than the journal recorded at this place: it has changed, or depends on
    chance."""

    code = "journal_mismatch"

    def __init__(self, place: str, recorded: str, asked: str) -> None:
        super().__init__(
            f"operation {place} was {recorded} when it was recorded, and the code now asks for {asked}: an agent must "
            "ask for the same operations in the same order in every attempt. Undo the change, or start a new run; put "
            "what depends on time or chance into a step",
            place=place,
            recorded=recorded,
            asked=asked,
        )


class StepTimeout(EngineError, TimeoutError):
    """A step took longer than its `timeout`."""

    code = "step_timeout"
    retryable = True


class StepProcessFailed(EngineError):
    """The process of an isolated step died before it had a result."""

    code = "step_process_failed"
    retryable = True


class StepRaised(EngineError):
    """An isolated step raised an exception that cannot be made again here. Fact `type` names its class."""

    code = "step_raised"


class CheckpointMisplaced(EngineError):
    """`ctx.checkpoint()` was called where no snapshot of the run can be taken."""

    code = "checkpoint_misplaced"


class AttemptEnded(EngineError):
    """The attempt is over (its run was suspended, canceled, or taken over): the context serves no more."""

    code = "attempt_ended"
