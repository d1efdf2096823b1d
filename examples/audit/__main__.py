"""The demo: `python -m examples.audit [TARGET]`, or `make demo TARGET=path`.

Starts nats-server, a coordinator, a gateway and two workers, has them audit the target (default: a large part of the
running standard library), kills one worker half-way, and checks from the log that nothing was lost and nothing was
done twice.

Exit codes: 0 everything held, 1 something did not or could not be done, 2 the target cannot be audited or wrong
arguments, 128 + n stopped by signal n (130: Ctrl-C).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from callboard.topics.errors import CallboardError

from .demo import outlet
from .demo.errors import DemoError, Interrupted
from .demo.patience import Patience
from .demo.show import Task, show
from .modules import AuditTargetError


def arguments(words: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m examples.audit",
        description="Audit a Python code base with two workers, one of which is killed.",
    )
    parser.add_argument(
        "target", nargs="?", metavar="TARGET", help="a folder or a .py file (default: the standard library)"
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FOLDER",
        help="where report.md and report.json are written (default: .callboard/demo)",
    )
    return parser.parse_args(words)


def main(words: Sequence[str]) -> int:
    """Run the demo and turn its outcome into an exit code."""
    options = arguments(words)
    patience = Patience()
    with patience.listening():
        try:
            task = Task.of(options.target)
            out = outlet.choose(options.out, options.target)
        except (AuditTargetError, DemoError) as error:
            return _say(str(error), 2)
        try:
            return 0 if show(task, out, Console(), patience) else 1
        except Interrupted as stopped:
            return _say(f"{stopped}; nothing is left running", 128 + stopped.number)
        except (DemoError, CallboardError) as error:
            return _say(f"{error}\nlogs of all processes: {out / 'logs'}", 1)
        finally:
            outlet.discard_if_empty(out)


def _say(text: str, code: int) -> int:
    print(f"demo: {text}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
