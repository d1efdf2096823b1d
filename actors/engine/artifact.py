"""How a named result is made of text, bytes or a value."""

from __future__ import annotations

import hashlib
from typing import Any

from ...store.blobs import Blobs
from ...topics import codec
from ...topics.messages import Artifact


async def made_artifact(
    blobs: Blobs, inline_limit: int, name: str, content: Any, media_type: str | None, *, at: str, attempt: int, n: int
) -> Artifact:
    """The entry of an artifact; content above the inline limit is stored first. Raises EncodeError for a value
    that cannot be carried."""
    data, default = _bytes_of(content)
    kind = media_type or default
    common: dict[str, Any] = {
        "at": at,
        "attempt": attempt,
        "n": n,
        "name": name,
        "media_type": kind,
        "size": len(data),
        "digest": f"sha256:{hashlib.sha256(data).hexdigest()}",
    }
    if len(data) > inline_limit // 2:  # base64 and escapes can make it longer
        return Artifact(**common, ref=await blobs.put(data))
    try:
        return Artifact(**common, text=data.decode())
    except UnicodeDecodeError:
        return Artifact(**common, base64=data)


def _bytes_of(content: Any) -> tuple[bytes, str]:
    if isinstance(content, str):
        try:
            return content.encode(), "text/plain; charset=utf-8"
        except UnicodeEncodeError:
            codec.encode(content)  # says where
            raise
    if isinstance(content, bytes | bytearray | memoryview):
        return bytes(content), "application/octet-stream"
    return codec.encode(content), "application/json"
