"""How one value of a checkpoint is stored: inline or as a blob, encrypted when there is a key."""

from __future__ import annotations

from msgspec import UNSET, Raw, UnsetType

from ...topics.bus import Bus
from ...topics.messages import Cell
from ..blobs import Blobs
from ..cipher import Cipher

NULL = b"null"


class Cells:
    """Makes cells of JSON, and reads them."""

    def __init__(self, bus: Bus, blobs: Blobs) -> None:
        self._blobs = blobs
        self._cipher = Cipher.of(bus.settings)
        self.inline_limit = bus.inline_limit
        """Bytes of JSON, or of its token, up to which a value stands in the checkpoint's message."""

    async def make(self, raw: bytes, *, inline: bool = True) -> Cell:
        """The cell of a JSON value; `inline=False` puts it into the object store whatever its size. Raises as
        `Blobs.put` does."""
        data = raw if self._cipher is None else self._cipher.seal(raw)
        if len(data) > self.inline_limit or not inline:
            return Cell(ref=await self._blobs.put(data), secret=self._cipher is not None)
        return Cell(json=Raw(data)) if self._cipher is None else Cell(sealed=data.decode())

    async def read(self, cell: Cell) -> bytes:
        """The JSON of a cell. Raises BlobMissing, BlobCorrupt, CheckpointKeyMissing, Unavailable."""
        if cell.ref is not None:
            data = await self._blobs.get(cell.ref)
            return Cipher.opened(self._cipher, data) if cell.secret else data
        if cell.sealed is not None:
            return Cipher.opened(self._cipher, cell.sealed.encode())
        return NULL if isinstance(cell.json, UnsetType) else bytes(cell.json)

    @property
    def sealing(self) -> bool:
        """Whether values are encrypted."""
        return self._cipher is not None


def size_of(cell: Cell) -> int:
    """Bytes that the value takes, wherever it lies."""
    if cell.ref is not None:
        return cell.ref.size
    return len(cell.sealed or "") if cell.json is UNSET else len(bytes(cell.json))
