"""Signatures in the form of Standard Webhooks: HMAC-SHA256 over id, time and body."""

from __future__ import annotations

import base64
import hashlib
import hmac


def signature(key: bytes, id_: str, timestamp: int, body: bytes) -> str:
    """The value of `webhook-signature`. `timestamp`: Unix seconds of this sending."""
    signed = f"{id_}.{timestamp}.".encode() + body
    return "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()


def headers(key: bytes, id_: str, timestamp: int, body: bytes) -> dict[str, str]:
    """The headers of one sending."""
    return {
        "webhook-id": id_,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": signature(key, id_, timestamp, body),
    }
