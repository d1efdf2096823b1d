"""What an agent's code hears."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any


@dataclass(frozen=True)
class Heard:
    """A message that was said to the run while it had not ended."""

    content: Any
    """Plain JSON."""
    by: str | None
    """Who has said it, as far as that was told."""
    at: datetime
    """When it was said, by the coordinator's clock."""
    key: str
    """Names the message."""
