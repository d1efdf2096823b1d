"""The one translation between the structs of the wire and the models of HTTP."""

from __future__ import annotations

import base64
from typing import Any
from urllib.parse import quote

import msgspec
from msgspec import UnsetType

from ..store.deadletters import Letter
from ..store.projection import RunRow, ThreadRow
from ..store.threads import Posted
from ..topics.messages import (
    TERMINAL,
    Alive,
    Artifact,
    BlobRef,
    ErrorInfo,
    Payload,
    RunRecord,
    Step,
    SubmitReply,
    ThreadRecord,
    Turn,
)
from ..topics.reads import Stored
from . import models as out
from .turn import TurnOut

_decode = msgspec.json.Decoder().decode
_UNREADABLE = {"error": "this value cannot be read as JSON"}


def value(payload: Payload | None) -> Any:
    """The value of a payload that is inline, else None; also for one that is encrypted."""
    if payload is None or payload.sealed or isinstance(payload.json, UnsetType):
        return None
    try:
        return _decode(payload.json)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return _UNREADABLE


def ref(payload: Payload | None) -> out.BlobRefOut | None:
    """Where a payload lies that is not inline."""
    return None if payload is None else blob(payload.ref)


def blob(found: BlobRef | None) -> out.BlobRefOut | None:
    """A reference to the object store."""
    return None if found is None else out.BlobRefOut(name=found.name, size=found.size, bucket=found.bucket)


def error(info: ErrorInfo | None) -> out.ErrorOut | None:
    """An error as data."""
    if info is None:
        return None
    return out.ErrorOut(
        code=info.code, message=info.message, type=info.type, retryable=info.retryable, traceback=info.traceback,
        details=info.details,
    )  # fmt: skip


def _common(found: RunRecord | RunRow) -> dict[str, Any]:
    return {
        "id": found.id, "root": found.root, "agent": found.agent, "status": found.status,
        "terminal": found.status in TERMINAL, "created_at": found.created_at, "updated_at": found.updated_at,
        "parent": found.parent, "topic": found.topic, "thread": found.thread, "reason": found.reason,
        "started_at": found.started_at, "ended_at": found.ended_at, "attempt": found.attempt, "steps": found.steps,
        "rev": found.rev, "metadata": found.metadata, "version": found.version, "pin": found.pin,
        "forked_from": _forked_from(found),
    }  # fmt: skip


def _forked_from(found: RunRecord | RunRow) -> out.ForkedFrom | None:
    if isinstance(found, RunRow):
        run, checkpoint = found.forked_from, found.forked_at
    else:
        fork = found.forked_from
        run, checkpoint = (fork.run, fork.checkpoint) if fork else (None, 0)
    return None if run is None else out.ForkedFrom(run=run, checkpoint=checkpoint or 0)


def turn(found: Turn | None) -> TurnOut | None:
    """How a run takes its turn."""
    return None if found is None else TurnOut.model_validate(found, from_attributes=True)


def run(record: RunRecord, sequence: int | None = None) -> out.Run:
    """A run, whole."""
    return out.Run(
        **_common(record), sequence=sequence, error=error(record.error),
        input=value(record.input), input_ref=ref(record.input), result=value(record.result),
        result_ref=ref(record.result),
        failures=record.failures, epoch=record.epoch, worker=record.worker, waits=record.waits, wake_at=record.wake_at,
        timeout_s=record.timeout_s, detached=record.detached, idempotency_key=record.key,
        turn=turn(record.turn),
    )  # fmt: skip


def canceled(record: RunRecord, alive: list[Alive]) -> out.RunCanceled:
    """A run after its cancel, and what still lives."""
    living = [
        out.AliveOut(run=one.run, agent=one.agent, status=one.status, worker=one.worker, reason=one.reason)
        for one in alive
    ]
    return out.RunCanceled(**run(record).model_dump(), alive=living)


def summary(record: RunRecord) -> out.RunSummary:
    """A run in a tree."""
    return out.RunSummary(**_common(record), error=error(record.error))


def row(found: RunRow) -> out.RunSummary:
    """A run in a list of the projection."""
    why = None
    if found.error_code is not None:
        why = out.ErrorOut(code=found.error_code, message=found.error_message or "")
    return out.RunSummary(**_common(found), error=why, sequence=found.sequence)


def created(reply: SubmitReply) -> out.RunCreated:
    """The answer to a task."""
    assert reply.run is not None
    assert reply.status is not None
    here = f"/runs/{reply.run}"
    links = {"self": here, "events": f"{here}/events", "wait": f"{here}/wait", "tree": f"{here}/tree"}
    return out.RunCreated(
        run=reply.run, runs=reply.runs or [reply.run], status=reply.status, duplicate=reply.duplicate, links=links,
        thread=reply.thread, turn=turn(reply.turn),
    )  # fmt: skip


def step(stored: Stored, found: Step) -> out.StepOut:
    """An entry of the journal."""
    return out.StepOut(
        sequence=stored.sequence, time=stored.time, at=found.at, name=found.name, attempt=found.attempt, n=found.n,
        kind=found.kind, status=found.status, value=value(found.value), value_ref=ref(found.value),
        sealed=found.value is not None and found.value.sealed, error=error(found.error), child=found.child,
        until=found.until, ms=found.ms,
    )  # fmt: skip


def artifact(run_id: str, found: Artifact) -> out.ArtifactOut:
    """An artifact without its content."""
    return out.ArtifactOut(
        name=found.name, media_type=found.media_type, size=found.size, digest=found.digest, attempt=found.attempt,
        href=f"/runs/{run_id}/artifacts/{quote(found.name)}",
    )  # fmt: skip


def thread(found: ThreadRecord | ThreadRow) -> out.ThreadOut:
    """A thread; from a list with the number of its messages."""
    messages = found.messages if isinstance(found, ThreadRow) else None
    return out.ThreadOut(id=found.id, created_at=found.created_at, metadata=found.metadata, messages=messages)


def message(found: Posted) -> out.MessageOut:
    """A message of a thread."""
    body = found.message
    return out.MessageOut(
        sequence=found.sequence,
        role=body.role,
        content=value(body.content),
        content_ref=ref(body.content),
        run=body.run,
    )


def letter(found: Letter) -> out.DeadLetterOut:
    """A dead letter."""
    body = found.letter
    try:
        text, raw = body.data.decode(), None
    except UnicodeDecodeError:
        text, raw = None, base64.b64encode(body.data).decode()
    why = error(body.reason)
    assert why is not None
    return out.DeadLetterOut(
        id=found.id, kind=found.kind, subject=body.subject, reason=why, at=body.at, headers=body.headers,
        text=None if body.ref else text, base64=raw, ref=blob(body.ref),
    )  # fmt: skip
