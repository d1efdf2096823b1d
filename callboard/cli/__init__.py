"""The command line. `main` is the console script `callboard`.

From the bottom: `exits` (exit codes), `environment` (settings), `console` and `wording` (what is printed), `session`
(one connection for one command), then one module a command or group of commands, and `app`, which joins them.
Commands import what they need when they run, so that reading commands start fast.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from types import FrameType

__all__ = ["main"]

_LINGER_S = 1.0
_ROLES = frozenset({"coordinator", "gateway", "projector", "worker"})


def main() -> None:
    """Runs the command line and exits with its code (docs/cli.md lists them)."""
    is_role = bool(_ROLES.intersection(sys.argv[1:]))
    if is_role:  # one that is told to stop while it loads has nothing to hand back
        signal.signal(signal.SIGTERM, _not_begun)
    try:
        from .app import app
    except KeyboardInterrupt:  # while still loading
        sys.exit(130)
    try:
        app()
    except SystemExit as end:
        if is_role and isinstance(end.code, int | None):
            _end_in_time(end.code or 0)
        raise


def _end_in_time(code: int) -> None:
    """The role is done: threads of others (a step left behind, a driver's) keep its process for a second at most."""
    timer = threading.Timer(_LINGER_S, os._exit, (code,))
    timer.daemon = True
    timer.start()


def _not_begun(_signal: int, _frame: FrameType | None) -> None:
    os._exit(0)  # an exception out of an import or a starting loop may be caught, or leave a thread behind
