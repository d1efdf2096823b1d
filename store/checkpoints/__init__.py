"""Checkpoints: snapshots of runs from which they continue, each stored as what has changed.

`checkpoints` is what others use. `scribe` writes a chain, on `piece` (where values lie) and `cell` (inline, blob,
encrypted by `cipher`); `reader` and `history` read, `state` is what they give. `difference` compares two states,
`editing` changes one from outside,
`labels` and `marks` keep some of them, `prune` removes the others.
"""

from .checkpoints import Checkpoints
from .difference import Change, Difference
from .labels import Labels
from .marks import Marks
from .outline import outline
from .prune import Choice, Pruned
from .scribe import Scribe, Sheet
from .state import Saved, State, is_checkpoint

__all__ = [
    "Change",
    "Checkpoints",
    "Choice",
    "Difference",
    "Labels",
    "Marks",
    "Pruned",
    "Saved",
    "Scribe",
    "Sheet",
    "State",
    "is_checkpoint",
    "outline",
]
