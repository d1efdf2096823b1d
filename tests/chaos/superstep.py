"""What states were saved, and which nodes ran when: nothing runs again that is behind a checkpoint or a note."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.chaos.history import TOLERANCE_S, Execution, RunHistory, read_lines
from tests.chaos.models import LOOSE


def read_nodes(path: Path) -> list[Execution]:
    """The executions of nodes that have left their line: all but those that ask, which begin again by design."""
    return read_lines(path, "node")


def wrong_nodes(nodes: list[Execution], runs: dict[str, RunHistory]) -> Iterator[str]:
    """A node that the owner of its run carries out again behind its note or checkpoint, or that one attempt carries out
    twice."""
    for one in nodes:
        history = runs.get(one.run)
        if history is None:
            yield f"{one.run}: node {one.step} was carried out, and the run is not in the log"
            continue
        done = _done(history, one.step)
        if done is not None and one.began > done + TOLERANCE_S and history.owns(one.attempt, one.began, -TOLERANCE_S):
            yield (
                f"{one.run}: node {one.step}, finished at {done:.3f}, was carried out again by attempt {one.attempt} "
                f"at {one.began:.3f}"
            )
    for (run, node, attempt), count in Counter((one.run, one.step, one.attempt) for one in nodes).items():
        if count > 1:
            yield f"{run}: attempt {attempt} carried node {node} out {count} times"


def _done(history: RunHistory, node: str) -> float | None:
    """Since when a node is not to be carried out again."""
    return history.behind.get(_superstep(node)) if history.last.agent in LOOSE else history.nodes.get(node)


def nodes_again(nodes: list[Execution]) -> int:
    """Nodes that were under way when their process was lost."""
    return sum(count > 1 for count in Counter((one.run, one.step) for one in nodes).values())


def wrong_forks(
    forks: dict[str, tuple[str, int]], nodes: list[Execution], steps: list[Execution], runs: dict[str, RunHistory]
) -> Iterator[str]:
    """A fork that says another beginning than was asked for, or carries out what its checkpoint is behind."""
    for run, (source, checkpoint) in forks.items():
        history = runs.get(run)
        if history is None:
            continue
        began = history.last.forked_from
        if began is None or (began.run, began.checkpoint) != (source, checkpoint):
            yield f"{run} was to begin from {checkpoint} of {source}, and says {began}"
            continue
        step = runs[source].supersteps.get(checkpoint)
        if step is None:
            yield f"{run} began from {checkpoint} of {source}, which is no checkpoint there"
            continue
        for one in nodes:
            if one.run == run and _superstep(one.step) <= step:
                yield f"{run} began behind superstep {step} and carried out {one.step}"
        for one in steps:
            if one.run == run and history.last.agent == "looper" and int(one.step) < step:
                yield f"{run} began behind checkpoint {step} and carried out step {one.step}"


def _superstep(node: str) -> int:
    """Of the root graph: `plan@5`, or `7/inner|first@1`."""
    return int(node.partition("/")[0]) if "/" in node else int(node.rpartition("@")[2])
