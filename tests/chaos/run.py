"""One chaos run from its seed to its verdict."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from tests.chaos import faults, workload
from tests.chaos.faults import Faults
from tests.chaos.people import People
from tests.chaos.stage import Stage
from tests.chaos.verdict import Verdict, judge
from tests.chaos.workload import Workload


class Outcome(NamedTuple):
    """What was done, and what came of it."""

    seed: int
    seconds: float
    faults: Counter[str]
    passed_over: int
    requests: Counter[str]
    verdict: Verdict

    def as_json(self) -> dict[str, Any]:
        """Everything, for a file."""
        return {
            "seed": self.seed,
            "seconds": self.seconds,
            "faults": dict(self.faults),
            "faults_passed_over": self.passed_over,
            "requests": dict(self.requests),
            "verdict": msgspec.to_builtins(self.verdict),
        }

    def table(self) -> str:
        """Everything, for people."""
        rows = [("faults", str(self.faults.total()))]
        rows += [(f"  {kind}", str(count)) for kind, count in sorted(self.faults.items())]
        rows += [("  passed over", str(self.passed_over))]
        rows += [(name, f"{count}") for name, count in self.verdict.totals.items()]
        rows += [(f"  ended as {status}", str(count)) for status, count in self.verdict.statuses.items()]
        rows += [("violations", str(sum(self.verdict.counts.values())))]
        rows += [(f"  {kind}", str(count)) for kind, count in self.verdict.counts.items()]
        width = max(len(name) for name, _ in rows)
        lines = [f"{name:{width}}  {value:>7}" for name, value in rows]
        return "\n".join([*lines, *(f"violated: {text}" for text in self.verdict.violations)])


async def play(seed: int, seconds: float, folder: Path) -> Outcome:
    """Plays faults and requests for so many seconds, heals, and judges. Stops all that it has started."""
    stage = Stage(folder)
    try:
        await stage.open()
        attack = Faults(stage, faults.plan(seed, seconds))
        people = People(stage, seed)
        await people.open()
        asked = Workload(stage, workload.plan(seed, seconds), people)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(_attacked(attack, stage))
                group.create_task(asked.run())
            await asked.finish()
            verdict = await judge(stage, asked.promises, asked.readers, people, seconds)
        finally:
            await asked.readers.close()
            await people.close()
        return Outcome(seed, seconds, attack.done, attack.passed_over, asked.promises.asked, verdict)
    finally:
        await stage.close()


async def _attacked(attack: Faults, stage: Stage) -> None:
    await attack.run()
    await stage.heal()
