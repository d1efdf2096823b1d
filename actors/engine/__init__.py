"""The code engine: carries out agents that are async functions with a context.

attempt ── context ── parts ─┬─ places      where in the code an operation stands
                             ├─ steps       journaled functions; some in processes of their own (`isolation`)
                             ├─ effects     what is done outside: claimed, settled, unknown; undone by `undo`
                             ├─ asking      interrupts: questions that outlive the attempt (`dialogue` asks them)
                             ├─ children    child runs
                             ├─ tenure      whether the run is still this attempt's
                             ├─ tether      how they end the attempt, until it has ended
                             ├─ hold        durable waits, and when to let go of the worker
                             └─ writer      fenced writes
"""

from .attempt import Attempt
from .context import Context
from .errors import (
    AttemptEnded,
    ChildFailed,
    EngineError,
    JournalMismatch,
    StepFailed,
    StepProcessFailed,
    StepRaised,
    StepTimeout,
)
from .kin import Child
from .place import number_branches
from .tenure import Lease
from .thread import Said, ThreadHandle
from .threads import StepThreads
from .workplace import Workplace

__all__ = [
    "Attempt",
    "AttemptEnded",
    "Child",
    "ChildFailed",
    "Context",
    "EngineError",
    "JournalMismatch",
    "Lease",
    "Said",
    "StepFailed",
    "StepProcessFailed",
    "StepRaised",
    "StepThreads",
    "StepTimeout",
    "ThreadHandle",
    "Workplace",
    "number_branches",
]
