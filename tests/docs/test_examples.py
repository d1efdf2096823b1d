"""The Python of README.md, docs/agents.md and docs/actors.md is carried out, by real coordinators, workers and hosts.

The blocks of a page are one module, in the order of the page. Every agent of a page must have been run.
"""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from callboard import Actor, ActorContext, Agent, Context, agent, on
from callboard.actors.publication import publish
from callboard.runtime import Host, RuntimeSettings
from callboard.store import Artifacts, Blobs, Threads
from callboard.topics.bus import Bus
from callboard.topics.codec import handler_types
from callboard.topics.config import BrokerSettings
from callboard.topics.ids import new_token
from callboard.topics.messages import Answer, Artifact, Event, Status
from callboard.topics.units import now
from tests.actors.company import Company, company, eventually, result_of

ROOT = Path(__file__).resolve().parents[2]


def blocks(page: str) -> list[str]:
    """The Python blocks of a page."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)


def module_of(page: str, folder: Path, **replaced: tuple[str, str]) -> ModuleType:
    """The blocks of a page as a module, in their order, with some of their text replaced."""
    code = "\n".join(blocks(page))
    for old, new in replaced.values():
        assert old in code
        code = code.replace(old, new)
    name = f"page_{new_token(6)}"
    file = folder / f"{name}.py"
    file.write_text(code, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def agents_of(module: ModuleType) -> dict[str, Agent[Any]]:
    return {one.name: one for one in vars(module).values() if isinstance(one, Agent)}


@pytest.fixture(autouse=True)
def _no_module_stays() -> Iterator[None]:
    yield
    for name in [name for name in sys.modules if name.startswith("page_")]:
        del sys.modules[name]


# --- README --------------------------------------------------------------------------------------------------------


@agent("summarizer")
async def summarizer(ctx: Context, task: dict[str, list[int]]) -> str:
    """What the README's reviewer calls."""
    return f"{sum(task['sizes'])} characters"


@asynccontextmanager
async def hosted(settings: BrokerSettings, *actors: type[Actor] | Actor) -> AsyncIterator[Host]:
    """A host of the actors, on a connection of its own."""
    connection = await Bus.connect(settings)
    host = Host(connection, RuntimeSettings(grace_s=2))
    for actor in actors:
        host.add(actor)
    await host.start()
    try:
        yield host
    finally:
        await host.drain()
        await connection.close()


async def test_the_readme(settings: BrokerSettings, bus: Bus, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Its agents and its actor, the six hours shortened to three seconds."""
    caplog.set_level("INFO", "callboard")
    module = module_of("README.md", tmp_path, hours=("hours=6", "seconds=3"))
    agents = agents_of(module)
    assert set(agents) == {"greeter", "reviewer", "author"}
    async with (
        company(settings, bus, [*agents.values(), summarizer], keeper=True) as all_,
        hosted(settings, module.Reviews),
    ):
        assert result_of(await all_.run("greeter", "Ada")) == "Good evening, Ada."
        assert (
            result_of(await all_.ended(await all_.submit(None, "Grace", topic="greetings"))) == "Good evening, Grace."
        )
        run = await all_.submit(None, ["a.py", "bc.py"], topic="review")
        record = await all_.reaches(run, Status.WAITING)
        assert record.wake_at is not None
        assert timedelta(0) < record.wake_at - now() <= timedelta(seconds=3)
        assert result_of(await all_.ended(run)) == {"a.py": 4, "bc.py": 5}
        artifact, content = await Artifacts(bus, Blobs(bus)).read(run, "summary.md")
        assert (artifact.media_type, content) == ("text/markdown", b"9 characters")
        await eventually(lambda: "2 paths were reviewed" in caplog.text)
        run = await all_.submit(None, {"topic": "hats"}, topic="articles")
        record = await all_.reaches(run, Status.INPUT_REQUIRED)
        assert [one.id for one in record.interrupts or ()] == ["review"]
        await all_.submitter.resume(run, [Answer(action="approve")])
        assert result_of(await all_.ended(run)) == {"topic": "hats", "draft": "All about hats."}


async def test_the_readme_sleeps_for_six_hours(settings: BrokerSettings, bus: Bus, tmp_path: Path) -> None:
    """As it is written: the run holds no worker, and a cancel ends it at once."""
    agents = agents_of(module_of("README.md", tmp_path))
    async with company(settings, bus, [*agents.values(), summarizer], keeper=True) as all_:
        run = await all_.submit("reviewer", ["a.py"])
        record = await all_.reaches(run, Status.WAITING)
        while record.wake_at is None:
            record = await all_.record(run)
        assert timedelta(hours=5) < record.wake_at - now() <= timedelta(hours=6)
        await all_.submitter.command(run, "cancel")
        assert (await all_.ended(run)).status is Status.CANCELED


# --- docs/agents.md ------------------------------------------------------------------------------------------------


@pytest.fixture
def guide(tmp_path: Path) -> ModuleType:
    """The page for authors of agents."""
    return module_of("docs/agents.md", tmp_path)


@pytest.fixture
async def staff(guide: ModuleType, settings: BrokerSettings, bus: Bus) -> AsyncIterator[Company]:
    """A worker that serves all of its agents."""
    async with company(settings, bus, list(agents_of(guide).values()), keeper=True) as found:
        yield found


async def test_every_agent_of_the_guide_is_run_here(guide: ModuleType) -> None:
    text = Path(__file__).read_text(encoding="utf-8")
    assert not [name for name in agents_of(guide) if f'run("{name}"' not in text]


async def test_agents_that_compute(staff: Company) -> None:
    review = result_of(await staff.run("reviewer", {"path": "a.py", "text": "x\n# TODO"}))
    assert review == {"path": "a.py", "findings": ["line 2"]}
    stepped = result_of(await staff.run("stepper", "http://example.org"))
    assert stepped["size"] == len("http://example.org")
    assert len(stepped["dice"]) == 3
    assert len(result_of(await staff.run("dated"))) == 3
    record = await staff.run("whoami", metadata={"who": "me"})
    assert result_of(record) == {"run": record.id, "attempt": 1, "metadata": {"who": "me"}}


async def test_agents_that_fail(staff: Company) -> None:
    record = await staff.run("careful", 7)
    assert result_of(record) == "secondary took 7"
    assert record.attempt == 2
    assert [one.status for one in await staff.steps(record.id)] == ["failed", "done"]
    record = await staff.run("careful", -7)
    assert (record.status, record.attempt) == (Status.FAILED, 2)
    assert record.error is not None
    assert record.error.code == "terminal"


async def test_an_agent_with_a_step_in_a_process(
    staff: Company, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))  # the page is a module there
    assert result_of(await staff.run("heavy", ["good", "evening"], within_s=60)) == 11


async def test_agents_with_children(staff: Company) -> None:
    record = await staff.run("lead", {"a.py": "# TODO", "b.py": ""})
    assert result_of(record) == ["a.py: 1", "b.py: 0", "order: 1", "stepper: 18"]
    tree = await staff.log.tree(record.id)
    assert sorted(one.agent for one in tree) == ["careful", "lead", "reviewer", "reviewer", "stepper", "whoami"]
    assert [one.metadata for one in tree if one.agent == "careful"] == [{"why": "to fail"}]


async def test_agents_that_sleep(staff: Company) -> None:
    record = await staff.run("patient", 2.5)
    assert result_of(record) == "awake"
    assert Status.WAITING in [one.status for one in await staff.states(record.id)]
    assert record.ended_at is not None
    assert record.ended_at - record.created_at >= timedelta(seconds=2.5)


async def test_agents_that_tell(staff: Company, bus: Bus) -> None:
    record = await staff.run("talker", ["good", "evening"])
    told = await staff.told(record.id)
    assert [one.type for one in told if isinstance(one, Event)] == [
        "delta", "progress", "delta", "progress", "message", "mood",
    ]  # fmt: skip
    assert [one.name for one in told if isinstance(one, Artifact)] == ["speech.md", "words.json"]
    assert (await Artifacts(bus, Blobs(bus)).read(record.id, "words.json"))[1] == b'["good","evening"]'


async def test_agents_with_a_thread(staff: Company, bus: Bus) -> None:
    thread = (await Threads(bus).create()).id
    assert result_of(await staff.run("member", "hello", thread=thread)) == []
    assert result_of(await staff.run("member", "again", thread=thread)) == ["user"]


class Heard(Actor):
    """Keeps what it hears; for the tests."""

    def __init__(self) -> None:
        self.messages: list[tuple[str | None, dict[str, Any]]] = []

    @on("reviews", "answers")
    async def received(self, ctx: ActorContext, message: dict[str, Any]) -> None:
        """One message."""
        self.messages.append((ctx.key, message))


async def test_agents_that_publish(staff: Company, settings: BrokerSettings) -> None:
    heard = Heard()
    async with hosted(settings, heard):
        assert result_of(await staff.run("publisher", "a.py")) > 0
        await eventually(lambda: heard.messages == [("a.py", {"path": "a.py"})])


async def test_the_test_of_an_agent(guide: ModuleType) -> None:
    await guide.test_reviewer()


# --- docs/actors.md ------------------------------------------------------------------------------------------------


async def test_the_actors(settings: BrokerSettings, bus: Bus, tmp_path: Path) -> None:
    module, heard = module_of("docs/actors.md", tmp_path), Heard()
    for path, findings in (("a.py", 2), ("b.py", 1), ("a.py", 3)):
        await publish(bus, "reviews", {"path": path, "findings": findings}, path)
    async with hosted(settings, module.Tally, module.Desk, heard):
        asked = 0
        while heard.messages[-1:] != [("a.py", {"path": "a.py", "total": 5})]:  # the oldest messages are read meanwhile
            await publish(bus, "questions", "a.py", "a.py")
            asked += 1
            await eventually(lambda asked=asked: len(heard.messages) == asked)  # type: ignore[misc]
            assert asked < 100


def test_the_actors_are_typed(tmp_path: Path) -> None:
    module = module_of("docs/actors.md", tmp_path)
    assert handler_types(module.Tally.received)[0] is module.Review
    assert handler_types(module.Tally.count) == (str, int)
