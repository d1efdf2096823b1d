"""The command line. `main` is the console script `callboard`.

From the bottom: `exits` (exit codes), `environment` (settings), `console` and `wording` (what is printed), `session`
(one connection for one command), then one module a command or group of commands, and `app`, which joins them.
Commands import what they need when they run, so that reading commands start fast.
"""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Runs the command line and exits with its code (docs/cli.md lists them)."""
    try:
        from .app import app
    except KeyboardInterrupt:  # while still loading
        sys.exit(130)
    app()
