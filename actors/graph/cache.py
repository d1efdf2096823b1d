"""`Cache`: results of a node that are used again for the same key, in this process."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from .ground import Writes


@dataclass(frozen=True)
class Cache:
    """`key(state)` gives a string; a node whose key was seen less than `ttl` ago (None: ever) is not called again.

    For nodes whose result follows from their key: another process has a cache of its own."""

    key: Callable[[Any], str]
    ttl: timedelta | None = None
    size: int = 1024
    """Results that are kept; the one that was used longest ago goes first."""
    _kept: OrderedDict[str, tuple[float, Writes]] = field(default_factory=OrderedDict, repr=False, compare=False)

    def get(self, key: str) -> Writes | None:
        """What the node wrote for this key."""
        found = self._kept.get(key)
        if found is None or (self.ttl is not None and time.monotonic() - found[0] > self.ttl.total_seconds()):
            return None
        self._kept.move_to_end(key)
        return found[1]

    def put(self, key: str, writes: Writes) -> None:
        """Keeps what the node wrote."""
        self._kept[key] = (time.monotonic(), writes)
        self._kept.move_to_end(key)
        while len(self._kept) > self.size:
            self._kept.popitem(last=False)
