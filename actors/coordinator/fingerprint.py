"""What tells two requests with one name apart."""

from __future__ import annotations

import hashlib

import msgspec

from ...topics.codec import canonical
from ...topics.messages import TaskRequest, encode
from . import delay, terms


def fingerprint(request: TaskRequest) -> str:
    """Digest of what a request asks for, the same for any order of keys in its JSON."""
    body = canonical(bytes(request.input)) if request.input_ref is None else encode(request.input_ref)
    digest = hashlib.blake2b(body, digest_size=12)
    for part in (request.agent, request.topic, request.thread):
        digest.update(b"\0" + (part or "").encode())
    digest.update(canonical(msgspec.json.encode(request.metadata or {})))
    digest.update((request.policy or "").encode())
    if request.fork is not None or request.version is not None:
        digest.update(b"\0" + msgspec.json.encode([request.fork, request.version]))
    digest.update("\0".join(filter(None, (delay.text(request.run_at), terms.text(request)))).encode())
    return digest.hexdigest()
