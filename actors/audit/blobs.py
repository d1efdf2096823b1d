"""Blobs: whether what records, entries and messages refer to lies in the object store, as a whole.

The description of each blob is read, and its chunks are counted; their bytes are not (whoever reads a blob checks its
digest)."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from ...store.journal import Entry
from ...topics import reads
from ...topics.bus import Bus
from ...topics.errors import CallboardError
from ...topics.messages import Artifact, BlobRef, Cell, Event, Payload, RunRecord, ThreadMessage
from ...topics.reads import Stored
from .findings import Findings

_PAGE = 250


class _Description(msgspec.Struct):
    nuid: str = ""
    size: int = 0
    chunks: int = 0
    deleted: bool | None = False


_decode = msgspec.json.Decoder(_Description).decode
_decode_message = msgspec.json.Decoder(ThreadMessage).decode


class _Use(NamedTuple):
    """Where a blob was first referred to."""

    size: int
    run: str | None
    sequence: int


class BlobUses:
    """Gathers references: each blob once, with who refers to it first."""

    def __init__(self) -> None:
        self._uses: dict[tuple[str, str], _Use] = {}

    def record(self, record: RunRecord, sequence: int) -> None:
        """Input and result of a run."""
        self._payloads((record.input, record.result), record.id, sequence)

    def entries(self, run: str, found: Iterable[Entry], sequence: int) -> None:
        """Values, events and artifacts of a run."""
        for entry in found:
            if isinstance(entry, Artifact):
                self._add(entry.ref, run, sequence)
            else:
                self._payloads((entry.data if isinstance(entry, Event) else entry.value,), run, sequence)

    def cells(self, run: str, found: Iterable[Cell], sequence: int) -> None:
        """Values of a checkpoint."""
        for cell in found:
            self._add(cell.ref, run, sequence)

    def thread(self, stored: Stored) -> None:
        """A message of a thread; one that cannot be read refers to nothing."""
        if stored.kind == "message":
            try:
                message = _decode_message(stored.data)
            except (msgspec.MsgspecError, RecursionError):
                return
            self._payloads((message.content,), message.run, stored.sequence)

    def _payloads(self, found: Iterable[Payload | None], run: str | None, sequence: int) -> None:
        for payload in found:
            if payload is not None:
                self._add(payload.ref, run, sequence)

    def _add(self, ref: BlobRef | None, run: str | None, sequence: int) -> None:
        if ref is not None:
            self._uses.setdefault((ref.bucket, ref.name), _Use(ref.size, run, sequence))

    # -- looking ------------------------------------------------------------------------------------------------

    async def check(self, bus: Bus, findings: Findings) -> None:
        """Looks for every blob. Raises BrokerError when the broker does not answer."""
        buckets: dict[str, list[tuple[str, _Use]]] = {}
        for (bucket, name), use in self._uses.items():
            buckets.setdefault(bucket, []).append((name, use))
        for bucket, uses in buckets.items():
            there = await _exists(bus, bucket)
            for start in range(0, len(uses), _PAGE):
                page = uses[start : start + _PAGE]
                async for name, use, problem in _problems(bus, bucket, page, there=there):
                    findings.add(
                        "blob_missing", use.run, f"blob {name[:80]} in {bucket[:80]}: {problem}",
                        expected=f"{use.size} bytes", sequence=use.sequence,
                    )  # fmt: skip


async def _exists(bus: Bus, bucket: str) -> bool:
    try:
        return await bus.api(f"STREAM.INFO.OBJ_{bucket}", missing_ok=True) is not None
    except CallboardError as error:
        if error.retryable:
            raise
        return False  # a name that no stream can have


async def _problems(bus: Bus, bucket: str, page: Sequence[tuple[str, _Use]], *, there: bool) -> Any:
    """Name, use and what is wrong, of those blobs with which something is."""
    if not there:
        for name, use in page:
            yield name, use, "there is no such object store"
        return
    subjects = {f"$O.{bucket}.M.{urlsafe_b64encode(name.encode()).decode()}": (name, use) for name, use in page}
    found = await reads.many_last(bus, f"OBJ_{bucket}", list(subjects))
    for subject, (name, use) in subjects.items():
        problem = await _problem(bus, bucket, found.get(subject), use)
        if problem is not None:
            yield name, use, problem


async def _problem(bus: Bus, bucket: str, stored: Stored | None, use: _Use) -> str | None:
    if stored is None:
        return "it is not there"
    try:
        description = _decode(stored.data)
    except (msgspec.MsgspecError, RecursionError) as error:
        return f"its description cannot be read ({error})"
    if description.deleted or not description.nuid:
        return "it is deleted"
    if description.size != use.size:
        return f"it has {description.size} bytes"
    chunks = await _count(bus, bucket, description.nuid)
    return None if chunks >= description.chunks else f"{chunks} of its {description.chunks} chunks are there"


async def _count(bus: Bus, bucket: str, nuid: str) -> int:
    subject = f"$O.{bucket}.C.{nuid}"
    info = await bus.api(f"STREAM.INFO.OBJ_{bucket}", {"subjects_filter": subject}) or {}
    return sum(_counts(info))


def _counts(info: dict[str, Any]) -> Iterator[int]:
    yield from ((info.get("state") or {}).get("subjects") or {}).values()
