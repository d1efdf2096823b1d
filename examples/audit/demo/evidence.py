"""What really happened: the log of the whole tree, read from the broker, and the executions that the steps noted."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from callboard.store.journal import Seen, entries
from callboard.store.log import EventLog, decode_record
from callboard.topics.bus import Bus
from callboard.topics.config import BrokerSettings
from callboard.topics.messages import Artifact, RunRecord, Step
from callboard.topics.reads import Stored

from ..executions import Execution, executions


@dataclass
class Evidence:
    """The log of a tree by run, in the broker's order, and the executions."""

    root: str
    states: dict[str, list[RunRecord]] = field(default_factory=lambda: defaultdict(list))
    """Every state that a run ever had."""
    results: dict[tuple[str, str], list[Step]] = field(default_factory=lambda: defaultdict(list))
    """By run and place in the code: the recorded results of the step there. Two would be a step that finished twice."""
    children: set[str] = field(default_factory=set)
    """The runs that a journal says were started."""
    artifacts: dict[str, Artifact] = field(default_factory=dict)
    executions: list[Execution] = field(default_factory=list)
    messages: int = 0
    size_bytes: int = 0
    _seen: dict[str, Seen] = field(default_factory=lambda: defaultdict(Seen))

    def add(self, stored: Stored) -> None:
        """Takes in one message of the log."""
        self.messages += 1
        self.size_bytes += len(stored.data)
        run = stored.subject.rsplit(".", 2)[1]
        if stored.kind == "state":
            self.states[run].append(decode_record(stored.data))
            return
        for entry in entries(stored):
            if not self._seen[run].fresh(entry):
                continue
            if isinstance(entry, Artifact):
                self.artifacts[entry.name] = entry
            elif isinstance(entry, Step):
                self._step(run, entry)

    def _step(self, run: str, entry: Step) -> None:
        if entry.kind == "child" and entry.child is not None:
            self.children.add(entry.child)
        elif entry.kind == "step" and entry.status == "done":
            self.results[run, entry.at].append(entry)


def gather(nats_url: str, root: str, noted: Path) -> Evidence:
    """Read all of it. Raises CallboardError when the log cannot be read or has an entry that is none."""
    return asyncio.run(_gather(nats_url, root, noted))


async def _gather(nats_url: str, root: str, noted: Path) -> Evidence:
    settings = BrokerSettings(nats_url=nats_url, namespace="cb", nats_creds=None, nats_token=None)
    bus = await Bus.connect(settings, name="demo")
    found = Evidence(root)
    try:
        async for page in EventLog(bus).tree_history(root):
            for stored in page:
                found.add(stored)
    finally:
        await bus.close()
    found.executions = executions(noted)
    return found
