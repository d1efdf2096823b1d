"""Random stories of edits, forks, labels and prunings of several runs, against a plain model of what must be there."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as profile
from hypothesis import strategies as st

from callboard.store.checkpoints import Choice, scribe
from callboard.topics.bus import Bus
from callboard.topics.config import BrokerSettings
from callboard.topics.streams import ensure_streams
from tests.store.chains import Chain

NAMES = st.sampled_from(["a", "b", "c"])
WORDS = st.lists(st.text("xyz", max_size=30), max_size=4)
WHICH = st.integers(0, 30)
DEEDS = st.one_of(
    st.tuples(st.just("set"), NAMES, WORDS),
    st.tuples(st.just("grow"), NAMES, WORDS),
    st.tuples(st.just("grow"), NAMES, WORDS),
    st.tuples(st.just("copy"), NAMES, NAMES),
    st.tuples(st.just("take over"), NAMES, WHICH),
    st.tuples(st.just("fork"), NAMES, WHICH),
    st.tuples(st.just("label"), NAMES, WHICH),
    st.tuples(st.just("unlabel"), NAMES, WHICH),
    st.tuples(st.just("prune"), NAMES, st.integers(1, 4)),
)


@dataclass
class Story:
    """Some runs, what each of their checkpoints has said, and which of those must still say it."""

    bus: Bus
    chains: list[Chain] = field(default_factory=list)
    now: int = 0
    values: dict[str, dict[str, Any]] = field(default_factory=dict)
    labels: dict[str, dict[str, int]] = field(default_factory=dict)
    holds: dict[str, set[int]] = field(default_factory=dict)
    pruned: dict[str, int] = field(default_factory=dict)

    @property
    def chain(self) -> Chain:
        return self.chains[self.now]

    async def begin(self, chain: Chain, values: dict[str, Any]) -> None:
        self.chains.append(await chain.begin())
        self.now = len(self.chains) - 1
        self.values[chain.run], self.labels[chain.run], self.holds[chain.run] = values, {}, set()
        self.pruned[chain.run] = 0
        await chain.save(values)

    async def act(self, what: str, name: str, value: Any) -> None:
        chain, values = self.chain, self.values[self.chain.run]
        if what in ("set", "grow", "copy"):
            known = values.get(name, [])
            values[name] = value if what == "set" else [*known, *value] if what == "grow" else values.get(value, 0)
            if not isinstance(values[name], list):
                values[name] = []
            await chain.save(values)
        elif what == "take over":
            self.now = value % len(self.chains)
            await self.chain.again()
        elif what == "fork":
            await self.fork(*chain.saved[value % len(chain.saved)])
        elif what == "label":
            sequence, _ = chain.saved[value % len(chain.saved)]
            await chain.store.labels.put(chain.run, name, str(sequence))
            self.labels[chain.run][name] = sequence
            self.forget(chain)
        elif what == "unlabel" and name in self.labels[chain.run]:
            await chain.store.labels.drop(chain.run, name)
            del self.labels[chain.run][name]
            self.forget(chain)
        elif what == "prune":
            await self.prune(chain, value)

    async def fork(self, sequence: int, values: dict[str, Any]) -> None:
        source, fork = self.chain, Chain(self.bus)
        assert await source.store.labels.hold(source.run, sequence, fork.run)
        self.holds[source.run].add(sequence)
        state = await source.store.load(source.run, str(sequence))
        assert state is not None
        await self.begin(Chain(self.bus, fork.run, state=state), {**values})

    async def prune(self, chain: Chain, keep: int) -> None:
        done = await chain.store.prune(chain.run, Choice(keep=keep))
        self.pruned[chain.run] = max(self.pruned[chain.run], chain.saved[-keep:][0][0] - 1)
        self.forget(chain)
        assert done.kept == len(chain.saved)

    def forget(self, chain: Chain) -> None:
        """What a pruning has passed and nothing holds any more need not be there."""
        held = {*self.labels[chain.run].values(), *self.holds[chain.run], chain.saved[-1][0]}
        chain.saved = [one for one in chain.saved if one[0] > self.pruned[chain.run] or one[0] in held]

    async def check(self) -> None:
        for chain in self.chains:
            for sequence, values in chain.saved:
                state = await chain.store.load(chain.run, str(sequence))
                assert state is not None
                assert state.values == values
            history = await chain.store.history(chain.run, limit=999)
            assert [one.sequence for one in history] == [sequence for sequence, _ in reversed(chain.saved)]


async def _told(settings: BrokerSettings, deeds: list[tuple[str, str, Any]]) -> None:
    bus = await Bus.connect(settings)
    try:
        await ensure_streams(bus, settings)
        story = Story(bus)
        await story.begin(Chain(bus), {})
        for what, name, value in deeds:
            await story.act(what, name, value)
        await story.check()
        for chain in story.chains:
            await story.prune(chain, 1)
        await story.check()
    finally:
        await bus.close()


@profile(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(deeds=st.lists(DEEDS, min_size=5, max_size=30))
def test_whatever_is_edited_forked_labelled_and_pruned_what_must_be_there_is(
    settings: BrokerSettings, monkeypatch: pytest.MonkeyPatch, deeds: list[tuple[str, str, Any]]
) -> None:
    """With few pieces to a level and no value too small to grow, so that short stories reach several levels."""
    monkeypatch.setattr(scribe, "SEALED_AT", 3)
    monkeypatch.setattr(scribe, "_SMALL", 2)
    monkeypatch.setattr(scribe, "_NO_ALIAS", 2)
    asyncio.run(_told(settings, deeds))
