"""Publishing to a topic, and which partition a key belongs to.

On the wire: `cb.topic.{topic}.{key}`, plain JSON, from any NATS client. The TOPICS stream itself inserts the partition,
so what is stored (and republished on `cb.live.topic.…`) is `cb.topic.{topic}.{partition}.{key}`; the partition is the
32-bit FNV-1a hash of the key's token modulo 16, as the server's `partition()` mapping computes it. A message without a
key uses `_`. A key that cannot be a subject token is replaced by `~` and 16 characters of its hash, and travels in the
header `Callboard-Topic-Key` as a JSON string.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any

import msgspec

from ..topics import codec, trace
from ..topics.bus import Bus
from ..topics.client import head_bytes
from ..topics.subjects import PARTITIONS, Subjects, require_token

KEYLESS = "_"
KEY_HEADER = "Callboard-Topic-Key"
_PLAIN = re.compile(r"(?!~)[!-)+\-/-=?-~]{1,64}\Z")  # printable ASCII without . * >


def key_token(key: str | None) -> str:
    """The subject token that stands for `key`: the key itself where it can be one."""
    if key is None:
        return KEYLESS
    if _PLAIN.match(key) and key != KEYLESS:
        return key
    return "~" + hashlib.blake2b(key.encode(errors="surrogatepass"), digest_size=8).hexdigest()


def partition_of(token: str) -> int:
    """The partition of a key's token: FNV-1a, 32 bits, modulo the number of partitions; the same as the server's."""
    value = 0x811C9DC5
    for byte in token.encode():
        value = ((value ^ byte) * 0x01000193) & 0xFFFFFFFF
    return value % PARTITIONS


def key_headers(key: str | None, token: str) -> dict[str, str]:
    """The header that carries a key which its token does not."""
    return {} if key is None or key == token else {KEY_HEADER: msgspec.json.encode(key).decode()}


def key_of(token: str, headers: dict[str, str]) -> str | None:
    """The key as it was published."""
    text = headers.get(KEY_HEADER)
    if text is not None:
        try:
            return msgspec.json.decode(text, type=str)
        except msgspec.MsgspecError:
            return token  # a foreign publisher's header is no reason to refuse its message
    return None if token == KEYLESS else token


def publication(subjects: Subjects, topic: str, key: str | None) -> tuple[str, dict[str, str]]:
    """Subject and headers of a message on `topic` for `key`, trace context included. Raises InvalidSubject."""
    token = key_token(key)
    return f"{subjects.topic}.{require_token('topic', topic)}.{token}", trace.inject(key_headers(key, token))


async def publish(bus: Bus, topic: str, message: Any, key: str | None = None) -> int:
    """Publishes `message`; gives the stream sequence once it is stored.

    Repeated while the broker is unavailable, at most 30 s, so a message can be stored twice. Raises EncodeError,
    InvalidSubject, PayloadTooLarge, BrokerError."""
    subject, headers = publication(bus.subjects, topic, key)
    return await bus.store(subject, codec.encode(message), head_bytes(headers) if headers else None)
