"""What the projection gives out: frozen structs, times as aware datetimes, lists as pages."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Generic, TypeVar

from msgspec import Raw, Struct

from ...topics.messages import Status

T = TypeVar("T")


class RunRow(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A run as the projection knows it; `sequence` is the stream sequence of the state it shows."""

    id: str
    root: str
    agent: str
    status: Status
    created_at: datetime
    updated_at: datetime
    parent: str | None = None
    topic: str | None = None
    thread: str | None = None
    reason: str | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    attempt: int = 0
    steps: int = 0
    rev: int = 1
    error_code: str | None = None
    error_message: str | None = None
    metadata: dict[str, Any] | None = None
    version: str = ""
    pin: bool = False
    forked_from: str | None = None
    """The run with whose checkpoint it began."""
    forked_at: int | None = None
    """The id of that checkpoint."""
    sequence: int = 0
    record: Raw | None = None
    """The JSON of the whole RunRecord; only where it was asked for."""


class ThreadRow(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A thread: its record if one was written, and how many messages it has."""

    id: str
    created_at: datetime
    updated_at: datetime
    """When its newest record or message was stored."""
    messages: int = 0
    metadata: dict[str, Any] | None = None
    recorded: bool = True
    """False when there are messages and no record."""
    sequence: int = 0


class ArtifactVersion(Struct, frozen=True, kw_only=True):
    """One version of a named artifact of a thread, with the run that made it."""

    run: str
    status: Status
    """Of that run."""
    name: str
    media_type: str
    size: int
    digest: str
    stored_at: datetime
    sequence: int


class ArtifactRow(Struct, frozen=True, kw_only=True):
    """The newest version of a named artifact of a run, without its content."""

    run: str
    name: str
    media_type: str
    size: int
    """Bytes."""
    digest: str
    versions: int
    stored_at: datetime
    sequence: int


class Still(Struct, frozen=True, kw_only=True):
    """A run that should go on by itself and has not changed for a while."""

    id: str
    status: Status
    since: datetime
    """Its last change."""


class SkippedRow(Struct, frozen=True, kw_only=True):
    """A message of the stream that could not become a row, with the reason."""

    sequence: int
    subject: str
    reason: str
    size: int
    """Bytes."""


class Counts(Struct, frozen=True, kw_only=True):
    """How many runs there are, by agent and status."""

    total: int
    by_status: dict[Status, int]
    by_agent: dict[str, dict[Status, int]]


class Page(Struct, Generic[T], frozen=True):
    """A page of a list. `next` is the cursor of the following page, None on the last one.

    `applied`: the rows reflect at least the stream up to this sequence."""

    items: list[T]
    next: str | None
    applied: int


class RunFilter(Struct, frozen=True, kw_only=True):
    """Which runs to list; what is left out does not restrict."""

    status: Sequence[Status | str] = ()
    agent: str | None = None
    thread: str | None = None
    topic: str | None = None
    parent: str | None = None
    root: str | None = None
    forked_from: str | None = None
    metadata: dict[str, str] | None = None
    """Every pair must match: strings as they are, numbers, true, false and null by their JSON text."""
    created_after: datetime | None = None
    """Exclusive; needs a time zone."""
    created_before: datetime | None = None
    """Exclusive; needs a time zone."""
