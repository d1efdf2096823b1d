"""What lies in a stream and cannot be read is told once by each process, however often it is come across."""

from __future__ import annotations

import logging
from functools import lru_cache

from ..topics.reads import Stored


def leave_out(log: logging.Logger, stored: Stored, why: str) -> None:
    """Warns that a message is left out, the first time: readers that look every second would fill the log."""
    _warn(log, f"message {stored.sequence} on {stored.subject} is left out: {why}")


@lru_cache(maxsize=1_000)
def _warn(log: logging.Logger, text: str) -> None:
    log.warning("%s", text)
