"""What is durable: the event log, checkpoints, blobs, artifacts and the projection. Knows `topics`.

`log` is the truth; `journal`, `artifacts` and `threads` read it by their own nouns; `blobs` holds what is too large
for a message; `deadletters` what was set aside; `agents` the registrations; `submit` is how anybody asks for runs;
`size` says what they take; `projection/` is the read model in SQLite.
"""

from typing import TYPE_CHECKING

from ..topics.lazy import lazy as _lazy

if TYPE_CHECKING:
    from .agents import AgentRegistry
    from .artifacts import Artifacts
    from .blobs import Blobs
    from .deadletters import DeadLetters
    from .errors import StoreError
    from .journal import Journal, load_journal
    from .log import EventLog, Loaded
    from .submit import Submitter
    from .threads import Threads

__all__ = [
    "AgentRegistry",
    "Artifacts",
    "Blobs",
    "DeadLetters",
    "EventLog",
    "Journal",
    "Loaded",
    "StoreError",
    "Submitter",
    "Threads",
    "load_journal",
]

__getattr__, __dir__ = _lazy(
    __name__,
    {
        ".agents": "AgentRegistry",
        ".artifacts": "Artifacts",
        ".blobs": "Blobs",
        ".deadletters": "DeadLetters",
        ".errors": "StoreError",
        ".journal": "Journal load_journal",
        ".log": "EventLog Loaded",
        ".submit": "Submitter",
        ".threads": "Threads",
    },
)
