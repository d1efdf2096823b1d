"""The examples of graphs, as their readers run them."""

from __future__ import annotations

import asyncio
import json
import runpy
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from callboard.store.log import EventLog
from callboard.topics.bus import Bus
from callboard.topics.config import BrokerSettings
from callboard.topics.messages import RunRecord, Status
from tests.actors.company import company, eventually, result_of
from tests.cli.programs import Printed, call, environment, program

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
FILES = ["publishing.py", "research.py", "time_travel.py"]


@contextmanager
def worker(env: dict[str, str]) -> Iterator[None]:
    """A worker that has ended in peace at the end."""
    with program("worker", "examples/publishing.py", env=env, cwd=ROOT) as one:
        one.says(" on NATS ")
        yield
        assert one.end() == 0, one.log


async def reached(bus: Bus, run: str, status: Status) -> RunRecord:
    """The run's record, once it has this status."""
    found: list[RunRecord] = []

    async def look() -> bool:
        loaded = await EventLog(bus).load_current(run)
        found[:] = [loaded.record] if loaded is not None else []
        return bool(found) and found[0].status is status

    await eventually(look, 30, lambda: f"{status}: {found}")
    return found[0]


@pytest.mark.system
async def test_an_article_waits_for_a_person_while_no_process_holds_it(settings: BrokerSettings, bus: Bus) -> None:
    env = environment(NATS_URL=settings.nats_url, CALLBOARD_NAMESPACE=settings.namespace)

    async def command(*words: str) -> Printed:
        return await asyncio.to_thread(call, *words, env=env, cwd=ROOT)

    with program("coordinator", env=env, cwd=ROOT) as coordinator:
        coordinator.says(" on NATS ")
        with worker(env):
            run = (await command("publish", "articles", '{"topic": "hats"}')).stdout.strip()
            record = await reached(bus, run, Status.INPUT_REQUIRED)
        assert [(one.id, one.to) for one in record.interrupts or ()] == [("round-1", "editor")]
        assert (await command("resume", run, "--value", '{"verdict": "maybe"}')).returncode != 0
        revise = {"verdict": "revise", "remark": "More about berets."}
        revised = await command("resume", run, "--value", json.dumps(revise))
        assert revised.returncode == 0, revised.stderr
        with worker(env):  # another process, hours later
            await eventually(lambda: asked(bus, run, "round-2"), 30)
            assert (await command("resume", run, "--value", '{"verdict": "publish"}')).returncode == 0
            await reached(bus, run, Status.COMPLETED)
        text = (await command("artifacts", run, "article.md")).stdout
    assert text == "# All about hats\n\nThere is much to say about hats.\n\nMore about berets."


async def asked(bus: Bus, run: str, interrupt: str) -> bool:
    loaded = await EventLog(bus).load_current(run)
    return loaded is not None and [one.id for one in loaded.record.interrupts or ()] == [interrupt]


async def test_research_fans_out_to_children_and_joins(settings: BrokerSettings, bus: Bus) -> None:
    module = runpy.run_path(str(EXAMPLES / "research.py"))
    async with company(settings, bus, [module["research"], module["librarian"]]) as all_:
        result = result_of(await all_.run("research", {"topic": "hats"}))
    assert [finding["aspect"] for finding in result["findings"]] == ["etiquette", "history", "making"]
    assert result["report"].splitlines()[0] == "# Hats"
    assert await module["graph"].run({"topic": "hats"}) == result  # the same in process


def test_the_walk_through_time_prints_what_it_promises(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLES / "time_travel.py"), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    assert "first: travel to Ghent; a night in Ghent; a night in Ghent; home by train" in lines
    assert "what changed in c2: ('nights',) {'plan': ['a night in Ghent']}" in lines
    assert "fork: travel to Ghent; a night in Bruges; home by bicycle" in lines
    assert "shorter: travel to Ghent; home by car" in lines
    assert lines[-1] == "the original still says: home by train"


@pytest.mark.parametrize("name", FILES)
def test_each_is_one_file_that_needs_the_facade_alone(name: str) -> None:
    text = (EXAMPLES / name).read_text()
    imports = [line for line in text.splitlines() if line.startswith(("from callboard", "import callboard"))]
    assert len(imports) == 1
    assert imports[0].startswith("from callboard import ")
