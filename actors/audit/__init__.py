"""The auditor: reads the whole log of an installation and says which invariants do not hold.

catalog (what must hold) ── findings (what does not) ── remedies (the message that mends)
history: paths, journal, tree, blobs      one pass over the log, a few numbers a run
standing: queue, inbox, workers, canceled what live runs are owed, looked at twice with a grace time between
timetable                                 what schedules are owed, and have given
projection                                the read model against the log
auditor                                   all of it, in order

It writes no state: a repair is a message that the coordinators are meant to take, and that changes nothing where
nothing is wrong.
"""

from .auditor import audit
from .catalog import CATALOG, Rule, Severity
from .findings import Finding, Report

__all__ = ["CATALOG", "Finding", "Report", "Rule", "Severity", "audit"]
