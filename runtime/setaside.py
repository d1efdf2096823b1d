"""Setting a message aside: into the dead letters, with the reason, so that others can go on."""

from __future__ import annotations

import logging

from ..store.deadletters import DeadLetters
from ..store.errors import info_of
from ..topics.bus import Bus

log = logging.getLogger(__name__)


async def set_aside(
    bus: Bus, kind: str, subject: str, data: bytes, headers: dict[str, str], error: BaseException
) -> None:
    """Stores the message with the reason. Raises BrokerError when it could not be stored."""
    await DeadLetters(bus).put(kind, subject, data, headers, info_of(error))
    log.warning("set aside (%s) %s: %s", kind, subject, error)
