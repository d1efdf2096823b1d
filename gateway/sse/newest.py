"""The newest message below a filter, as the stream's leader knows it."""

from __future__ import annotations

from ...topics.bus import Bus


async def newest(bus: Bus, stream: str, subject: str) -> int:
    """Its stream sequence, 0 if there is none. Never late, unlike a direct get, which any replica may answer."""
    answer = await bus.api(f"STREAM.MSG.GET.{stream}", {"last_by_subj": subject}, missing_ok=True)
    return 0 if answer is None else int(answer["message"]["seq"])


async def is_replicated(bus: Bus, stream: str) -> bool:
    """Whether the stream has replicas: direct gets may then be late, and a change of leader may swallow live events."""
    info = await bus.api(f"STREAM.INFO.{stream}")
    return info is not None and int(info["config"].get("num_replicas", 1)) > 1
