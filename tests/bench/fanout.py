"""SSE clients that read as fast as they can, and check that each got everything in order and once."""

from __future__ import annotations

import asyncio
import re
import time
from urllib.parse import urlsplit

_ID = re.compile(rb"^id: ?([0-9.]+)\r?$", re.MULTILINE)
_CHUNK = 1 << 18


async def deliveries_per_s(base: str, run: str, clients: int, expected: int) -> float:
    """Events delivered a second, to all clients together. Raises AssertionError if one got something else."""
    started = time.perf_counter()
    bodies = await asyncio.gather(*(_read(base, f"/runs/{run}/events?kinds=custom") for _ in range(clients)))
    elapsed = time.perf_counter() - started
    for body in bodies:
        _check(body, expected)
    return clients * expected / elapsed


async def _read(base: str, path: str) -> bytes:
    parts = urlsplit(base)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port, limit=_CHUNK)
    head = (f"GET {path} HTTP/1.1", f"Host: {parts.netloc}", "Accept: text/event-stream", "Connection: close", "", "")
    writer.write("\r\n".join(head).encode())
    chunks = []
    async with asyncio.timeout(60):
        while chunk := await reader.read(_CHUNK):
            chunks.append(chunk)
            if b"event: end" in chunk[-200:]:
                break
    writer.close()
    return b"".join(chunks)


def _check(body: bytes, expected: int) -> None:
    ids = [tuple(int(part) for part in match.split(b".")) for match in _ID.findall(body)]
    positions = [(one[0], one[1] if len(one) > 1 else 1 << 30) for one in ids]
    assert positions == sorted(set(positions)), "events came out of order or twice"
    ticks = body.count(b'"tick"')
    assert ticks == expected, f"{ticks} events of {expected} came"
