"""Every code that a finding can have, and the invariant that it breaks. docs/check.md explains them."""

from __future__ import annotations

from typing import Literal, NamedTuple

Severity = Literal["error", "warning", "note"]
"""`error`: an invariant is broken. `warning`: something stands still that should move. `note`: worth knowing."""


class Rule(NamedTuple):
    """One invariant. `mends`: what a repair publishes; None when no message can mend it."""

    severity: Severity
    holds: str
    mends: str | None = None


CATALOG: dict[str, Rule] = {
    # what the log itself says
    "state_missing": Rule("error", "the log of a run begins with a state"),
    "state_unreadable": Rule("error", "every state is a run record that this version can read"),
    "state_misplaced": Rule("error", "a record stands on the subject of its own run and root"),
    "subject_unknown": Rule("warning", "subjects of the log have the form run.<root>.<run>.<kind>"),
    "first_state_illegal": Rule("error", "a run begins as queued (or rejected), with revision 1"),
    "path_illegal": Rule("error", "a status is followed only by those that the state machine allows"),
    "revision_gap": Rule("error", "revisions count every state of a run"),
    "counter_shrinks": Rule("error", "attempt, dispatch and cancel epoch only grow"),
    "pin_moved": Rule("error", "a pinned run stays pinned, and on its version"),
    "second_outcome": Rule("error", "a run has one terminal state"),
    "write_after_end": Rule("error", "nothing is written to a run after its terminal state"),
    "write_not_owned": Rule("error", "entries are written by the attempt that owns the run at that moment"),
    "entry_unreadable": Rule("error", "every entry of the journal can be read"),
    "step_doubled": Rule("error", "a finished step is not finished again"),
    "checkpoint_orphan": Rule("error", "the checkpoint before each one is in the log, or was pruned"),
    "checkpoint_order": Rule("error", "the steps of a run's checkpoints grow"),
    "checkpoint_broken": Rule("error", "every message that a checkpoint points to is in the log and holds the value"),
    "parent_missing": Rule("error", "every child's parent has a run"),
    "child_misplaced": Rule("error", "a child names the parent that recorded it"),
    "child_unstarted": Rule("error", "every child that a completed parent has recorded has a run"),
    "run_missing": Rule("error", "every accepted task has a run"),
    # what live runs are owed
    "work_missing": Rule("error", "a queued run has its newest work message", "the work message"),
    "work_unclaimed": Rule("error", "a running run has a living worker, or its work message", "sweep, or released"),
    "timer_missing": Rule("error", "a run that waits for a moment has its timer", "the timer"),
    "parent_forgotten": Rule("error", "a parent waits for a child that has not ended", "child"),
    "wait_endless": Rule("error", "what a waiting run waits for exists", "wake"),
    "question_missing": Rule("error", "a run that asks has an open interrupt, or an effect that is unknown"),
    "word_unheard": Rule("error", "what was said to a run that waits for it has reached the run", "sweep"),
    "tree_unfinished": Rule("error", "the cancel of a tree goes on until all below it has ended", "sweep"),
    "tree_survivor": Rule("error", "nothing but what was detached outlives a canceled tree", "cancel"),
    "schedule_unarmed": Rule("error", "an active schedule has the timer of its next due time", "the timer"),
    "schedule_missed": Rule("error", "what is due leads to a run", "the timer, which fires at once"),
    "schedule_doubled": Rule("error", "a due time leads to one run of each agent"),
    "timer_left": Rule("note", "a run that has ended has no timers", "they are taken away"),
    # what was handed in
    "task_pending": Rule("warning", "tasks are taken from the INBOX at once"),
    "command_pending": Rule("warning", "commands are taken from the INBOX at once"),
    "dead_letters": Rule("note", "no message was set aside"),
    # beside the log
    "blob_missing": Rule("error", "every blob that is referred to lies in the object store, as a whole"),
    "projection_unusable": Rule("error", "the projection is a database of this version and of this installation"),
    "projection_differs": Rule("error", "a row of the projection says what the log says"),
    "projection_row_missing": Rule("error", "what the log holds has its row in the projection"),
    "projection_row_extra": Rule("error", "the projection has no row of what the log does not hold"),
}  # fmt: skip
