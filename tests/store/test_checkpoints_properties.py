"""Random edits of a state against a plain model: whatever is saved, every checkpoint says what it said."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as profile
from hypothesis import strategies as st

from callboard.store.checkpoints import scribe
from callboard.topics.bus import Bus
from callboard.topics.config import BrokerSettings
from callboard.topics.streams import ensure_streams
from tests.store.chains import Chain, agrees

NAMES = st.sampled_from(["a", "b", "c", "d"])
ITEMS: st.SearchStrategy[list[Any]] = st.lists(
    st.one_of(st.text(max_size=40), st.integers(-9, 9), st.just([]), st.none()), max_size=6
)
VALUES = st.one_of(st.none(), st.integers(), st.text(max_size=60), ITEMS, st.dictionaries(st.text(max_size=9), ITEMS))
EDITS = st.one_of(
    st.tuples(st.just("set"), NAMES, VALUES),
    st.tuples(st.just("append"), NAMES, ITEMS),
    st.tuples(st.just("extend"), NAMES, ITEMS),
    st.tuples(st.just("copy"), NAMES, NAMES),
    st.tuples(st.just("remove"), NAMES, st.none()),
    st.tuples(st.just("resume"), NAMES, st.none()),
)


async def _edited(settings: BrokerSettings, edits: list[tuple[str, str, Any]]) -> None:
    bus = await Bus.connect(settings)
    try:
        await ensure_streams(bus, settings)
        chain = await Chain(bus).begin()
        values: dict[str, Any] = {}
        for what, name, value in edits:
            changes: dict[str, list[Any] | None] | None = {name: None}
            if what == "set":
                values[name] = value
            elif what == "copy" and value in values:
                values[name] = values[value]
            elif what == "remove":
                values.pop(name, None)
            elif what == "append":
                grows = isinstance(values.get(name), list)
                values[name] = [*values[name], *value] if grows else value
                changes = {name: value if grows else None}
            elif what == "extend":
                known = values.get(name)
                values[name] = [*known, *value] if isinstance(known, list) else value
                changes = None
            elif what == "resume" and chain.saved:
                await chain.again()
            await chain.save(values, changes)
        await agrees(chain)
        assert [saved.sequence for saved in await chain.store.history(chain.run, limit=999)] == [
            sequence for sequence, _ in reversed(chain.saved)
        ]
    finally:
        await bus.close()


@profile(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(edits=st.lists(EDITS, min_size=1, max_size=40))
def test_every_checkpoint_says_what_it_said(
    settings: BrokerSettings, monkeypatch: pytest.MonkeyPatch, edits: list[tuple[str, str, Any]]
) -> None:
    """With few pieces to a level and no value too small to grow, so that short histories reach several levels."""
    monkeypatch.setattr(scribe, "SEALED_AT", 3)
    monkeypatch.setattr(scribe, "_SMALL", 2)
    asyncio.run(_edited(settings, edits))
