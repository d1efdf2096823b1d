"""Rebuilding gives the identical content: for any sequence of messages, however it was delivered before."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from callboard.store.projection import Projection, RunFilter
from callboard.topics.messages import ErrorInfo, Status
from callboard.topics.reads import Stored
from tests.support.projection import Tape

RUNS = ["a", "b", "a~0000000000000001", "c"]
METADATA = st.none() | st.dictionaries(
    st.sampled_from("kxyz"), st.sampled_from(["1", 1, True, None, {"d": 1}]), max_size=3
)

state = st.tuples(
    st.just("state"), st.sampled_from(RUNS), st.sampled_from(list(Status)), st.integers(0, 3), METADATA,
    st.sampled_from(["reviewer", "lead", ""]), st.booleans(),
)  # fmt: skip
artifact = st.tuples(
    st.just("artifact"), st.sampled_from(RUNS), st.sampled_from("xy"), st.integers(1, 2), st.integers(1, 3)
)
thread = st.tuples(st.just("thread"), st.sampled_from("tu"))
message = st.tuples(st.just("message"), st.sampled_from("tu"))
garbage = st.tuples(
    st.just("raw"),
    st.sampled_from(["cb.run.a.a.state", "cb.run.a.a.artifact", "cb.run.a.a.step", "cb.thread.t.odd"]),
    st.binary(max_size=20) | st.sampled_from([b'{"name":"z"}', b"null", b"[]"]),
)


def tape_of(events: list[tuple[Any, ...]]) -> list[Stored]:
    tape = Tape()
    for kind, *rest in events:
        if kind == "state":
            run, status, second, metadata, agent, failed = rest
            error = ErrorInfo(code="x", message="y") if failed else None
            tape.state(run, status, second, metadata=metadata, agent=agent, error=error)
        else:
            getattr(tape, kind)(*rest)
    return tape.messages


@settings(max_examples=60, deadline=None)
@given(
    events=st.lists(st.one_of(state, state, artifact, thread, message, garbage), max_size=40),
    cuts=st.lists(st.tuples(st.integers(0, 40), st.integers(1, 20)), max_size=8),
)
def test_a_rebuild_gives_identical_content(events: list[tuple[Any, ...]], cuts: list[tuple[int, int]]) -> None:
    """First delivered in random pieces with repetitions, then once more from the start in one batch."""
    messages = tape_of(events)
    asyncio.run(_compare(messages, cuts))


async def _compare(messages: list[Stored], cuts: list[tuple[int, int]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        projection = await Projection.open(Path(folder) / "p.db")
        try:
            await _deliver(projection, messages, cuts)
            first = await projection.content_digest()
            await _agrees(projection, messages)
            await projection.reset()
            assert (projection.applied, await projection.position()) == (0, 0)
            assert not (await projection.runs()).items
            await projection.apply(messages, after=0)
            assert await projection.content_digest() == first
        finally:
            await projection.close()


async def _deliver(projection: Projection, messages: list[Stored], cuts: list[tuple[int, int]]) -> None:
    for start, length in cuts:
        start = min(start, projection.applied)  # repeats what is known, never leaves a gap
        await projection.apply(messages[start : start + length])
    for one in messages[projection.applied : projection.applied + 3]:
        await projection.apply([one, one])
    await projection.apply(messages)


async def _agrees(projection: Projection, messages: list[Stored]) -> None:
    """The counts and the labels agree with a plain reading of the rows."""
    rows = (await projection.runs(limit=1000)).items
    counts = await projection.counts()
    assert counts.total == len(rows)
    for status in Status:
        same = [row for row in rows if row.status is status]
        assert counts.by_status.get(status, 0) == len(same)
        assert {row.id for row in (await projection.runs(RunFilter(status=[status]))).items} == {row.id for row in same}
    for row in rows:
        if row.metadata and row.metadata.get("k") == "1":
            found = (await projection.runs(RunFilter(metadata={"k": "1"}, agent=row.agent))).items
            assert row.id in {one.id for one in found}
    assert projection.applied == len(messages)
