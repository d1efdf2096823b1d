"""A short chaos run with a seed of its own; `CHAOS_SEED=7` plays a given one again."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos import faults, workload

ROOT = Path(__file__).parents[2]
SECONDS = 60


@pytest.mark.chaos
@pytest.mark.cluster
@pytest.mark.crash
@pytest.mark.system
@pytest.mark.slow
@pytest.mark.timeout(420)
def test_everything_holds_under_random_faults(tmp_path: Path) -> None:
    """In a process of its own, as `make chaos` does it."""
    seed = int(os.environ.get("CHAOS_SEED") or random.SystemRandom().randrange(1_000_000))
    print(f"chaos: seed {seed}")
    command = [sys.executable, "-m", "tests.chaos", "--seed", str(seed), "--seconds", str(SECONDS)]
    done = subprocess.run(
        [*command, "--report", str(tmp_path / "report.json"), "--folder", str(tmp_path / "stage")],
        capture_output=True, text=True, cwd=ROOT, timeout=400,
    )  # fmt: skip
    assert done.returncode == 0, f"seed {seed}\n{done.stdout}\n{done.stderr}"


def test_a_seed_gives_the_same_faults_and_requests_again() -> None:
    assert faults.plan(7, 60) == faults.plan(7, 60) != faults.plan(8, 60)
    assert workload.plan(7, 60) == workload.plan(7, 60) != workload.plan(8, 60)
