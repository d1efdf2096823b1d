"""`python -m tests.chaos`: one chaos run. Ends with 0 when everything held, with 1 when something was violated."""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

from tests.chaos import report
from tests.chaos.run import Outcome, play
from tests.chaos.stage import dump


def main() -> int:
    """The command."""
    asked = _arguments()
    seed = random.SystemRandom().randrange(1_000_000) if asked.seed is None else asked.seed
    folder = Path(tempfile.mkdtemp(prefix=f"callboard-chaos-{seed}-")) if asked.folder is None else asked.folder
    folder.mkdir(parents=True, exist_ok=True)
    logging.basicConfig(
        filename=folder / "chaos.log", format="%(asctime)s %(levelname)s %(name)s %(message)s", level=logging.INFO
    )
    print(f"chaos: seed {seed}, {asked.seconds:g} s, in {folder}", flush=True)
    began = time.monotonic()
    try:
        outcome = asyncio.run(_until_told(seed, asked.seconds, folder))
    except (KeyboardInterrupt, asyncio.CancelledError):
        print("chaos: broken off", file=sys.stderr)
        return 130
    print(outcome.table())
    figures = Path(".build") / f"chaos-{seed}.json"
    dump(outcome.as_json() | {"took_s": round(time.monotonic() - began, 1)}, figures)
    print(f"chaos: {figures} has the figures")
    if asked.report is not None:
        report.write(outcome, asked.report)
        print(f"chaos: {asked.report} has the report")
    if outcome.verdict.violations:
        print(f"chaos: VIOLATED; again: make chaos SEED={seed} SECONDS={asked.seconds:g}; logs in {folder}")
        return 1
    if asked.folder is None:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seed", type=int, help="random unless given; faults and requests follow from it")
    parser.add_argument("--seconds", type=float, default=60.0, help="for how long there are faults (60)")
    parser.add_argument("--report", type=Path, help="Markdown file for the report; between its marks, if it has them")
    parser.add_argument("--folder", type=Path, help="logs and stores (a temporary one, removed when all held)")
    return parser.parse_args()


async def _until_told(seed: int, seconds: float, folder: Path) -> Outcome:
    """SIGTERM ends it as Ctrl-C does: with everything stopped."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await play(seed, seconds, folder)


if __name__ == "__main__":
    sys.exit(main())
