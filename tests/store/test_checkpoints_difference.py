"""What differs between two checkpoints."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from callboard.topics.bus import Bus
from tests.store.chains import Chain

LEFT: dict[str, Any] = {
    "same": {"a": 1, "b": [1, 2]}, "gone": 1, "n": 1, "log": ["a", "b"], "text": "abc", "shorter": [1, 2, 3],
    "bool": 1, "deep": {"k": {"a/b": [1, {"x": 1}], "~": 0}, "old": 1}, "kind": [1],
}  # fmt: skip
RIGHT: dict[str, Any] = {
    "same": {"b": [1, 2], "a": 1}, "new": None, "n": 2, "log": ["a", "b", "c", {"d": 1}], "text": "abcd",
    "shorter": [1, 2], "bool": True, "deep": {"k": {"a/b": [1, {"x": 2}], "~": 1}, "new": 2}, "kind": {"0": 1},
}  # fmt: skip
EXPECTED = [
    {"channel": "bool", "kind": "changed", "old": 1, "new": True},
    {
        "channel": "deep", "kind": "changed", "old": LEFT["deep"], "new": RIGHT["deep"],
        "inside": [
            {"path": "/k/a~1b/1/x", "old": 1, "new": 2},
            {"path": "/k/~0", "old": 0, "new": 1},
            {"path": "/old", "old": 1},
            {"path": "/new", "new": 2},
        ],
    },
    {"channel": "gone", "kind": "removed", "old": 1},
    {"channel": "kind", "kind": "changed", "old": [1], "new": {"0": 1}},
    {"channel": "log", "kind": "appended", "appended": ["c", {"d": 1}]},
    {"channel": "n", "kind": "changed", "old": 1, "new": 2},
    {"channel": "new", "kind": "added", "new": None},
    {
        "channel": "shorter", "kind": "changed", "old": [1, 2, 3], "new": [1, 2],
        "inside": [{"path": "/2", "old": 3}],
    },
    {"channel": "text", "kind": "appended", "appended": "d"},
]  # fmt: skip


@pytest.mark.parametrize("runs", [1, 2])
async def test_channels_that_were_added_removed_changed_or_have_grown(bus: Bus, runs: int) -> None:
    left = await Chain(bus).begin()
    right = left if runs == 1 else await Chain(bus).begin()
    first = await left.save(LEFT)
    second = await right.save(RIGHT)
    store = left.store
    old, new = await store.reader.at(left.run, str(first)), await store.reader.at(right.run, str(second))
    assert msgspec.to_builtins(await store.difference(old, new)) == EXPECTED
    assert await store.difference(old, old) == []
