"""What an audit finds, and where it is gathered: counted without limit, kept up to a limit a code."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from msgspec import Struct

from .catalog import CATALOG, Severity
from .remedies import Remedy, Removal


class Finding(Struct, frozen=True, kw_only=True):
    """One thing that is not as it must be. The fields and codes are stable."""

    code: str
    severity: Severity
    found: str
    expected: str
    run: str | None = None
    sequence: int = 0
    """Sequence in the log (of `task_pending` and `command_pending`: in the INBOX) of the message at fault, 0 if there
    is none."""
    repair: str | None = None
    """Subject of the message that mends it; None when none can."""
    mended: bool | None = None
    """After a repair: whether it has mended. None when none was tried."""


class Report(Struct, frozen=True, kw_only=True):
    """The result of an audit."""

    clean: bool
    """Whether nothing was found that is more than a note, or all of it was mended."""
    sequence: int
    """The log was audited up to this sequence."""
    events: int
    runs: int
    live: int
    """Runs that have not ended."""
    tasks: int
    """Tasks that wait in the INBOX, or are in a coordinator's hands."""
    commands: int
    """The same of commands."""
    dead_letters: int
    truncated: bool
    """Whether the log has lost its beginning to retention: what only that could prove is not asked for."""
    projection: str | None
    """The file that was compared with the log."""
    counts: dict[str, int]
    """How many findings of each code; those of very many are not all listed."""
    findings: list[Finding]


class Suspect(NamedTuple):
    """A finding that may be a moment's: it counts when it is found again after the grace time."""

    finding: Finding
    remedy: Remedy | Removal | None = None

    @property
    def mark(self) -> tuple[str, str | None, int]:
        """The same as long as nothing has moved."""
        return self.finding.code, self.finding.run, self.finding.sequence


def finding(
    code: str, run: str | None, found: str, *, expected: str | None = None, sequence: int = 0, repair: str | None = None
) -> Finding:
    """A finding with the severity of its code; `expected` is its rule unless something nearer is said."""
    rule = CATALOG[code]
    return Finding(
        code=code,
        severity=rule.severity,
        run=run,
        found=found,
        expected=expected or rule.holds,
        sequence=sequence,
        repair=repair,
    )


def suspect(
    code: str, run: str | None, found: str, *, expected: str | None = None, sequence: int = 0,
    remedy: Remedy | Removal | None = None,
) -> Suspect:  # fmt: skip
    """A suspect, with what would mend it."""
    repair = remedy.subject if remedy else None
    return Suspect(finding(code, run, found, expected=expected, sequence=sequence, repair=repair), remedy)


class Findings:
    """Gathers findings: at most `limit` of each code are kept, all are counted."""

    def __init__(self, limit: int = 1000) -> None:
        self._limit = limit
        self.counts: Counter[str] = Counter()
        self.kept: list[Finding] = []
        self.open = 0
        """How many are more than a note and were not mended."""

    def add(self, code: str, run: str | None, found: str, *, expected: str | None = None, sequence: int = 0) -> None:
        """Takes in what no second look can change."""
        self.take(finding(code, run, found, expected=expected, sequence=sequence))

    def take(self, one: Finding) -> None:
        """Takes a finding in."""
        self.counts[one.code] += 1
        self.open += one.severity != "note" and not one.mended
        if self.counts[one.code] <= self._limit:
            self.kept.append(one)
