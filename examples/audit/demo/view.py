"""The live tree of the runs: drawn again and again in a terminal, told in lines elsewhere."""

from __future__ import annotations

import time
from collections import Counter
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from callboard import Status

from ..agents import STEPS
from .board import Board, Row
from .stage import Role, Stage
from .strike import Strike

FRAME_S = 0.1
LINE_S = 2.0
MOVED_SHOWN = 8
_ORDER = (Status.COMPLETED, Status.RUNNING, Status.QUEUED)
_MARKS = {Status.COMPLETED: ("✓", "green"), Status.RUNNING: ("▶", "cyan"), Status.QUEUED: ("·", "yellow")}


class View(Protocol):
    """Shows a board as it changes."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def show(self, board: Board, strike: Strike) -> None:
        """Shows how things stand now."""
        ...


class Words:
    """What both views say."""

    def __init__(self, stage: Stage, began: float) -> None:
        self._stage, self._began = stage, began

    def elapsed(self, moment: float | None = None) -> str:
        """Seconds since the task was published."""
        return f"{(moment or time.monotonic()) - self._began:5.1f} s"

    def worker(self, worker: str) -> str:
        """The name of a worker, from its id."""
        role = self._stage.workers.get(worker)
        return role.name if role else worker

    def counts(self, board: Board) -> str:
        """The reviewers by status."""
        found = Counter(row.status for row in board.reviewers)
        order = [*_ORDER, *(status for status in found if status not in _ORDER)]
        return ", ".join(f"{found[status]} {status}" for status in order if found[status]) or "none yet"

    def lead(self, board: Board) -> str:
        """What the lead is doing."""
        row = board.lead
        if row.ended:
            return str(row.status)
        if row.status is Status.WAITING:
            return "suspended: " + row.reason
        return f"{row.status} ({row.message})" if row.message else str(row.status)

    def moved(self, row: Row) -> str:
        """The fate of a run whose worker was killed."""
        lost = self.worker(row.lost_by[-1])
        if row.status is Status.QUEUED or row.worker == row.lost_by[-1]:
            return f"left by {lost}, waits for a worker"
        doing = "completed" if row.ended and row.status is Status.COMPLETED else str(row.status)
        return f"{lost} → {self.worker(row.worker)}, attempt {row.attempt}: {doing}"


class LiveView:
    """A tree in the terminal."""

    def __init__(self, console: Console, words: Words, stage: Stage, title: str) -> None:
        self._words, self._stage, self._title = words, stage, title
        self._live = Live(console=console, auto_refresh=False, transient=False, vertical_overflow="crop")

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.__exit__(kind, error, trace)

    def show(self, board: Board, strike: Strike) -> None:
        """Draws the tree anew."""
        with board.lock:
            drawn = self._draw(board, strike)
        self._live.update(drawn, refresh=True)

    def _draw(self, board: Board, strike: Strike) -> RenderableType:
        head = Text.assemble((self._title, "bold"), f"  {self._words.elapsed()}")
        tree = Tree(self._lead(board), guide_style="dim")
        for worker, role in self._stage.workers.items():
            self._add_worker(tree, board, strike, worker, role)
        if board.moved:
            self._add_moved(tree, board)
        return Group(head, "", tree, "")

    def _lead(self, board: Board) -> RenderableType:
        table = Table.grid(padding=(0, 1))
        bar = ProgressBar(total=max(1, board.total), completed=board.ended, width=30)
        lead = Text.assemble(("lead", "bold"), " ", (self._words.lead(board), "dim"))
        table.add_row(lead)
        line = Table.grid(padding=(0, 1))
        line.add_row(bar, f"{board.ended}/{board.total} reviews", Text(self._words.counts(board), style="dim"))
        return Group(table, line)

    def _add_worker(self, tree: Tree, board: Board, strike: Strike, worker: str, role: Role) -> None:
        running = board.running(worker)
        done = sum(row.ended and row.worker == worker for row in board.reviewers)
        label = Text.assemble((role.name, "bold"), f"  pid {role.pid}  {done} reviews done  ")
        if role is strike.victim:
            label.append(f"SIGKILL at {self._words.elapsed(strike.at).strip()}", style="bold red")
        branch = tree.add(label)
        for row in running if role is not strike.victim else []:
            branch.add(self._run(row))

    def _run(self, row: Row) -> RenderableType:
        table = Table.grid(padding=(0, 1))
        table.add_column(width=36, no_wrap=True, overflow="ellipsis")
        style = "bold yellow" if row.lost_by else ""
        bar = ProgressBar(total=STEPS, completed=row.current, width=10)
        again = Text(f"attempt {row.attempt}", style="yellow") if row.attempt > 1 else Text("")
        table.add_row(
            Text(row.module, style=style), bar, f"{row.current:.0f}/{STEPS}", Text(row.message, style="dim"), again
        )
        return table

    def _add_moved(self, tree: Tree, board: Board) -> None:
        moved = board.moved
        branch = tree.add(Text(f"{_runs(len(moved))} moved on from the killed worker", style="bold yellow"))
        for row in moved[:MOVED_SHOWN]:
            mark, style = _MARKS.get(row.status, ("✗" if row.ended else "·", "red" if row.ended else "yellow"))
            branch.add(Text.assemble((mark, style), f" {row.module or 'lead'}  ", (self._words.moved(row), "dim")))
        if len(moved) > MOVED_SHOWN:
            branch.add(Text(f"and {len(moved) - MOVED_SHOWN} more", style="dim"))


class PlainView:
    """Lines: one now and then, and one for each thing that happens to the workers."""

    def __init__(self, console: Console, words: Words, title: str) -> None:
        self._console, self._words, self._title = console, words, title
        self._due = 0.0
        self._state = (-1, "")
        self._struck = False
        self._told: dict[str, str] = {}

    def __enter__(self) -> Self:
        self._say(self._title)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def _say(self, text: str, moment: float | None = None) -> None:
        self._console.print(f"{self._words.elapsed(moment)}  {text}", soft_wrap=True, markup=False, highlight=False)

    def show(self, board: Board, strike: Strike) -> None:
        """Says what is new."""
        with board.lock:
            if strike.victim is not None and not self._struck:
                self._struck = True
                self._say(_kill(strike), strike.at)
            self._say_moved(board)
            state = (board.ended, self._words.lead(board))
            if state != self._state and (time.monotonic() >= self._due or board.lead.ended):
                self._due, self._state = time.monotonic() + LINE_S, state
                self._say(f"{board.ended}/{board.total} reviews ({self._words.counts(board)}); lead {state[1]}")

    def _say_moved(self, board: Board) -> None:
        for row in board.moved:
            told = self._words.moved(row)
            if self._told.get(row.id) != told:
                self._told[row.id] = told
                self._say(f"  moved: {row.module or 'lead'}: {told}")


def _kill(strike: Strike) -> str:
    assert strike.victim is not None
    return f"SIGKILL {strike.victim.name} (pid {strike.victim.pid}), which holds {_runs(len(strike.held))}"


def _runs(count: int) -> str:
    return f"{count} run{'' if count == 1 else 's'}"
