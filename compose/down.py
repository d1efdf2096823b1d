"""Stop what `up.py` started, and nothing else: `make down`, or `python compose/down.py --help`.

Exit codes: 0 nothing runs any more (also when nothing ran), 1 something could not be stopped, 2 wrong arguments.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT))  # run as a script, from any folder; last, because of the folder callboard/ there

from compose.ledger import ClusterError, Ledger  # noqa: E402
from compose.up import DEFAULT_STATE, GRACE_SECONDS  # noqa: E402


def arguments(words: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="compose/down.py", description="Stop the cluster that up.py started.")
    parser.add_argument("--state", type=Path, default=DEFAULT_STATE, help="folder given to up.py (%(default)s)")
    parser.add_argument(
        "--grace", type=float, default=GRACE_SECONDS, help="seconds from SIGTERM to SIGKILL (%(default)g)"
    )
    parser.add_argument("--wipe", action="store_true", help="remove the folder too: streams, projections and logs")
    return parser.parse_args(words)


def down(options: argparse.Namespace) -> None:
    """Stop the cluster and say what was stopped.

    Raises:
        ClusterError: something still runs.
    """
    ledger = Ledger(options.state.absolute())
    if not ledger.folder.exists():
        print(f"nothing was started in {ledger.folder}")
        return
    with ledger.locked():
        alive = ledger.alive()
        killed = ledger.stop(ledger.entries, options.grace)
        if options.wipe:
            shutil.rmtree(ledger.folder)
    print(f"stopped: {', '.join(alive) or 'nothing ran'}")
    if killed:
        print(f"killed after {options.grace:g} s: {', '.join(killed)}")


def main(words: Sequence[str]) -> int:
    """Run `down` and turn its outcome into an exit code."""
    options = arguments(words)
    try:
        down(options)
    except ClusterError as error:
        print(f"down: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
