"""Logs with faults in them: written to a real broker by a hand that does not ask anybody."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from callboard.actors.audit import Finding, Report, audit
from callboard.topics.bus import Bus
from callboard.topics.client import head_bytes
from callboard.topics.messages import Command, RunRecord, Status, Step, Work, encode
from tests.support.projection import record as make_record

WAIT_S = 0.2


class Forger:
    """Writes states, entries and messages as it likes. A run that is not told otherwise is one of agent `reviewer`."""

    def __init__(self, bus: Bus) -> None:
        self.bus = bus
        self._revs: dict[str, int] = {}

    def record(self, run: str, status: Status, **fields: Any) -> RunRecord:
        """The next record of a run: right in itself."""
        rev = fields.pop("rev", None) or self._revs.get(run, 0) + 1
        self._revs[run] = rev
        now = datetime.now(UTC)
        given: dict[str, Any] = {"rev": rev, "dispatch": 1, "created_at": now, "updated_at": now} | fields
        return make_record(run, status, **given)

    async def state(self, run: str, status: Status, **fields: Any) -> int:
        """Its sequence."""
        return await self.bus.write(self.bus.subjects.state(run), encode(self.record(run, status, **fields)))

    async def path(self, run: str, *statuses: Status, **fields: Any) -> int:
        """Several states, in which attempt 1 begins with the first `running`; the last sequence."""
        sequence = attempt = 0
        for status in statuses:
            attempt = attempt or int(status is Status.RUNNING)
            sequence = await self.state(run, status, **({"attempt": attempt} | fields))
        return sequence

    async def step(self, run: str, at: str = "0", attempt: int = 1, n: int = 1, **fields: Any) -> int:
        """An entry of the journal."""
        entry = Step(at=at, name="work", attempt=attempt, n=n, **fields)
        return await self.raw(run, "step", encode(entry))

    async def raw(self, run: str, kind: str, data: bytes) -> int:
        """Any bytes."""
        return await self.bus.write(self.bus.subjects.event(run, kind), data)

    async def work(self, run: str, dispatch: int = 1, queue: str = "reviewer") -> int:
        """A work message."""
        return await self.bus.write(f"{self.bus.subjects.work}.{queue}", encode(Work(run=run, dispatch=dispatch)))

    async def command(self, run: str, verb: str) -> int:
        """A durable command."""
        return await self.bus.write(self.bus.subjects.command(run, verb), encode(Command()))

    async def timer(self, run: str, verb: str, at: datetime, **fields: Any) -> int:
        """A schedule."""
        head = head_bytes(
            {
                "Nats-Schedule": f"@at {at:%Y-%m-%dT%H:%M:%S.%f}Z",
                "Nats-Schedule-Target": self.bus.subjects.command(run, verb),
            }
        )
        return await self.bus.write(f"{self.bus.subjects.timer}.{run}.{verb}", encode(Command(**fields)), head)


async def look(bus: Bus, **options: Any) -> Report:
    """An audit that waits for no longer than it must."""
    return await audit(bus, **({"wait_s": WAIT_S} | options))


async def codes(bus: Bus, **options: Any) -> list[str]:
    """The codes of an audit, in the order of the log."""
    return [one.code for one in (await look(bus, **options)).findings]


async def only(bus: Bus, code: str, **options: Any) -> Finding:
    """The one finding that there is."""
    report = await look(bus, **options)
    assert [one.code for one in report.findings] == [code], report.findings
    assert not report.clean
    assert report.counts == {code: 1}
    return report.findings[0]


def lines(findings: Sequence[Finding]) -> str:
    """For messages of assertions."""
    return "\n".join(f"{one.code} {one.run}: {one.found}" for one in findings)
