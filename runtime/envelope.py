"""A message on its way through the mailbox of an application actor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..topics.client import Message
from ..topics.reads import Stored

if TYPE_CHECKING:
    from .partition import Partition


@dataclass(slots=True, eq=False)
class Published:
    """A stored message of a topic."""

    partition: Partition
    token: str
    topic: str
    stored: Stored


@dataclass(slots=True, eq=False)
class Asked:
    """A request that waits for an answer."""

    partition: Partition
    token: str
    request: Message


Envelope = Published | Asked
