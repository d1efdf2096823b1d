"""The log of a run as a list of entries, one a line."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import msgspec

from ..store.checkpoints import is_checkpoint
from ..store.checkpoints.state import decoded
from ..store.journal import ENTRY_KINDS, Entry, Seen, entries
from ..store.log import decode_record
from ..topics.errors import InvalidMessage
from ..topics.messages import Answer, Artifact, Checkpoint, Event, RunRecord, Step
from ..topics.reads import Stored
from .console import STYLES, Output
from .wording import cut, duration, payload, size, stamp

_KIND_STYLES = {"step": "cyan", "checkpoint": "blue", "effect": "magenta", "artifact": "magenta", "state": "bold"}
_WIDTH = 100


class Item(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One entry of a log, as `--json` prints it."""

    id: str
    """Its place: the stream sequence, with `.1`, `.2`, … for the earlier entries of one message."""
    sequence: int
    time: datetime
    """When the broker stored it."""
    run: str
    kind: str
    attempt: int = 0
    data: RunRecord | Entry | Checkpoint | msgspec.Raw | None = None
    problem: str | None = None
    """Why the entry could not be read; `data` is then missing."""


class Reader:
    """Turns stored messages into items. Entries that a repeated write has stored twice appear once."""

    def __init__(self) -> None:
        self._seen: dict[str, Seen] = {}

    def items(self, stored: Stored) -> Iterator[Item]:
        """The items of one message."""
        run = stored.subject.split(".")[3] if stored.subject.count(".") >= 4 else ""
        try:
            found = self._entries(stored, run)
        except InvalidMessage as error:
            yield _item(stored, run, "", problem=error.message)
            return
        last = len(found) - 1
        for index, (entry, fresh) in enumerate(found):
            if fresh:
                yield _item(stored, run, "" if index == last else f".{index + 1}", data=entry, attempt=_attempt(entry))

    def _entries(self, stored: Stored, run: str) -> list[tuple[Any, bool]]:
        if stored.kind == "state":
            record = decode_record(stored.data)
            if record.terminal:
                self._seen.pop(run, None)
            return [(record, True)]
        if stored.kind in ENTRY_KINDS:
            seen = self._seen.setdefault(run, Seen())
            return [(entry, seen.fresh(entry)) for entry in entries(stored)]
        if is_checkpoint(stored.kind):
            return [(decoded(stored), True)]
        return [(msgspec.Raw(stored.data) if _is_json(stored.data) else None, True)]


def _item(stored: Stored, run: str, part: str, **more: Any) -> Item:
    return Item(
        id=f"{stored.sequence}{part}", sequence=stored.sequence, time=stored.time, run=run, kind=stored.kind, **more
    )


def _attempt(entry: Any) -> int:
    return int(getattr(entry, "attempt", 0))


def _is_json(data: bytes) -> bool:
    try:
        msgspec.json.decode(data)
    except msgspec.MsgspecError:
        return False
    return True


def show(output: Output, item: Item, *, with_run: bool) -> None:
    """Prints one item."""
    if output.json:
        output.record(item)
        return
    style, text = describe(item)
    output.parts(
        (f"{item.id:>8}  {stamp(item.time)}  ", "dim"),
        (f"{item.run:<41}  " if with_run else "", "dim"),
        (f"{item.attempt:>2}  ", "dim"),
        (f"{item.kind:<8}  ", _KIND_STYLES.get(item.kind)),
        (text, style),
    )


def describe(item: Item) -> tuple[str | None, str]:
    """A style and the text of an item."""
    match item.data:
        case RunRecord() as record:
            return STYLES.get(record.status), _state(record)
        case Step() as step:
            return ("red" if step.status == "failed" else None), _step(step)
        case Event() as event:
            return None, f"{cut(event.type, 40)} {payload(event.data, _WIDTH)}"
        case Checkpoint() as checkpoint:
            return None, _checkpoint(checkpoint)
        case Artifact() as artifact:
            return None, f"{cut(artifact.name, 80)} ({artifact.media_type}, {size(artifact.size)})"
        case msgspec.Raw() as raw:
            return None, cut(bytes(raw).decode(errors="replace"), _WIDTH)
    return "red", cut(item.problem or "not JSON", 2 * _WIDTH)


def _state(record: RunRecord) -> str:
    parts = [str(record.status)]
    if record.rev == 1:
        parts.append(f"agent {record.agent or '-'} input {payload(record.input, 60)}")
    if record.status == "running":
        parts.append(f"attempt {record.attempt} on worker {record.worker}")
    if record.error is not None:
        parts.append(f"{record.error.code}: {cut(record.error.message, _WIDTH)}")
    if record.reason:
        parts.append(f"({cut(record.reason, _WIDTH)})")
    if record.result is not None:
        parts.append(f"result {payload(record.result, _WIDTH)}")
    return " ".join(parts)


def _checkpoint(checkpoint: Checkpoint) -> str:
    """Which superstep it stands for, what that wrote, and what comes next."""
    head = f"{checkpoint.source} {checkpoint.step}" if checkpoint.step else checkpoint.source
    parts = [f"{checkpoint.ns} {head}" if checkpoint.ns else head]
    parts.append(f"ran {', '.join(checkpoint.ran)}" if checkpoint.ran else "")
    parts.append(f"wrote {', '.join(sorted({*checkpoint.put, *checkpoint.alias}))}" if checkpoint.put else "")
    parts.append(f"next {', '.join(checkpoint.next)}" if checkpoint.next else "")
    parts.append(f"label {checkpoint.label}" if checkpoint.label else "")
    return cut("; ".join(part for part in parts if part), 2 * _WIDTH)


def _step(step: Step) -> str:
    head = f"{cut(step.name, 60)} [{step.at}]"
    if step.kind == "interrupt":
        return f"answer {head} {_answer(step)}"
    if step.kind == "child":
        return f"child {head} {step.child or ''}"
    if step.kind == "sleep":
        return f"sleep {head} until {stamp(step.until)}"
    if step.status in ("started", "claimed") or step.kind in ("effect", "compensation"):
        return _outside(step, head)
    took = f" in {duration(step.ms / 1000)}" if step.kind == "step" else ""
    if step.error is not None:
        return f"{head} failed{took}: {step.error.code}: {cut(step.error.message, _WIDTH)}"
    return f"{head}{took} {payload(step.value, 60)}"


def _answer(step: Step) -> str:
    try:
        answer = msgspec.json.decode(msgspec.json.encode(step.value and step.value.json), type=Answer)
    except msgspec.MsgspecError:
        return payload(step.value, 60)
    by = f" by {cut(answer.by, 40)}" if answer.by else ""
    return f"{answer.action} {payload(answer.value, 60)}{by}"


def _outside(step: Step, head: str) -> str:
    what = "" if step.kind == "step" else f"{step.kind} "
    parts = [f"{what}{head} {step.status}", f"key {cut(step.key, 60)}" if step.key else ""]
    if step.by not in (None, "call"):
        parts.append(f"says a {step.by}")
    if step.error is not None:
        parts.append(f"{step.error.code}: {cut(step.error.message, _WIDTH)}")
    if step.value is not None:
        parts.append(payload(step.value, 60))
    return " ".join(part for part in parts if part)
