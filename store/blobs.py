"""Blobs: payloads too large for a message, in the object store, named by their content.

The layout is that of every NATS object store (ADR-20 of nats-architecture-and-design): a stream `OBJ_{bucket}` with the
chunks of an object on one subject and its description on another, so `nats object get cb_BLOBS NAME` reads them. A
blob's name is the SHA-256 of its content in hex: putting the same bytes twice stores them once.

Two processes may put the same bytes at once, and a process may die half-way. Chunks therefore go to a subject that
follows from the content, each under a message id that follows from its place: the broker drops the second copy, a retry
finds what is there and writes the rest. The description comes last, on the condition that the last chunk is still the
last.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from base64 import urlsafe_b64encode
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
from msgspec import UnsetType

from ..topics import reads
from ..topics.bus import Bus, fence
from ..topics.client import head_bytes
from ..topics.errors import BrokerError, NoResponders, StaleFence, StorageFull, Unavailable, WriteInFlight
from ..topics.ids import new_token
from ..topics.messages import BlobRef, Payload
from ..topics.units import nanoseconds, utc
from .cipher import Cipher
from .errors import BlobCorrupt, BlobMissing

CHUNK_BYTES = 128 * 1024
_HEAD_BYTES = 512  # more than the headers of a chunk need
_WINDOW_BYTES = 2 * 1024 * 1024
_DUPLICATES_S = 600.0
_DAY_S = 86_400.0
_THREAD_BYTES = 1024 * 1024
_PATIENCE_S = 30.0
_LAG_S = (0.05, 0.1, 0.2, 0.5)
_EXISTS = 10058

log = logging.getLogger(__name__)


class _Options(msgspec.Struct):
    max_chunk_size: int = CHUNK_BYTES
    link: Any = None


class _Description(msgspec.Struct, kw_only=True):
    """The object's description as every NATS client knows it."""

    name: str
    bucket: str
    nuid: str = ""
    size: int = 0
    mtime: str = ""
    chunks: int = 0
    digest: str = ""
    deleted: bool | None = False
    options: _Options | None = None


_decode = msgspec.json.Decoder(_Description).decode


def _head(description: _Description) -> bytes:
    return msgspec.json.encode(
        {
            "name": description.name,
            "bucket": description.bucket,
            "nuid": description.nuid,
            "size": description.size,
            "mtime": description.mtime,
            "chunks": description.chunks,
            "digest": description.digest,
            "options": {"max_chunk_size": (description.options or _Options()).max_chunk_size},
        }
    )


async def _sha256(data: bytes) -> bytes:
    if len(data) < _THREAD_BYTES:
        return hashlib.sha256(data).digest()
    return await asyncio.to_thread(lambda: hashlib.sha256(data).digest())


def _digest_text(digest: bytes) -> str:
    return f"SHA-256={urlsafe_b64encode(digest).decode()}"


class Blobs:
    """The blobs of an installation, in the bucket `{namespace}_BLOBS`.

    `patient`: a put waits, however long, while the broker is away or has no room. For who has results in hand that
    would be lost otherwise."""

    def __init__(self, bus: Bus, clock: Callable[[], float] = time.time, *, patient: bool = False) -> None:
        self._bus, self._patient = bus, patient
        self._clock = clock
        self.bucket = bus.subjects.blobs
        self._kept_s = bus.settings.retention_days * _DAY_S
        self._ensured = False

    # -- the bucket ---------------------------------------------------------------------------------------------

    async def ensure(self) -> None:
        """Creates the bucket if there is none; an existing one stays as it is. `put` does it by itself."""
        if self._ensured:
            return
        stream = f"OBJ_{self.bucket}"
        if await self._bus.api(f"STREAM.INFO.{stream}", missing_ok=True) is None:
            try:
                await self._bus.api(f"STREAM.CREATE.{stream}", self._declaration(stream))
            except BrokerError as error:
                if error.facts.get("err_code") != _EXISTS:
                    raise
        self._ensured = True

    def _declaration(self, stream: str) -> dict[str, Any]:
        settings = self._bus.settings
        age_s = 2 * self._kept_s
        return {
            "name": stream,
            "subjects": [f"$O.{self.bucket}.C.>", f"$O.{self.bucket}.M.>"],
            "retention": "limits",
            "storage": settings.storage,
            "num_replicas": settings.replicas,
            "max_bytes": settings.max_bytes or -1,
            "max_age": nanoseconds(age_s),
            "duplicate_window": nanoseconds(min(_DUPLICATES_S, age_s or _DUPLICATES_S)),
            "discard": "new",
            "allow_direct": True,
            "allow_rollup_hdrs": True,
        }

    # -- put ----------------------------------------------------------------------------------------------------

    async def put(self, data: bytes, patience_s: float = _PATIENCE_S) -> BlobRef:
        """Stores the bytes and returns when all are acknowledged; bytes that are there already are not sent again.

        Where runs are kept for a limited time, a blob is kept at least as long after its last put. Repeats for
        `patience_s` seconds while the broker is unavailable, then raises Unavailable; raises StorageFull at once. A
        `patient` one waits in both cases. What a failed or cancelled put has left is completed by the next put of the
        same bytes."""
        digest = await _sha256(data)
        ref = BlobRef(name=digest.hex(), size=len(data), bucket=self.bucket)
        loop = asyncio.get_running_loop()
        deadline, delay = loop.time() + patience_s, 0.05
        first = nuid = urlsafe_b64encode(digest).decode().rstrip("=") + self._period()
        while True:
            try:
                await self.ensure()
                if not await self._is_there(ref, first):
                    await self._put_once(ref, digest, data, nuid)
                    if nuid != first:
                        await self._discard(first)
                return ref
            except StaleFence:  # what lies on this subject is not the beginning of our bytes: take another
                nuid = f"{first}-{new_token(8)}"
            except (Unavailable, WriteInFlight, NoResponders, StorageFull) as error:
                if not self._patient and (isinstance(error, StorageFull) or loop.time() + delay > deadline):
                    raise
                log.log(
                    logging.WARNING if isinstance(error, StorageFull) else logging.DEBUG, "%s waits: %s", ref, error
                )
                self._ensured = self._ensured and not isinstance(error, NoResponders)
            await asyncio.sleep(delay)
            delay = min(delay * 2, 1.0)

    def _period(self) -> str:
        """Changes once in the time that runs are kept: a blob put again in a later period is stored anew, and the copy
        of the period before ages out."""
        return f"-{int(self._clock() // self._kept_s)}" if self._kept_s else ""

    async def _is_there(self, ref: BlobRef, nuid: str) -> bool:
        """Whether the blob was put in this period already."""
        try:
            known = await self._description(ref)
        except BlobCorrupt:
            return False
        return known is not None and known.size == ref.size and f"{known.nuid}-".startswith(f"{nuid}-")

    async def _discard(self, nuid: str) -> None:
        """Removes chunks that no description names."""
        body = {"filter": f"$O.{self.bucket}.C.{nuid}"}
        try:
            await self._bus.api(f"STREAM.PURGE.OBJ_{self.bucket}", body)
        except BrokerError as error:
            log.warning("chunks of no blob remain on %s: %s", body["filter"], error)

    async def _put_once(self, ref: BlobRef, digest: bytes, data: bytes, nuid: str) -> None:
        subject = f"$O.{self.bucket}.C.{nuid}"
        found = await self._found(subject, data)
        if found is None:
            raise StaleFence(f"chunks of another content lie on {subject}", subject=subject)
        offset, count, last = found
        chunk = min(CHUNK_BYTES, max(1, self._bus.max_payload - _HEAD_BYTES))
        sent, newest = await self._write_chunks(subject, nuid, data, offset, chunk)
        description = _Description(
            name=ref.name,
            bucket=self.bucket,
            nuid=nuid,
            size=ref.size,
            mtime=utc(self._clock()).isoformat().replace("+00:00", "Z"),
            chunks=count + sent,
            digest=_digest_text(digest),
            options=_Options(max_chunk_size=chunk),
        )
        head = fence(newest or last, subject, {"Nats-Rollup": "sub"})
        await self._bus.write(self._described_on(ref.name), _head(description), head)

    async def _found(self, subject: str, data: bytes) -> tuple[int, int, int] | None:
        """How many bytes and chunks of `data` an earlier put has left, and the sequence of the last chunk; None when
        what lies there is not the beginning of `data`."""
        offset = count = last = 0
        async for page in reads.read(self._bus, f"OBJ_{self.bucket}", subject):
            for stored in page:
                if data[offset : offset + len(stored.data)] != stored.data:
                    return None
                offset, count, last = offset + len(stored.data), count + 1, stored.sequence
        return offset, count, last

    async def _write_chunks(self, subject: str, nuid: str, data: bytes, offset: int, chunk: int) -> tuple[int, int]:
        """Writes `data` from `offset` on, a bounded number of bytes ahead of the acknowledgements. Returns the number
        of chunks and the sequence of the last."""
        window: deque[asyncio.Future[int]] = deque()
        newest = count = 0
        try:
            for start in range(offset, len(data), chunk):
                head = head_bytes({"Nats-Msg-Id": f"{nuid}:{start}:{chunk}"})
                window.append(self._bus.write(subject, data[start : start + chunk], head))
                count += 1
                if len(window) * chunk >= _WINDOW_BYTES:
                    newest = self._in_order(await window.popleft(), newest, subject)
            while window:
                newest = self._in_order(await window.popleft(), newest, subject)
        finally:
            await _settled(window)
        return count, newest

    @staticmethod
    def _in_order(sequence: int, newest: int, subject: str) -> int:
        if sequence <= newest:
            raise StaleFence(f"chunks on {subject} are not in order", subject=subject)
        return sequence

    # -- get ----------------------------------------------------------------------------------------------------

    async def get(self, ref: BlobRef) -> bytes:
        """The bytes, also those that another client has put. Raises BlobMissing, BlobCorrupt, Unavailable.

        What is not found is looked for again for a second: on a cluster any replica may answer, a moment behind."""
        for delay_s in _LAG_S:
            try:
                return await self._get_once(ref)
            except BlobMissing as error:
                log.debug("looking again: %s", error)
            await asyncio.sleep(delay_s)
        return await self._get_once(ref)

    async def _get_once(self, ref: BlobRef) -> bytes:
        try:
            description = await self._description(ref)
        except NoResponders:
            await self._require_bucket(ref)
            raise
        if description is None:
            raise BlobMissing(
                f"blob {ref.name} is not in the object store {ref.bucket}: deleted, or older than what is kept",
                blob=ref.name, bucket=ref.bucket,
            )  # fmt: skip
        if description.size != ref.size:
            raise self._corrupt(ref, f"it has {description.size} bytes instead of {ref.size}")
        data = b"".join([part async for part in self._chunks(ref, description)])
        if len(data) < ref.size:
            raise BlobMissing(
                f"blob {ref.name} in {ref.bucket} is not complete: {len(data)} of {ref.size} bytes are there",
                blob=ref.name, bucket=ref.bucket,
            )  # fmt: skip
        digest = _digest_text(await _sha256(data))
        if len(data) > ref.size or digest.rstrip("=") != description.digest.rstrip("="):
            raise self._corrupt(ref, "its content has another digest")
        return data

    async def _chunks(self, ref: BlobRef, description: _Description) -> AsyncIterator[bytes]:
        """The chunks in order, in batches of a bounded size."""
        stream, subject = f"OBJ_{ref.bucket}", f"$O.{ref.bucket}.C.{description.nuid}"
        count = after = 0
        while count < description.chunks:
            page, pending = await reads.page_after(self._bus, stream, subject, after)
            for stored in page[: description.chunks - count]:
                yield stored.data
            if not page or not pending:
                return
            count, after = count + len(page), page[-1].sequence

    async def _description(self, ref: BlobRef) -> _Description | None:
        stored = await reads.last(self._bus, f"OBJ_{ref.bucket}", self._described_on(ref.name, ref.bucket))
        if stored is None:
            return None
        try:
            found = _decode(stored.data)
        except msgspec.MsgspecError as error:
            raise self._corrupt(ref, f"its description cannot be read ({error})") from error
        if found.options is not None and found.options.link is not None:
            raise self._corrupt(ref, "it is a link, and links are not followed")
        return None if found.deleted or not found.nuid else found

    def _described_on(self, name: str, bucket: str | None = None) -> str:
        return f"$O.{bucket or self.bucket}.M.{urlsafe_b64encode(name.encode()).decode()}"

    async def _require_bucket(self, ref: BlobRef) -> None:
        if await self._bus.api(f"STREAM.INFO.OBJ_{ref.bucket}", missing_ok=True) is None:
            raise BlobMissing(
                f"blob {ref.name} is missing: there is no object store {ref.bucket}", blob=ref.name, bucket=ref.bucket
            )

    @staticmethod
    def _corrupt(ref: BlobRef, what: str) -> BlobCorrupt:
        return BlobCorrupt(f"blob {ref.name} in {ref.bucket} is damaged: {what}", blob=ref.name, bucket=ref.bucket)

    # -- payloads -----------------------------------------------------------------------------------------------

    async def payload(self, data: bytes, limit_bytes: int | None = None) -> Payload:
        """A value, given as JSON, in the form that travels: inline up to `bus.inline_limit`, or to a limit below that,
        else put as a blob."""
        if len(data) <= min(self._bus.inline_limit, limit_bytes or self._bus.inline_limit):
            return Payload(json=msgspec.Raw(data))
        return Payload(ref=await self.put(data))

    async def value(self, payload: Payload) -> bytes:
        """The JSON of a payload, wherever it lies; an empty payload is null. Raises as `get` does, and
        CheckpointKeyMissing for one that is encrypted with a key that this process does not have."""
        if payload.ref is not None:
            data = await self.get(payload.ref)
        else:
            data = b"null" if isinstance(payload.json, UnsetType) else bytes(payload.json)
        return Cipher.opened(Cipher.of(self._bus.settings), data.strip(b'"')) if payload.sealed else data

    async def sealed(self, data: bytes) -> Payload:
        """As `payload`, encrypted when a key is configured."""
        cipher = Cipher.of(self._bus.settings)
        if cipher is None:
            return await self.payload(data)
        return msgspec.structs.replace(await self.payload(b'"' + cipher.seal(data) + b'"'), sealed=True)


async def _settled(window: deque[asyncio.Future[int]]) -> None:
    """Waits for the writes still under way, so that nothing of this put arrives after its end."""
    if window:
        await asyncio.wait(window)
        for future in window:
            if not future.cancelled():
                future.exception()
