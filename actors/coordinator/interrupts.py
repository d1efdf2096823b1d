"""Answers to interrupts: whose they are, whether they are taken, and what an agent that was asked has said.

An answer given at a run is for an open interrupt of that run, or of one below it. It is held against the interrupt's
schema before it is accepted, and all answers of a command are held against theirs before the first is.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime

from msgspec.structs import replace

from ...store.blobs import Blobs
from ...store.log import EventLog, Loaded
from ...topics import codec, crash, units
from ...topics.bus import Bus
from ...topics.errors import (
    CallboardError,
    IllegalTransition,
    InterruptAmbiguous,
    InterruptAnswered,
    InterruptNotFound,
    InvalidAnswer,
    InvalidInput,
    NotFound,
    Unavailable,
)
from ...topics.messages import (
    ASKED,
    NOTHING,
    Answer,
    Answered,
    ChildRequest,
    Command,
    Interrupt,
    Payload,
    RunRecord,
    Status,
    encode,
)
from ...topics.subjects import require_token
from .answering import agents_asked, remembered
from .ledger import Ledger
from .run_commands import Escalate, InterruptDue, Resume, Unanswered
from .words import Words

_TRIES = 12
_MOST_ANSWERS = 1000
_OPEN_TOLD = 50
_COMMENT_CHARS = 4000
_NAME_CHARS = 255


class Interrupts:
    """Takes answers, and passes questions on."""

    def __init__(
        self, bus: Bus, event_log: EventLog, ledger: Ledger, words: Words, settle: Callable[[Loaded], Awaitable[None]]
    ) -> None:
        self._bus, self._log, self._ledger, self._words, self._settle = bus, event_log, ledger, words, settle
        self._blobs = Blobs(bus)
        self.start: Callable[[RunRecord, ChildRequest], Awaitable[RunRecord]]
        """Starts a child of a run, or finds it; set by the coordinator."""

    # -- resume -------------------------------------------------------------------------------------------------

    async def resume(self, command: Command) -> RunRecord:
        """Gives answers to open interrupts of the run and of those below it; the run after it. Again, it changes
        nothing. Raises NotFound, IllegalTransition, InterruptNotFound, InterruptAnswered, InterruptAmbiguous,
        InvalidAnswer, InvalidInput."""
        answers = _checked(command)
        record = await self._record(command.run, answers)
        by_run: dict[str, tuple[RunRecord, list[Answer]]] = {}
        for answer in answers:
            owner, named = await self._owner(record, answer)
            by_run.setdefault(owner.id, (owner, []))[1].append(await self._accepted(owner, named))
        for owner, accepted in by_run.values():
            await self._apply(owner, accepted)
        loaded = await self._ledger.load(record.id)
        return loaded.record if loaded else record

    async def _record(self, run: str, answers: Sequence[Answer]) -> RunRecord:
        """The run, as it is remembered when that is enough to know whose the answers are."""
        known = self._ledger.known(run)
        open_ = {one.id for one in (known.interrupts if known else None) or ()}
        if known is not None and all(answer.id in open_ for answer in answers):
            return known
        loaded = await self._ledger.load(run)
        if loaded is None:
            raise NotFound(f"there is no run {run}", run=run)
        return loaded.record

    async def _owner(self, record: RunRecord, answer: Answer) -> tuple[RunRecord, Answer]:
        """The run that asks, and the answer with the interrupt's id. Open interrupts come before those of the past."""
        if any(one.id == answer.id for one in record.interrupts or ()):
            return record, answer
        tree = [record, *await self._below(record)]
        past = [(one, mark) for one in tree for mark in _marks(one) if _names(mark, answer)]
        if past and not answer.id:
            return past[0][0], replace(answer, id=past[0][1].id)
        asking = [(one, asked.id) for one in tree for asked in one.interrupts or () if answer.id in ("", asked.id)]
        if len(asking) == 1:
            return asking[0][0], replace(answer, id=asking[0][1])
        if asking:
            raise _ambiguous(record, tree, answer)
        if past:
            return past[0][0], answer
        if await self._words.has(record.id, [answer]):
            return record, answer
        raise _missing(record, tree, answer)

    async def _below(self, record: RunRecord) -> list[RunRecord]:
        """The runs below this one, also detached ones."""
        children: dict[str | None, list[RunRecord]] = {}
        for one in await self._log.newest_tree(record.root):
            children.setdefault(one.parent, []).append(one)
        found, parents = [], [record.id]
        while parents:
            below = children.get(parents.pop(), [])
            found += below
            parents += [one.id for one in below]
        return found

    async def _accepted(self, record: RunRecord, answer: Answer) -> Answer:
        """The answer as it goes into the record, if its interrupt takes it. Raises InvalidAnswer."""
        interrupt = next((one for one in record.interrupts or () if one.id == answer.id), None)
        if interrupt is None:  # it was answered; whether so is for the run to say
            return answer
        if answer.action not in interrupt.actions:
            taken = ", ".join(interrupt.actions)
            raise _invalid(record, answer, f"it is not answered with {answer.action!r} but with one of {taken}")
        if answer.action == "approve":
            answer = replace(answer, value=interrupt.payload)
        if answer.action != "reject" and interrupt.schema is not None:
            await self._conforms(record, interrupt, answer)
        return replace(answer, at=units.now(), place=interrupt.at)

    async def _conforms(self, record: RunRecord, interrupt: Interrupt, answer: Answer) -> None:
        value = answer.value or Payload()
        if value.ref is not None and value.ref.size > codec.MOST_BYTES:
            raise _invalid(
                record, answer, f"its value has {value.ref.size} bytes; at most {codec.MOST_BYTES} are taken"
            )
        faults = codec.faults(encode(interrupt.schema), await self._blobs.value(value))
        if faults:
            raise _invalid(record, answer, "its value is not what was asked for: " + "; ".join(faults), faults)

    async def _apply(self, before: RunRecord, answers: list[Answer]) -> None:
        recorded = await self._recorded(before.id, answers)
        if recorded is None:
            return
        crash.point("coordinator.after-resume")
        await self._settle(recorded)
        await self._stop_agents(before, {answer.id: answer.by for answer in answers})

    async def _recorded(self, run: str, answers: list[Answer]) -> Loaded | None:
        """The run whose record has the answers; None when its worker has been told them instead. What was said to an
        earlier worker came before them. Raises as `resume` does."""
        for _ in range(_TRIES):
            looked = await self._words.look(run)
            if looked is None:
                raise NotFound(f"there is no run {run}", run=run)
            applied = await self._ledger.apply(run, Resume(answers, looked.record.rev))
            if applied.loaded is None:
                raise NotFound(f"there is no run {run}", run=run)
            if applied.verdict == "refused":
                await self._require_known(applied.loaded.record, answers)
                return None
            if applied.verdict != "later":
                return applied.loaded
            if applied.loaded.record.status is Status.RUNNING and await self._words.answer(run, answers):
                return None
        raise Unavailable(f"run {run} could not be told: its state does not settle; try again", run=run)

    async def _require_known(self, record: RunRecord, answers: list[Answer]) -> None:
        """What a run refuses may have been said to it before, and whoever did so was perhaps not told."""
        unknown = [one for one in answers if (known := remembered(record, one.id)) is None or not known.same(one.mark)]
        if not await self._words.has(record.id, unknown):
            raise _refused(record, answers)

    async def due(self, run: str, due: datetime | None) -> RunRecord | None:
        """The time of an interrupt is over, unless it was answered before: also by what was said and is not looked at
        yet."""
        looked = await self._words.look(run)
        if looked is None:
            return None
        applied = await self._ledger.apply(run, InterruptDue(due, looked.record.rev))
        if applied.loaded is None:
            return None
        await self._settle(applied.loaded)
        return applied.loaded.record

    # -- escalation ---------------------------------------------------------------------------------------------

    async def escalate(self, command: Command) -> RunRecord:
        """Passes an open interrupt on, to a person or an agent. Raises as `resume` does."""
        if (command.to is None) == (command.agent is None):
            raise InvalidInput("an interrupt is passed on either to a person (to) or to an agent", run=command.run)
        if command.agent is not None:
            require_token("agent", command.agent)
        for text in (command.to, command.by):
            if text is not None and (len(text) > _NAME_CHARS or not text.isprintable()):
                raise InvalidInput(f"a name has at most {_NAME_CHARS} printable characters", run=command.run)
        asked = Answer(id=command.interrupt)
        owner, named = await self._owner(await self._record(command.run, [asked]), asked)
        word = Escalate(
            named.id, command.to, command.agent, command.by or None, (command.reason or "")[:_COMMENT_CHARS] or None
        )
        applied = await self._ledger.apply(owner.id, word)
        if applied.loaded is None:
            raise NotFound(f"there is no run {owner.id}", run=owner.id)
        if applied.verdict == "refused":
            raise _refused(applied.loaded.record, [named])
        await self._settle(applied.loaded)
        return applied.loaded.record

    async def ask_agents(self, run: str) -> None:
        """Starts the agents that open interrupts were passed on to, each once, and takes the answers of those that have
        ended."""
        loaded = await self._ledger.load(run)
        for interrupt, passed in agents_asked(loaded.record) if loaded else ():
            assert loaded is not None
            request = ChildRequest(
                run=passed.run or "", agent=passed.agent or "", input=interrupt.payload,
                metadata={"interrupt": interrupt.id, "interrupt_of": run},
            )  # fmt: skip
            child = await self.start(loaded.record, request)
            if child.terminal:
                await self._agent_said(loaded.record, interrupt, child)

    async def _agent_said(self, record: RunRecord, interrupt: Interrupt, child: RunRecord) -> None:
        answer = Answer(id=interrupt.id, value=child.result or NOTHING, by=f"agent:{child.agent}", key=child.id)
        try:
            if child.status is not Status.COMPLETED:
                raise _invalid(record, answer, f"run {child.id} of agent {child.agent!r} is {child.status}")
            await self._apply(record, [await self._accepted(record, answer)])
        except (InvalidAnswer, InterruptAnswered, IllegalTransition) as error:
            applied = await self._ledger.apply(record.id, Unanswered(child.id, error.message[:_COMMENT_CHARS]))
            if applied.loaded is not None:
                await self._settle(applied.loaded)

    async def _stop_agents(self, before: RunRecord, answered: dict[str, str | None]) -> None:
        """Cancels the runs of agents that need not answer any more."""
        for interrupt, passed in agents_asked(before):
            if interrupt.id in answered and answered[interrupt.id] != f"agent:{passed.agent}":
                word = Command(reason=f"interrupt {interrupt.id} was answered by somebody else")
                await self._bus.store(self._bus.subjects.command(passed.run or "", "cancel"), encode(word))


def _checked(command: Command) -> list[Answer]:
    """The answers of a command, each with its key. Raises InvalidInput."""
    answers = command.answers or []
    ids = [answer.id for answer in answers]
    if not answers or len(answers) > _MOST_ANSWERS:
        raise InvalidInput(f"a resume has 1 to {_MOST_ANSWERS} answers, not {len(answers)}", run=command.run)
    if len(set(ids)) < len(ids) or ("" in ids and len(ids) > 1):
        raise InvalidInput("each of several answers names an interrupt of its own (id)", run=command.run)
    for answer in answers:
        if answer.action not in ASKED:
            raise InvalidInput(f"an answer is one of {', '.join(ASKED)}, not {answer.action!r}", run=command.run)
        if answer.action == "approve" and answer.value is not None:
            raise InvalidInput(
                "who approves gives no value: the payload is the value; edit it instead", run=command.run
            )
        if len(answer.comment or "") > _COMMENT_CHARS or len(answer.by or "") > _NAME_CHARS:
            raise InvalidInput(
                f"a comment has at most {_COMMENT_CHARS} characters, a name {_NAME_CHARS}", run=command.run
            )
    return [_normal(answer, command.key) for answer in answers]


def _normal(answer: Answer, key: str) -> Answer:
    """Whoever responds without a value responds with null."""
    value = NOTHING if answer.value is None and answer.action in ("respond", "edit") else answer.value
    return replace(answer, key=answer.key or key, at=None, place="", value=value)


def _marks(record: RunRecord) -> list[Answered]:
    return [*(one.mark for one in record.answers or ()), *(record.answered or ())]


def _names(mark: Answered, answer: Answer) -> bool:
    """Whether that may have been the same answer: it has its id, or without one its key."""
    return mark.id == answer.id if answer.id else bool(mark.key) and mark.key == answer.key


def _open(tree: Sequence[RunRecord]) -> list[dict[str, str]]:
    found = [{"run": one.id, "interrupt": interrupt.id} for one in tree for interrupt in one.interrupts or ()]
    return found[:_OPEN_TOLD]


def _listed(tree: Sequence[RunRecord]) -> str:
    names = [f"{one['interrupt']} (run {one['run']})" for one in _open(tree)]
    return f"open: {', '.join(names[:10])}" + (" and more" if len(names) > 10 else "") if names else "none is open"


def _ambiguous(record: RunRecord, tree: Sequence[RunRecord], answer: Answer) -> CallboardError:
    what, do = (
        (f"several interrupts of id {answer.id!r}", "resume the run that asks")
        if answer.id
        else ("several interrupts", "give the id")
    )
    return InterruptAmbiguous(
        f"{what} are open in run {record.id} and below it: {_listed(tree)}; {do}", run=record.id, open=_open(tree)
    )


def _missing(record: RunRecord, tree: Sequence[RunRecord], answer: Answer) -> CallboardError:
    if record.terminal and not _open(tree):
        return IllegalTransition(
            f"run {record.id} is {record.status} already: it asks nothing", run=record.id, status=str(record.status)
        )
    what = f"no interrupt {answer.id!r}" if answer.id else "no interrupt"
    return InterruptNotFound(
        f"{what} is open in run {record.id} or below it; {_listed(tree)}", run=record.id, open=_open(tree)
    )


def _refused(record: RunRecord, answers: Sequence[Answer]) -> CallboardError:
    """Why a run took none of the answers."""
    for answer in answers:
        known = remembered(record, answer.id)
        if known is not None and not known.same(answer.mark):
            return InterruptAnswered(
                f"interrupt {answer.id!r} of run {record.id} was answered before; {_listed([record])}",
                run=record.id, interrupt=answer.id, open=_open([record]),
            )  # fmt: skip
    if record.status in (Status.QUEUED, Status.RUNNING):
        return IllegalTransition(
            f"run {record.id} is {record.status}: try again when it asks", run=record.id, status=str(record.status)
        )
    return _missing(record, [record], answers[0])


def _invalid(record: RunRecord, answer: Answer, why: str, faults: Sequence[str] = ()) -> InvalidAnswer:
    return InvalidAnswer(
        f"interrupt {answer.id!r} of run {record.id}: {why}",
        run=record.id, interrupt=answer.id, faults=list(faults) or [why],
    )  # fmt: skip
