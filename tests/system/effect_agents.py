"""An agent that does things outside. Each leaves a line in EFFECTS_FILE, with the key that it was given."""

from __future__ import annotations

import os
import signal
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from callboard import Context, DidNotHappen, Done, Happened, agent, hook


def lines() -> list[str]:
    """What was done so far."""
    file = Path(os.environ["EFFECTS_FILE"])
    return file.read_text().splitlines() if file.exists() else []


def write(line: str) -> None:
    """Does it."""
    with Path(os.environ["EFFECTS_FILE"]).open("a") as file:
        file.write(line + "\n")


@hook
def release(effect: Done) -> str:
    """Undoes a reservation."""
    write(f"release {effect.result} {effect.key}")
    return "released"


@hook
def refund(effect: Done) -> str:
    """Undoes a charge."""
    write(f"refund {effect.args[0]} {effect.key}")
    return "refunded"


@hook
def bank(key: str) -> Happened | DidNotHappen:
    """Looks whether the bank knows the key."""
    return Happened(f"found {key}") if any(line == f"charge {key}" for line in lines()) else DidNotHappen()


def reserve(order: str, idempotency_key: str) -> str:
    """Reserves the goods."""
    write(f"reserve {idempotency_key}")
    return f"reservation of {order}"


def charge(order: str, die: str, idempotency_key: str) -> str:
    """Charges, and may kill its process before or after that, the first time."""
    marker = Path(os.environ["EFFECTS_FILE"]).with_suffix(f".{order}")
    first = not marker.exists()
    marker.touch()
    if first and die == "before":
        os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(10)
    write(f"charge {idempotency_key}")
    if first and die == "after":
        os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(10)
    return f"charged {order}"


@agent("shop")
async def shop(ctx: Context, task: dict[str, Any]) -> dict[str, Any]:
    """Reserves, charges, and then sleeps if it is told to."""
    order = task["order"]
    reserved = await ctx.effect("reserve", reserve, order, compensate=release)
    known = bank if task.get("hook") else None
    charged = await ctx.effect("charge", charge, order, task.get("die", ""), compensate=refund, reconcile=known)
    if task.get("sleep"):
        await ctx.sleep(timedelta(seconds=task["sleep"]))
    return {"reserved": reserved, "charged": charged}
