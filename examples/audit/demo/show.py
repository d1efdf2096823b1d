"""The demo from its first line to its last."""

from __future__ import annotations

import shutil
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from callboard.topics.errors import CallboardError

from ..models import Listing
from ..modules import list_modules
from . import evidence, outlet
from .board import KINDS, Board
from .errors import DemoError
from .gateway import Gateway
from .patience import Patience
from .stage import Stage
from .strike import Strike
from .summary import print_failures, print_summary
from .verdict import Check, Figures, checks, figures
from .view import FRAME_S, LiveView, PlainView, View, Words

TOPIC = "audit"
REPORTS = ("report.md", "report.json")
SILENCE_S = 180.0
"""Longer than any step may take: without an event for so long, nothing goes on any more."""


@dataclass(frozen=True, slots=True)
class Task:
    """What is audited: the target as the workers get it, and its modules."""

    target: str | None
    listing: Listing

    @classmethod
    def of(cls, target: str | None) -> Task:
        """Raises AuditTargetError when there is nothing to audit."""
        listing = list_modules(target)
        return cls(str(Path(target).expanduser().absolute()) if target else None, listing)

    @property
    def title(self) -> str:
        """What it is called in one line: the standard library without the list of its packages."""
        name = self.listing.target
        return name.partition(" (")[0] if self.target is None else name

    @property
    def modules(self) -> int:
        """How many there are."""
        return len(self.listing.tasks)


@dataclass(frozen=True, slots=True)
class Played:
    """What is left when the processes are gone."""

    strike: Strike
    result: Any
    figures: Figures
    checks: list[Check]
    reports: list[Path]
    job_s: float


def show(task: Task, out: Path, console: Console, patience: Patience) -> bool:
    """Runs the demo; whether everything held. `out` is a folder for the report, and for logs when something fails.

    Raises DemoError, CallboardError, Interrupted; nothing is left running then either.
    """
    began = time.monotonic()
    shutil.rmtree(out / "logs", ignore_errors=True)
    with Stage(patience) as stage:
        try:
            played = _play(stage, task, out, console, patience)
            if not all(check.holds for check in played.checks):
                stage.save_logs(out / "logs")
        except (DemoError, CallboardError):
            stage.save_logs(out / "logs")
            raise
    wall_s = time.monotonic() - began
    if isinstance(played.result, dict):
        kill = _kill(played)
        print_summary(console, played.result, played.figures, kill, (wall_s, played.job_s), played.reports)
    held = print_failures(console, played.checks)
    if not held:
        console.print(f"logs of all processes: {out / 'logs'}", soft_wrap=True, markup=False)
    return held


def _play(stage: Stage, task: Task, out: Path, console: Console, patience: Patience) -> Played:
    console.print("starting nats-server, coordinator, gateway and two workers …", style="dim")
    stage.start()
    gateway = Gateway(stage.gateway_url)
    published = time.monotonic()
    root = gateway.submit(TOPIC, {"target": task.target}, {"demo": "audit"})
    board = Board(root, task.modules)
    strike = Strike(stage, board)
    _watch(stage, gateway, board, strike, _view(console, stage, task, published), patience)
    job_s = time.monotonic() - published
    result = _result(gateway, root)
    files = {name: gateway.artifact(root, name) for name in REPORTS} if result is not None else {}
    reports = [outlet.write(out, name, content) for name, content in files.items()]
    found = evidence.gather(stage.nats_url, root, stage.executions)
    counted = figures(found, strike.worker, strike.moment)
    codes = stage.stop()
    held = [*checks(found, counted, result, task.modules, files), _ended(codes)]
    return Played(strike, result, counted, held, reports, job_s)


def _view(console: Console, stage: Stage, task: Task, published: float) -> View:
    words, title = (
        Words(stage, published),
        f"audit of {task.title}: {task.modules:,} module{'s' if task.modules != 1 else ''}",
    )
    return LiveView(console, words, stage, title) if console.is_terminal else PlainView(console, words, title)


def _watch(stage: Stage, gateway: Gateway, board: Board, strike: Strike, view: View, patience: Patience) -> None:
    """Shows the runs until all have ended."""
    heard = [time.monotonic()]

    def follow() -> None:
        try:
            for event in gateway.events(board.lead.id, KINDS):
                board.apply(event)
                strike.look()
                heard[0] = time.monotonic()
        except Exception as error:  # noqa: BLE001 - told by the main thread
            board.problem = error
        board.over = True

    threading.Thread(target=follow, name="events", daemon=True).start()
    with view:
        while not board.over:
            view.show(board, strike)
            stage.check()
            if time.monotonic() - heard[0] > SILENCE_S:
                raise DemoError(f"nothing has happened for {SILENCE_S:g} s; the lead is {board.lead.status}")
            patience.pause(FRAME_S)
        view.show(board, strike)
    if board.problem is not None:
        raise DemoError(f"the event stream cannot be followed: {board.problem}") from board.problem


def _result(gateway: Gateway, root: str) -> Any:
    """What the lead returned; None, when it has not, is told by the checks."""
    return gateway.result(root) if gateway.run(root)["status"] == "completed" else None


def _ended(codes: dict[str, int | None]) -> Check:
    odd = [f"{name}: {code}" for name, code in codes.items() if code != 0]
    return Check("every process ended cleanly when it was told to", not odd, ", ".join(odd))


def _kill(played: Played) -> str:
    strike, found = played.strike, played.figures
    if strike.victim is None:
        return "no worker was killed: the job was over before one of them held half-done work"
    text = f"{strike.victim.name} was killed with SIGKILL after {strike.done} reviews"
    if not found.moved:
        return f"{text}, having just ended all it held"
    return f"{text}; they were dispatched anew within {found.seen_lost_s:.1f} s"
