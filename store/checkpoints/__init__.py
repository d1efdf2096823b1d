"""Checkpoints: snapshots of runs from which they continue, each stored as what has changed.

`checkpoints` is what others use. `scribe` writes a chain, on `piece` (where values lie) and `cell` (inline, blob,
encrypted by `cipher`); `reader` and `history` read, `state` is what they give.
"""

from .checkpoints import Checkpoints
from .scribe import Scribe, Sheet
from .state import Saved, State, is_checkpoint

__all__ = ["Checkpoints", "Saved", "Scribe", "Sheet", "State", "is_checkpoint"]
