"""What else is kept: threads, and what was set aside."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from msgspec import Struct

from .turn import Origin
from .values import BlobRef, ErrorInfo, Payload


class ThreadRecord(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`cb.thread.{thread}.record`."""

    id: str
    created_at: datetime
    metadata: dict[str, Any] | None = None
    origin: Origin | None = None
    """Of a fork: what it shares with another thread."""


class ThreadMessage(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`cb.thread.{thread}.message`: one entry of the thread's common history, in the broker's order."""

    role: str
    content: Payload
    run: str | None = None
    at: str | None = None
    turn: str | None = None
    """The run in whose turn it was said, when that is one above `run`."""
    draft: int = 0
    """Of an optimistic run's message that was kept: its sequence in the run's branch."""


class DeadLetter(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`cb.dead.{kind}`: a message that was set aside, whole, with the reason. Its id is its stream sequence."""

    subject: str
    reason: ErrorInfo
    data: bytes
    """The body, base64 on the wire."""
    headers: dict[str, str] | None = None
    ref: BlobRef | None = None
    """The body, when it is too large to stand here."""
    at: datetime | None = None
