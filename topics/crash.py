"""Crash points: named places at which a process can be told to die, so that a test can kill it exactly there.

`CALLBOARD_CRASH_AT=worker.before-ack:3` ends the process with SIGKILL when it passes that point for the third time (the
first, without a number), after one line on standard error. Without the variable `point` is an empty function: what a
pass costs is a call. The names are few and stand below; a name that is not among them is refused at import, because a
test that kills nothing proves nothing.
"""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Callable

VARIABLE = "CALLBOARD_CRASH_AT"

POINTS = {
    "coordinator.before-ack.task": "a task from the INBOX has its run; its message is not acknowledged",
    "coordinator.before-ack.command": "a command from the INBOX is carried out; its message is not acknowledged",
    "coordinator.before-submit-reply": "a submitted run is durable; who asked for it has not been told",
    "coordinator.after-create": "the first state of a run is stored; its work message is perhaps on its way",
    "coordinator.after-join": "a run has its place in its thread's head; its record does not say so",
    "coordinator.after-leave": "an ended run has left its thread's head; the next one has not been dispatched",
    "coordinator.after-gate": "an attempt has its slot at its agent's limit; its work message is not written",
    "coordinator.after-hand-over": "the work message is written; what waited for a slot still stands before the gate",
    "coordinator.before-grant": "the running state is stored; the worker has not been told",
    "coordinator.before-effects.queued": "the run is queued; its work message or timer is not written",
    "coordinator.before-effects.waiting": "the run waits; its children have not been looked at, its timer is not set",
    "coordinator.before-effects.cancel_requested": "the cancel is stored; nobody has been told",
    "coordinator.before-effects.completed": "the result is stored; the parent has not been told",
    "coordinator.before-effects.canceled": "the run is canceled; its parent has not been told",
    "coordinator.before-verdict": "the outcome is stored and carried on; the worker has not been told",
    "coordinator.before-children-reply": "the children are durable; the parent has not been told",
    "coordinator.before-effects.input_required": "the run asks; nobody has been told, its clock is not set",
    "coordinator.after-resume": "an answer is in the record; the run's work message is not written",
    "coordinator.after-said": "something was said to a run; its worker has not been told, nor is the run woken",
    "coordinator.cancel-one": "a tree is being canceled, and the next of its runs has not been reached",
    "coordinator.before-root-ends": "all below a canceled run has ended, and the run itself has not",
    "coordinator.between-timer-and-run": "a schedule's next timer is set; the run of the present due time is not there",
    "worker.after-claim": "the run is claimed; its code has not begun",
    "worker.before-step-write": "the function of a step has returned; its result is not in the journal",
    "worker.after-step-write": "the result of a step is in the journal; the code has not gone on",
    "worker.after-effect-claim": "an effect is claimed; its function has not been called",
    "worker.before-effect-settle": "the function of an effect has returned or raised; the log does not say so",
    "worker.after-effect-settle": "the effect is settled in the log; the code has not gone on",
    "worker.before-compensation": "a compensation is claimed; its hook has not been called",
    "worker.before-compensation-settle": "a compensation's hook has returned; the log does not say so",
    "worker.before-checkpoint-write": "a checkpoint is made; it is not in the log",
    "worker.after-checkpoint-write": "a checkpoint is in the log; the code, or the next superstep, has not gone on",
    "worker.before-note-write": "a node of a superstep has ended; its writes are not in the journal",
    "worker.after-note-write": "the writes of a node are in the journal; the others of its superstep have not ended",
    "worker.before-answer-taken": "an interrupt is answered in the record; the answer is not in the journal",
    "worker.after-answer-taken": "the answer to an interrupt is in the journal; the code has not gone on",
    "worker.before-children": "a child is noted in the journal, perhaps; it has not been asked for",
    "worker.after-children": "the children are durable; the code has not gone on",
    "worker.before-hand-in.completed": "the agent's code has returned; its outcome has not been handed in",
    "worker.before-hand-in.suspended": "the attempt gives its slot back; its outcome has not been handed in",
    "worker.before-hand-in.stopped": "the attempt has stopped for a cancel; its outcome has not been handed in",
    "worker.before-ack": "the outcome is handed in; the work message is not acknowledged",
    "projector.before-commit": "the rows of a batch are written; the transaction is open",
    "projector.after-commit": "a batch is committed; the feed has not gone on",
    "gateway.before-answer": "the run is durable; the client has no answer",
}
"""Every point, and what holds when a process dies there."""


def _pass(name: str, detail: str = "") -> None:
    """Does nothing."""


def _armed(wanted: str) -> Callable[[str, str], None]:
    """The function that dies at `name` or `name:n`. Raises ValueError for a point that does not exist."""
    at, _, number = wanted.partition(":")
    if at not in POINTS or (number and not number.isdigit()):
        raise ValueError(f"{VARIABLE}={wanted!r} names no crash point: use NAME or NAME:COUNT with {', '.join(POINTS)}")
    passes, last = itertools.count(1), int(number or 1)

    def die(name: str, detail: str = "") -> None:
        here = f"{name}.{detail}" if detail else name
        if here == at and next(passes) == last:
            os.write(2, f"callboard: killed at crash point {here}, pass {last}\n".encode())
            os.kill(os.getpid(), signal.SIGKILL)

    return die


point: Callable[..., None] = _armed(os.environ[VARIABLE]) if os.environ.get(VARIABLE) else _pass
"""`point(name, detail)` is passed at the place `name` or `name.detail`. Not for the hottest loops."""
