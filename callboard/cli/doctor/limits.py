"""Agents with limits: how many of their slots are in use, what waits, and slots that nothing uses."""

from __future__ import annotations

import msgspec

from ...actors.coordinator.gate import holds
from ...store.agents import AgentRegistry
from ...store.log import EventLog
from ...topics import reads
from ...topics.bus import Bus
from ...topics.messages import AgentInfo, Gate, Limits
from .check import Check, note, ok

_SHOWN = 3


async def limits(bus: Bus) -> list[Check]:
    """One line for each agent that has limits."""
    return [await _agent(bus, info, info.limits) for info in await AgentRegistry(bus).all() if info.limits is not None]


async def _agent(bus: Bus, info: AgentInfo, limit: Limits) -> Check:
    subjects = bus.subjects
    stored = await reads.last_from_leader(bus, subjects.actors, subjects.gate(info.name))
    gate = Gate(agent=info.name) if stored is None else msgspec.json.decode(stored.data, type=Gate)
    text = f"{len(gate.holders)} of {limit.concurrency} slots in use, {await _waiting(bus, info.name)} runs wait"
    if limit.per_key is not None:
        text += f"; at most {limit.per_key} for each {limit.key}"
    if limit.rate is not None:
        text += f"; at most {limit.rate:g} begin in a second"
    idle = await _idle(bus, gate)
    if not idle:
        return ok(f"limits {info.name}", text)
    runs = ", ".join(idle[:_SHOWN]) + (", …" if len(idle) > _SHOWN else "")
    return note(
        f"limits {info.name}",
        f"{text}; {len(idle)} held by runs that do not use them: {runs}",
        "a coordinator gives them back at its next look, within seconds; if not, look at its log",
    )


async def _waiting(bus: Bus, agent: str) -> int:
    subjects = bus.subjects
    info = await bus.api(f"STREAM.INFO.{subjects.work_stream}", {"subjects_filter": f"{subjects.work}.{agent}.*.*"})
    return sum((((info or {}).get("state") or {}).get("subjects") or {}).values())


async def _idle(bus: Bus, gate: Gate) -> list[str]:
    """The runs that hold a slot and are not queued or at work with that dispatch."""
    records = await EventLog(bus).load_many({one.run for one in gate.holders}) if gate.holders else {}
    return [
        one.run for one in gate.holders if (record := records.get(one.run)) is None or not holds(record, one.dispatch)
    ]
