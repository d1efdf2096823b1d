"""An agent whose step runs in a process of its own, and starts another one there."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from callboard import Context, agent


def lingers(folder: str, attempt: int) -> str:
    """Does not end in the first attempt; names its processes in a file."""
    if attempt > 1:
        return "done"
    below = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"])
    file = Path(folder) / "pids"
    file.with_suffix(".new").write_text(f"{os.getppid()} {os.getpid()} {below.pid}")
    file.with_suffix(".new").rename(file)
    time.sleep(300)
    return "not reached"


@agent("apart")
async def apart(ctx: Context, folder: str) -> str:
    """Its step is somewhere else."""
    return await ctx.step(lingers, folder, ctx.run.attempt, isolate="process")
