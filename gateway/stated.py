"""Checkpoints and states of runs, as they go in and out over HTTP."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Any, Literal

import msgspec
from pydantic import ConfigDict, Field

from ..store.checkpoints import Choice, Difference, Marks, Pruned, Saved, State, outline
from ..store.size import Size
from ..topics.messages import Source
from .models import Asked, Model, Token

_ID = "1207"
_CHECKPOINT: dict[str, Any] = {
    "id": _ID, "parent": "1198", "run": "1m8m1qw8kkpyz67fqsgrq2vw", "namespace": "", "step": 3, "source": "loop",
    "created_at": "2026-01-01T12:00:00Z", "attempt": 1, "agent": "writer", "version": "7", "schema_version": "1",
    "fingerprint": "5f0c1d2e3b4a5968", "ran": ["draft"], "next": ["review"], "labels": ["reviewed"],
    "channels": ["notes", "text"], "changed": ["text"], "size_bytes": 311,
}  # fmt: skip
_CHANGES: list[dict[str, Any]] = [
    {"channel": "notes", "kind": "appended", "appended": ["shorter"]},
    {"channel": "text", "kind": "changed", "old": "A draft", "new": "A text"},
]
_AMOUNT: dict[str, Any] = {"count": 12, "bytes": 4711}


def _like(example: dict[str, Any]) -> ConfigDict:
    return ConfigDict(frozen=True, json_schema_extra={"examples": [example]})


class CheckpointOut(Model):
    """A snapshot of a run, without its values."""

    model_config = _like(_CHECKPOINT)

    id: str
    """Its name: the stream sequence of its message."""
    parent: str | None
    """The checkpoint before it; of the first one of a fork it is one of another run."""
    run: str
    namespace: str
    """Empty for the run's own state, else the path of the subgraph."""
    created_at: datetime
    step: int
    """Supersteps that are done, or checkpoints of the code."""
    source: Source
    attempt: int
    """0 when no attempt wrote it."""
    agent: str
    version: str
    schema_version: str
    fingerprint: str
    """Of its graph."""
    ran: list[str]
    """The nodes whose writes led to it."""
    next: list[str]
    """The nodes that are carried out next."""
    labels: list[str]
    channels: list[str]
    """Those that have a value."""
    changed: list[str]
    """Those of which its message holds something new."""
    size_bytes: int
    """Of its message, without what lies in the object store."""


class CheckpointPage(Model):
    """Checkpoints of one namespace, the newest first."""

    model_config = _like({"checkpoints": [_CHECKPOINT], "next": _ID})

    checkpoints: list[CheckpointOut]
    next: str | None
    """Give it as `before` for the following page; null when this is the end."""


class StateOut(Model):
    """A state: a checkpoint with its values."""

    model_config = _like({"checkpoint": _CHECKPOINT, "values": {"notes": ["shorter"], "text": "A text"}})

    checkpoint: CheckpointOut
    values: dict[str, Any]
    """By channel, as they were stored."""


class ChangeOut(Model):
    """A place inside of a value that differs; without `old`, or `new`, there was, or is, nothing."""

    path: str
    """JSON Pointer from the channel's value."""
    old: Any = None
    new: Any = None


class DifferenceOut(Model):
    """How one channel differs."""

    channel: str
    kind: Literal["added", "removed", "changed", "appended"]
    old: Any = None
    """Of one that was removed, or changed."""
    new: Any = None
    """Of one that was added, or changed."""
    appended: Any = None
    """Of a list or text that grew at its end: what came on."""
    inside: list[ChangeOut] = Field(default_factory=list)
    """Of a changed list or object: where it differs, at most 200 places."""


class DiffOut(Model):
    """What differs between two checkpoints."""

    model_config = _like({"old": _CHECKPOINT, "new": _CHECKPOINT | {"id": "1215"}, "differences": _CHANGES})

    old: CheckpointOut
    new: CheckpointOut
    differences: list[DifferenceOut]


class EditAsked(Asked):
    """An edit of a state, by channel."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"values": {"text": "A better text"}, "append": {"notes": ["by hand"]}}]}
    )

    values: dict[str, Any] = Field(default_factory=dict)
    """New values, in place of the old ones."""
    append: dict[str, list[Any]] = Field(default_factory=dict)
    """Items that come on at the end of lists."""
    remove: list[str] = Field(default_factory=list)
    """Channels that have no value any more."""
    as_node: str | None = None
    """Of a graph: the node that the edit is taken to come from; what follows it is carried out next."""


class LabelAsked(Asked):
    """The name that a checkpoint is to have."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"name": "reviewed"}]})

    name: Annotated[Token, Field(pattern=r"^[^\s.*>/\\@\x00-\x20\x7f]{1,128}$")]


class LabelsOut(Model):
    """The labels of a run."""

    model_config = _like({"run": _CHECKPOINT["run"], "labels": {"reviewed": _ID}, "forks": {}})

    run: str
    labels: dict[str, str]
    """The checkpoint of each."""
    forks: dict[str, str]
    """The checkpoints that other runs began from, by run: they are kept as well."""


class PruneAsked(Asked):
    """What is to be kept; given both, a checkpoint stays if one of them says so."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"keep": 10, "older_than_s": 86400, "dry_run": True}]})

    keep: Annotated[int, Field(ge=1, le=2**31)] | None = None
    """The newest so many checkpoints."""
    older_than_s: Annotated[float, Field(ge=0, le=316_224_000)] | None = None
    """Only those that are older are removed."""
    dry_run: bool = False
    """Say what would be removed, and remove nothing."""

    @property
    def choice(self) -> Choice:
        """Raises InvalidInput when nothing is said."""
        return Choice(self.keep, None if self.older_than_s is None else timedelta(seconds=self.older_than_s))


class PrunedOut(Model):
    """What was removed, or would be."""

    model_config = ConfigDict(
        frozen=True,
        from_attributes=True,
        json_schema_extra={
            "examples": [
                {
                    "run": _CHECKPOINT["run"], "dry_run": False, "removed": 88, "removed_bytes": 27_000, "kept": 12,
                    "held": 2, "carriers": 3,
                }
            ]
        },
    )  # fmt: skip

    run: str
    dry_run: bool
    removed: int
    """Messages."""
    removed_bytes: int
    kept: int
    """Checkpoints that can be loaded."""
    held: int
    """Those of them that stay for a label or another run alone."""
    carriers: int
    """Messages that stay for the values that they hold."""


class AmountOut(Model):
    """So many, of so many bytes together."""

    model_config = ConfigDict(frozen=True, from_attributes=True)

    count: int
    bytes: int


class SizeOut(Model):
    """What a run takes, or a thread with its runs."""

    model_config = ConfigDict(
        frozen=True,
        from_attributes=True,
        json_schema_extra={
            "examples": [
                {
                    "messages": _AMOUNT, "kinds": {"checkpoint": _AMOUNT}, "channels": {"text": _AMOUNT},
                    "blobs": {"count": 0, "bytes": 0},
                }
            ]
        },
    )  # fmt: skip

    messages: AmountOut
    """With the bytes of their bodies."""
    kinds: dict[str, AmountOut]
    """Messages by kind of event; those of subgraphs count as `checkpoint`, those of a thread as `thread`."""
    channels: dict[str, AmountOut]
    """Values, or parts of them, that checkpoints hold."""
    blobs: AmountOut
    """What lies in the object store, each content once."""


def checkpoint(saved: Saved, marks: Marks) -> CheckpointOut:
    """One checkpoint."""
    return CheckpointOut(**outline(saved, marks))


def state(found: State, marks: Marks) -> bytes:
    """A state as JSON, its values as they were stored."""
    head = checkpoint(found.saved, marks).model_dump_json().encode()
    values = msgspec.json.encode({name: msgspec.Raw(raw) for name, raw in found.raws.items()})
    return b'{"checkpoint":' + head + b',"values":' + values + b"}"


def diff(old: CheckpointOut, new: CheckpointOut, found: list[Difference]) -> bytes:
    """What differs, as JSON; what there is not is left out."""
    head = b'{"old":' + old.model_dump_json().encode() + b',"new":' + new.model_dump_json().encode()
    return head + b',"differences":' + msgspec.json.encode(found) + b"}"


def labels(run: str, marks: Marks) -> LabelsOut:
    """The labels of a run, and who holds something of it."""
    named, forks = ({name: str(number) for name, number in part.items()} for part in (marks.labels, marks.holds))
    return LabelsOut(run=run, labels=named, forks=forks)


def pruned(found: Pruned) -> PrunedOut:
    """What was removed."""
    return PrunedOut.model_validate(found)


def size(found: Size) -> SizeOut:
    """What a run takes."""
    return SizeOut.model_validate(found)
