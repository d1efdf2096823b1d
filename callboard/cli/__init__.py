"""The command line. `main` is the console script `callboard`.

From the bottom: `exits` (exit codes), `environment` (settings), `console` and `wording` (what is printed), `session`
(one connection for one command), then one module a command or group of commands, and `app`, which joins them.
Commands import what they need when they run, so that reading commands start fast.
"""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

__all__ = ["main"]

_ROLES = frozenset({"coordinator", "gateway", "projector", "worker"})


def main() -> None:
    """Runs the command line and exits with its code (docs/cli.md lists them)."""
    if _ROLES.intersection(sys.argv[1:]):  # a role that is told to stop while it loads has nothing to hand back
        signal.signal(signal.SIGTERM, _not_begun)
    try:
        from .app import app
    except KeyboardInterrupt:  # while still loading
        sys.exit(130)
    app()


def _not_begun(_signal: int, _frame: FrameType | None) -> None:
    os._exit(0)  # an exception out of an import or a starting loop may be caught, or leave a thread behind
