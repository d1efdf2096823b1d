"""The entries in the log of a run, besides its states."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from msgspec import Struct

from .values import NOTHING, BlobRef, ErrorInfo, Payload


class Step(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One entry of the journal, on `cb.run.{root}.{run}.step` (several that waited for one write stand in a list).

    kinds: `step` (a finished step with `value` or `error`), `child` (a child was started: `child`), `sleep` (`until`),
    `value` (now), `interrupt` (an answered one: `name` is its id, `value` the Answer), `heard` (what was said to the
    run), `node` (what a finished node of an unfinished superstep wrote: a Cell). `status` `started` marks a step that
    takes long and is not a result.

    On `….effect` stand the kinds `effect` (`claimed` before the call, then `done`, `failed` when it is known that
    nothing happened, or `unknown`) and `compensation` (`claimed`, `done`, `failed`), both at the effect's place."""

    at: str
    """The operation's place in the code: scope and position, such as `3` or `1/2:0`."""
    name: str
    attempt: int
    n: int
    """Counts the writes of the attempt; (attempt, n) names the entry."""
    kind: Literal["step", "child", "sleep", "value", "effect", "compensation", "interrupt", "heard", "node"] = "step"
    status: Literal["done", "failed", "started", "claimed", "unknown"] = "done"
    value: Payload | None = None
    error: ErrorInfo | None = None
    child: str | None = None
    until: datetime | None = None
    ms: float = 0.0
    """Duration in milliseconds."""
    key: str | None = None
    """Of an effect or a compensation: the idempotency key that its function was given."""
    call: Payload | None = None
    """Of a claimed effect that names a hook: what its function is called with, `{"args": […], "kwargs": {…}}`."""
    compensate: str | None = None
    """Of a claimed effect: the hook that undoes it."""
    reconcile: str | None = None
    """Of a claimed effect: the hook that finds out whether it happened, if it is one that needs no code around it."""
    by: Literal["call", "hook", "person"] | None = None
    """Of a settled effect: who says so."""
    heard: int = 0
    """Of `heard`: stream sequence up to which the code has been given what was said; `value` is a list of Word."""


class Event(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a run tells its watchers, on `….delta`, `….custom`, `….message` (a list when several waited).

    `type` is `delta`, `progress`, `message` or the name given to `ctx.emit`."""

    at: str
    attempt: int
    n: int
    type: str
    data: Payload = NOTHING


class Artifact(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A named result, on `cb.run.{root}.{run}.artifact`. Text and JSON inline as `text`, bytes as `base64`, large
    by `ref`."""

    at: str
    attempt: int
    n: int
    name: str
    media_type: str
    size: int
    digest: str
    """`sha256:…` of the content."""
    text: str | None = None
    base64: bytes | None = None
    ref: BlobRef | None = None
