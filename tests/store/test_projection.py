"""The projection as a read model: filters, pages, counts, trees, what is skipped. A real SQLite file, no server."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from callboard.store.projection import Projection, ProjectionMoved, RunFilter
from callboard.topics.errors import InvalidInput
from callboard.topics.messages import ErrorInfo, Status, encode
from callboard.topics.reads import Stored
from tests.support.projection import START, Tape, artifact


@pytest.fixture
async def projection(tmp_path: Path) -> AsyncIterator[Projection]:
    opened = await Projection.open(tmp_path / "folder" / "projection.db")
    yield opened
    await opened.close()


async def ids(projection: Projection, **filters: object) -> list[str]:
    page = await projection.runs(RunFilter(**filters), limit=1000)  # type: ignore[arg-type]
    return [row.id for row in page.items]


async def test_a_row_shows_the_newest_state_and_every_column(projection: Projection) -> None:
    tape = Tape()
    tape.state("a")
    last = tape.state(
        "a", Status.FAILED, parent=None, topic="review", thread="t1", reason="broken", attempt=3, steps=7, rev=2,
        started_at=START + timedelta(seconds=1), ended_at=START + timedelta(seconds=2.5),
        error=ErrorInfo(code="boom", message="it broke"), metadata={"tenant": "x", "n": 5},
    )  # fmt: skip
    assert await projection.apply(tape.messages) == 2 == projection.applied
    row = await projection.run("a")
    assert row is not None
    assert (row.status, row.topic, row.thread, row.reason) == (Status.FAILED, "review", "t1", "broken")
    assert (row.attempt, row.steps, row.rev, row.sequence) == (3, 7, 2, 2)
    assert (row.error_code, row.error_message, row.metadata) == ("boom", "it broke", {"tenant": "x", "n": 5})
    assert (row.created_at, row.started_at, row.ended_at) == (
        START, START + timedelta(seconds=1), START + timedelta(seconds=2.5),
    )  # fmt: skip
    assert bytes(row.record or b"") == last.data
    assert await projection.run("b") is None


async def test_filters_restrict_alone_and_together(projection: Projection) -> None:
    tape = Tape()
    tape.state("r1", Status.QUEUED, 1, agent="lead", topic="audit", thread="t")
    tape.state("r1~0000000000000001", Status.RUNNING, 2, parent="r1", agent="reviewer", thread="t")
    tape.state(
        "r1~0000000000000002", Status.FAILED, 3, parent="r1", agent="reviewer", metadata={"k": "v", "flag": True}
    )
    tape.state("r2", Status.COMPLETED, 4, agent="reviewer", metadata={"k": "v", "n": 5, "deep": {"x": 1}})
    await projection.apply(tape.messages)
    one, two = "r1~0000000000000001", "r1~0000000000000002"
    assert await ids(projection) == ["r2", two, one, "r1"]
    assert await ids(projection, status=["failed", Status.COMPLETED]) == ["r2", two]
    assert await ids(projection, agent="reviewer") == ["r2", two, one]
    assert await ids(projection, agent="reviewer", status=["running"]) == [one]
    assert await ids(projection, thread="t") == [one, "r1"]
    assert await ids(projection, topic="audit") == ["r1"]
    assert await ids(projection, parent="r1") == [two, one]
    assert await ids(projection, root="r1") == [two, one, "r1"]
    assert await ids(projection, metadata={"k": "v"}) == ["r2", two]
    assert await ids(projection, metadata={"k": "v", "n": "5"}) == ["r2"]
    assert await ids(projection, metadata={"k": "v", "flag": "true"}, status=["failed"], agent="reviewer") == [two]
    assert await ids(projection, metadata={"deep": "1"}) == []
    assert await ids(projection, created_after=START + timedelta(seconds=2)) == ["r2", two]
    assert await ids(projection, created_before=START + timedelta(seconds=2)) == ["r1"]
    assert await ids(projection, metadata={"k": "v"}, created_before=START + timedelta(seconds=4)) == [two]
    assert [row.id for row in await projection.tree("r1")] == ["r1", one, two]
    counts = await projection.counts()
    assert counts.total == 4
    assert counts.by_agent["reviewer"] == {Status.RUNNING: 1, Status.FAILED: 1, Status.COMPLETED: 1}


async def test_changed_metadata_is_found_by_its_new_value_only(projection: Projection) -> None:
    tape = Tape()
    tape.state("a", metadata={"k": "old", "same": "s"})
    await projection.apply(tape.messages)
    tape.state("a", metadata={"k": "new", "same": "s"})
    await projection.apply(tape.messages)
    assert await ids(projection, metadata={"k": "old"}) == []
    assert await ids(projection, metadata={"k": "new", "same": "s"}) == ["a"]


@pytest.mark.parametrize(
    "cursor",
    [
        "",
        "x",
        "é",
        "bm9uc2Vuc2U",
        "W10",
        "WyJ4IiwxLCJhIl0",
        "=",
        "A" * 5000,
        "WyJhIiw5OTk5OTk5OTk5OTk5OTk5OTk5OTk5LCJhIl0",
    ],
)
async def test_a_bad_cursor_is_refused(projection: Projection, cursor: str) -> None:
    with pytest.raises(InvalidInput, match="cursor"):
        await projection.runs(cursor=cursor)


async def test_bad_queries_are_refused(projection: Projection) -> None:
    tape = Tape()
    for number in range(3):
        tape.state(f"r{number}", second=number)
    await projection.apply(tape.messages)
    cursor = (await projection.runs(limit=1)).next
    assert cursor is not None
    with pytest.raises(InvalidInput, match="another query"):
        await projection.runs(RunFilter(agent="reviewer"), limit=1, cursor=cursor)
    with pytest.raises(InvalidInput, match="another query"):
        await projection.threads(cursor=cursor)
    with pytest.raises(InvalidInput, match="limit"):
        await projection.runs(limit=0)
    with pytest.raises(InvalidInput, match="completed"):
        await projection.runs(RunFilter(status=["done"]))
    with pytest.raises(InvalidInput, match="zone"):
        await projection.runs(RunFilter(created_after=datetime(2026, 1, 1)))  # noqa: DTZ001
    with pytest.raises(InvalidInput, match="too long"):
        await projection.runs(RunFilter(metadata={"k": "v" * 2000}))
    with pytest.raises(InvalidInput):
        await projection.runs(RunFilter(agent="\ud800"))


@pytest.mark.parametrize(
    "filters", [{}, {"agent": "reviewer"}, {"metadata": {"k": "v"}}, {"status": ["queued", "failed"]}]
)
async def test_pages_are_stable_while_runs_come(projection: Projection, filters: dict[str, object]) -> None:
    """Walked page by page with inserts between, every run that was there at the start comes exactly once, in order."""
    tape, shuffle = Tape(), random.Random(7)
    for number in range(60):
        tape.state(f"old{number:03}", Status.QUEUED, second=number // 3, metadata={"k": "v"})
    await projection.apply(tape.messages)
    before = await ids(projection, **filters)
    seen: list[str] = []
    cursor: str | None = None
    while True:
        page = await projection.runs(RunFilter(**filters), limit=7, cursor=cursor)  # type: ignore[arg-type]
        seen += [row.id for row in page.items]
        cursor = page.next
        if cursor is None:
            break
        done = len(tape.messages)
        for number in range(5):
            tape.state(f"new{done}x{number}", Status.QUEUED, second=100 + shuffle.random(), metadata={"k": "v"})
        await projection.apply(tape.messages)
    assert seen == before
    assert len(seen) == len(set(seen)) == 60


async def test_main_queries_walk_an_index(projection: Projection) -> None:
    """No filter sorts or scans: the cost of a page does not grow with the number of runs."""
    from callboard.store.projection.query import _run_query

    for filters in (
        RunFilter(), RunFilter(status=["failed"]), RunFilter(agent="a"), RunFilter(agent="a", status=["failed"]),
        RunFilter(thread="t"), RunFilter(topic="t"), RunFilter(parent="p"), RunFilter(root="r"),
        RunFilter(metadata={"k": "v"}), RunFilter(metadata={"k": "v"}, status=["failed", "queued"], agent="a"),
    ):  # fmt: skip
        sql, parameters = _run_query(filters, (5, "x"), 10)
        inner = sql.partition("FROM (")[2].rpartition(") ORDER")[0] or sql
        plan = [str(row[3]) for row in await projection._database.read(f"EXPLAIN QUERY PLAN {inner}", parameters)]
        assert not [line for line in plan if "TEMP B-TREE" in line or line == "SCAN runs"], (filters, plan)


async def test_artifacts_show_the_newest_version_and_count_a_retried_write_once(projection: Projection) -> None:
    tape = Tape()
    tape.artifact("a", "report.md", n=1)
    tape.artifact("a", "report.md", n=1)  # the same entry, stored twice by a retried write
    tape.artifact("a", "report.md", attempt=2, n=1, size=9)
    tape.raw(tape.subjects.event("a", "artifact"), encode([artifact("x", n=5), artifact("y", n=6), artifact("x", n=7)]))
    await projection.apply(tape.messages)
    found = {row.name: row for row in await projection.artifacts("a")}
    assert (found["report.md"].versions, found["report.md"].size, found["report.md"].sequence) == (2, 9, 3)
    assert (found["x"].versions, found["x"].digest, found["y"].versions) == (2, "sha256:7", 1)
    assert await projection.artifacts("b") == []


async def test_threads_count_their_messages(projection: Projection) -> None:
    tape = Tape()
    tape.message("early")
    await projection.apply(tape.messages)
    row = await projection.thread("early")
    assert row is not None
    assert (row.messages, row.recorded) == (1, False)
    tape.thread("early", second=5, metadata={"who": "me"})
    tape.message("early")
    tape.thread("late", second=9)
    await projection.apply(tape.messages)
    page = await projection.threads(limit=1)
    assert [row.id for row in page.items] == ["late"]
    (row,) = (await projection.threads(limit=1, cursor=page.next)).items
    assert (row.id, row.messages, row.metadata, row.recorded) == ("early", 2, {"who": "me"}, True)
    assert row.created_at == START + timedelta(seconds=5)
    assert row.updated_at == START + timedelta(seconds=3)


async def test_what_a_rolled_back_run_has_left_is_not_in_its_thread(projection: Projection) -> None:
    """Nor what its children have, whether they had ended before or not; all that others have left stays."""
    tape, child = Tape(), "b~0000000000000001"
    for run in ("a", "b", child, "c"):
        tape.state(run, Status.RUNNING, thread="t", parent="b" if run == child else None)
        tape.artifact(run, f"of {run}")
        tape.message("t", run=run, turn="b" if run == child else None)
    tape.message("t")
    tape.state(child, Status.COMPLETED, thread="t", parent="b")
    await projection.apply(tape.messages)
    before = await projection.thread("t")
    assert before is not None
    assert before.messages == 5
    assert len(await projection.thread_artifacts("t")) == 4
    tape.state("b", Status.ROLLED_BACK, thread="t")
    await projection.apply(tape.messages)
    after = await projection.thread("t")
    assert after is not None
    assert after.messages == 3
    assert [one.run for one in await projection.thread_artifacts("t")] == ["a", "c"]
    assert len(await projection.artifacts("b")) == 1, "of the run itself all can be looked at"


GARBAGE = [
    ("cb.run.a.a.state", b""),
    ("cb.run.a.a.state", b"\xff\xfe"),
    ("cb.run.a.a.state", b"[]"),
    ("cb.run.a.a.state", b'{"id":"a"}'),
    ("cb.run.a.a.state", b'{"id":"a","x":' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
    ("cb.run.a.b.artifact", b'{"name":"\\ud800"}'),
    ("cb.run.a.b.artifact", b'[{"attempt":1,"n":1,"name":"x","media_type":"t","size":-1,"digest":"d"}]'),
    ("cb.thread.t.record", b"null"),
    ("cb.thread.t.message", b"17"),
    ("cb.thread.t.unheard.of", b"{}"),
]


async def test_garbage_is_listed_with_a_reason_and_stops_nothing(projection: Projection) -> None:
    tape = Tape()
    good = tape.state("good").data
    tape.messages.clear()
    for subject, data in GARBAGE:
        tape.raw(subject, data)
    fields = good.decode()
    tape.raw("cb.run.a.a.state", good)  # another run's record
    tape.raw("cb.run.good.good.state", fields.replace('"queued"', '"sleepy"').encode())
    tape.raw("cb.run.good.good.state", fields.replace('"id":', '"v":99,"id":').encode())
    tape.raw("cb.run.good.good.state", fields.replace('"id":', '"attempt":99999999999999999999,"id":').encode())
    tape.raw("cb.run.good.good.state", fields.replace("2026-01-01", "0001-01-01").encode())
    tape.raw("cb.run.good.good.state", fields.replace('"id":', '"metadata":[1],"id":').encode())
    tape.raw("cb.run.good.good.state", good[:-1] + b',"note":"\xff"}')
    tape.state("fine", metadata={"huge": 10**30, "none": None, "text": "\0é"})
    tape.raw("cb.run.a.a.step", b"garbage of a kind that has no rows")
    await projection.apply(tape.messages)
    total, rows = await projection.skipped(1000)
    assert total == len(rows) == len(GARBAGE) + 7
    assert all(row.reason and row.size >= 0 for row in rows)
    assert await ids(projection) == ["fine"]
    assert await ids(projection, metadata={"huge": str(10**30), "none": "null", "text": "\0é"}) == ["fine"]
    row = await projection.run("fine")
    assert row is not None
    assert row.metadata == {"huge": 10**30, "none": None, "text": "\0é"}


async def test_what_sqlite_itself_refuses_is_skipped_alone(projection: Projection) -> None:
    """A subject that no decoder looks at: a lone surrogate cannot be stored as text."""
    tape = Tape()
    tape.state("a")
    tape.messages.append(Stored("cb.thread.\ud800.message", 2, b"17", None, START.isoformat()))
    tape.state("b")
    await projection.apply(tape.messages)
    assert sorted(await ids(projection)) == ["a", "b"]


async def test_applying_twice_changes_nothing(projection: Projection) -> None:
    tape = Tape()
    for number in range(5):
        tape.state(f"r{number}", metadata={"n": number})
        tape.message("t")
    await projection.apply(tape.messages)
    digest = await projection.content_digest()
    assert await projection.apply(tape.messages) == 10
    assert await projection.apply(tape.messages[3:6], after=3) == 10
    assert await projection.content_digest() == digest


async def test_a_batch_behind_a_gap_is_refused(projection: Projection) -> None:
    tape = Tape()
    tape.state("a")
    tape.state("b")
    with pytest.raises(ProjectionMoved) as caught:
        await projection.apply(tape.messages[1:], after=1)
    assert caught.value.applied == 0
    assert await ids(projection) == []


async def test_still_runs_are_those_that_should_go_on_by_themselves(projection: Projection) -> None:
    tape = Tape()
    for number, status in enumerate(Status):
        tape.state(f"r{number:02}", status, second=number)
    await projection.apply(tape.messages)
    expected = [Status.QUEUED, Status.RUNNING, Status.WAITING, Status.CANCEL_REQUESTED]
    assert [status for _, status in await projection.stuck(60)] == expected
    now = START + timedelta(seconds=61)
    assert [one.status for one in await projection.still(60, now=now)] == [Status.QUEUED]
    first = await projection.still(60, 1)
    assert [one.status for one in await projection.still(60, after=first[-1])] == expected[1:]
    assert first[0].since == START


async def test_forgetting_removes_ended_runs_of_messages_that_are_gone(projection: Projection) -> None:
    tape = Tape()
    tape.state("ended", Status.COMPLETED, metadata={"k": "v"})
    tape.artifact("ended", "x")
    tape.state("live", Status.RUNNING)
    tape.state("young", Status.COMPLETED, metadata={"k": "v"})
    await projection.apply(tape.messages)
    assert await projection.forget(4) == 1
    assert sorted(await ids(projection)) == ["live", "young"]
    assert await projection.artifacts("ended") == []
    assert await ids(projection, metadata={"k": "v"}) == ["young"]
    assert (await projection.counts()).total == 2


async def test_readers_do_not_wait_for_the_writer(projection: Projection) -> None:
    tape = Tape()
    tape.state("a")
    await projection.apply(tape.messages)
    async with projection._database.transaction():
        async with asyncio.timeout(1):
            assert await ids(projection) == ["a"]


async def test_cancelling_an_apply_leaves_a_usable_database(projection: Projection) -> None:
    tape = Tape()
    for number in range(400):
        tape.state(f"r{number:04}", second=number)
    for delay in (0, 0.0005, 0.001, 0.002, 0.004, 0.008):
        task = asyncio.create_task(projection.apply(tape.messages))
        await asyncio.sleep(delay)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert await projection.apply(tape.messages) == 400
    assert len(await ids(projection)) == 400
