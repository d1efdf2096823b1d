"""All checkpoints of a run at once, of its own state and of the subgraphs in it."""

from __future__ import annotations

from ...topics import reads
from ...topics.bus import Bus
from .state import Saved, is_checkpoint


async def kinds(bus: Bus, run: str) -> dict[str, int]:
    """How many events of each kind the log of a run holds, as the stream's leader knows it: one request."""
    filter_ = {"subjects_filter": bus.subjects.log(run)}
    info = await bus.api(f"STREAM.INFO.{bus.subjects.events}", filter_)
    subjects: dict[str, int] = (info or {}).get("state", {}).get("subjects") or {}
    return {subject.rpartition(".")[2]: count for subject, count in sorted(subjects.items())}


async def chains(bus: Bus, run: str) -> dict[str, list[Saved]]:
    """Every message with a checkpoint of a run, by kind, the oldest first; copies of a repeated write too."""
    found: dict[str, list[Saved]] = {}
    for kind in await kinds(bus, run):
        if is_checkpoint(kind):
            chain = found[kind] = []
            async for page in reads.read(bus, bus.subjects.events, bus.subjects.event(run, kind)):
                chain += map(Saved.of, page)
    return found
