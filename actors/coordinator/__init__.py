"""The coordinator: owns the Run state machines. `transitions` is pure; `ledger` applies; `carrier` carries out.

intake ─┐                       ┌─ transitions (pure)
commands ├─ ledger ── decide ───┤
coordinator (actor, requests)   └─ effects.owed → carrier
"""

from .coordinator import Coordinator

__all__ = ["Coordinator"]
