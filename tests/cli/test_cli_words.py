"""What needs no broker: help, arguments, words, logs, the import of modules."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
import typer
from typer.testing import CliRunner

from callboard.cli import values, wording
from callboard.cli.app import app, hoisted
from callboard.cli.dev.watch import folders
from callboard.cli.environment import load
from callboard.cli.errors import ModuleUnusable, NotInstalled
from callboard.cli.exits import exit_code
from callboard.cli.history import Item, Reader, describe
from callboard.cli.loading import Target, find
from callboard.cli.logs import LineFormatter
from callboard.cli.runs import _ordered
from callboard.runtime.config import RuntimeSettings
from callboard.topics.errors import (
    CallboardError,
    IdempotencyConflict,
    InvalidInput,
    NoResponders,
    NotFound,
    PayloadTooLarge,
    Unavailable,
)
from callboard.topics.messages import Payload, RunRecord, Status, Step
from callboard.topics.reads import Stored
from callboard.topics.server import ServerTooOld

from .programs import AGENTS


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield path, command
    for name, child in getattr(command, "commands", {}).items():
        yield from commands(child, (*path, name))


ALL = dict(commands(typer.main.get_command(app)))


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_every_command_explains_itself(path: tuple[str, ...]) -> None:
    result = CliRunner().invoke(app, [*path, "--help"])
    assert result.exit_code == 0
    assert "Usage: callboard" in result.stdout or "Usage: root" in result.stdout
    command = ALL[path]
    assert command.help
    for parameter in command.params:
        assert getattr(parameter, "help", None), f"{path} {parameter.name} has no help"


READING = [
    ("runs", "ls"), ("runs", "show"), ("runs", "tree"), ("tail",), ("replay",), ("agents",), ("artifacts",),
    ("deadletters", "ls"), ("deadletters", "show"), ("doctor",), ("version",),
]  # fmt: skip


@pytest.mark.parametrize("path", READING, ids=" ".join)
def test_every_reading_command_has_json(path: tuple[str, ...]) -> None:
    assert "--json" in {option for parameter in ALL[path].params for option in parameter.opts}


def test_version_as_json() -> None:
    result = CliRunner().invoke(app, ["version", "--json"])
    assert msgspec.json.decode(result.stdout).keys() == {"callboard", "wire", "python", "nats_server"}


@pytest.mark.parametrize("words", [["unknown"], ["runs"], ["runs", "ls", "--unknown"], ["runs", "show"], ["-x"]])
def test_bad_usage_has_exit_code_2(words: list[str]) -> None:
    assert CliRunner().invoke(app, words).exit_code == 2


@pytest.mark.parametrize(
    "words",
    [["run", "greeter", "\udcff"], ["run", "greeter", "1", "--metadata", "a=\udcff"], ["runs", "show", "\udcff"],
     ["publish", "t", "1", "--key", "\udcff"], ["--nats-url", "\udcff", "agents"]],
)  # fmt: skip
def test_what_is_not_utf_8_is_refused(words: list[str]) -> None:
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 2
    assert "is not UTF-8" in result.output


@pytest.mark.parametrize(
    "words",
    [["runs", "ls", "--since", "5000000d"], ["runs", "ls", "--since", "1e300"], ["runs", "ls", "--since", "nan"],
     ["runs", "ls", "--since", "9" * 400 + "d"], ["runs", "ls", "--since", "0001-01-01T00:00:00+23:00"],
     ["run", "greeter", "1", "--at", "99999999d"], ["run", "greeter", "1", "--at", "9999-12-31T23:59:59-23:00"],
     ["run", "greeter", "1", "--wait", "--timeout", "9e99"], ["publish", "t", "1", "--deadline", "4000d"],
     ["schedules", "add", "s", "--at", "99999999d", "--agent", "a"],
     ["schedules", "add", "s", "--every", "1e999", "--agent", "a"],
     ["checkpoints", "prune", "r", "--older-than", "5000000d"]],
)  # fmt: skip
def test_a_time_that_cannot_be_is_refused(words: list[str]) -> None:
    result = CliRunner().invoke(app, words)
    assert isinstance(result.exception, SystemExit)
    assert result.exit_code == 2
    assert result.output.count("\n") == 1
    assert any(why in result.output for why in ("longer than ten years", "not a duration", "no time", "calendar"))


def test_global_options_may_stand_anywhere() -> None:
    words = ["runs", "ls", "--nats-url", "nats://a", "-n", "3", "--namespace=x", "-v"]
    assert hoisted(words) == ["--nats-url", "nats://a", "--namespace=x", "-v", "runs", "ls", "-n", "3"]
    assert hoisted(["publish", "t", "--", "-v"]) == ["publish", "t", "--", "-v"]
    assert hoisted(["runs", "--nats-url"]) == ["--nats-url", "runs"]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InvalidInput("x"), 2),
        (ModuleUnusable("x"), 2),
        (PayloadTooLarge("x"), 2),
        (NotFound("x"), 3),
        (NotInstalled("x"), 3),
        (Unavailable("x"), 4),
        (NoResponders("x"), 4),
        (ServerTooOld("x"), 4),
        (IdempotencyConflict("x"), 5),
        (CallboardError("x"), 1),
    ],
)
def test_exit_codes(error: CallboardError, code: int) -> None:
    assert exit_code(error) == code


# -- words ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0004, "0ms"), (0.85, "850ms"), (12.34, "12.3s"), (60, "1m 0s"), (3700, "1h 1m"), (90_000, "1d 1h")],
)
def test_durations(seconds: float, text: str) -> None:
    assert wording.duration(seconds) == text


def test_sizes() -> None:
    assert [wording.size(n) for n in (0, 1023, 1024, 5 * 1024**2, 3 * 1024**4)] == [
        "0 B", "1023 B", "1.0 KiB", "5.0 MiB", "3.0 TiB",
    ]  # fmt: skip


def test_control_characters_never_reach_the_terminal() -> None:
    assert wording.clean("a\x1b[31mb\nc\u2028é") == "a\\x1b[31mb\\nc\\u2028é"
    assert wording.cut("abcdef", 4) == "abc…"


def test_passwords_are_left_out_of_urls() -> None:
    assert wording.masked("nats://u:p@a:1, nats://b:2,c") == "nats://a:1,nats://b:2,c"


def test_metadata_is_json_where_it_can_be() -> None:
    assert values.metadata(["a=1", "b=x=y", 'c={"d": null}', "e="]) == {"a": 1, "b": "x=y", "c": {"d": None}, "e": ""}
    assert values.metadata(None) is None
    with pytest.raises(InvalidInput, match="NAME=VALUE"):
        values.metadata(["novalue"])


def test_times() -> None:
    assert [values.span(text) for text in ("30s", "5m", "2h", "1d", "200ms", "1.5")] == [30, 300, 7200, 86400, 0.2, 1.5]
    assert values.since("2025-01-02T03:04:05") == datetime(2025, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert datetime.now(UTC) - values.since("1h") < timedelta(hours=1, seconds=5)
    for bad in ("soon", "-1s", "nan", "inf"):
        with pytest.raises(InvalidInput):
            values.since(bad)


def test_a_log_record_is_one_line() -> None:
    def failing() -> None:
        raise ValueError("two\nlines")

    with pytest.raises(ValueError, match="two") as caught:
        failing()
    info = (caught.type, caught.value, caught.tb)
    record = logging.LogRecord("callboard.x", logging.ERROR, __file__, 1, "it\nfailed %d", (3,), info)
    line = LineFormatter().format(record)
    assert "\n" not in line
    assert "ERROR callboard.x: it\\nfailed 3 | ValueError: two lines (test_cli_words.py:" in line
    assert "in failing" in line
    assert "Traceback (most recent call last)" in LineFormatter(tracebacks=True).format(record)


# -- history ----------------------------------------------------------------------------------------------------


def _stored(sequence: int, kind: str, data: bytes) -> Stored:
    return Stored(f"cb.run.r.r.{kind}", sequence, data, None, "2025-01-01T00:00:00Z")


def _step(n: int, **more: Any) -> Step:
    return Step(at=str(n), name="s", attempt=1, n=n, **more)


def test_a_list_of_entries_is_numbered_and_repeated_ones_are_left_out() -> None:
    reader = Reader()
    many = msgspec.json.encode([_step(0), _step(1)])
    items = [*reader.items(_stored(7, "step", many)), *reader.items(_stored(8, "step", many))]
    assert [item.id for item in items] == ["7.1", "7"]
    more = list(reader.items(_stored(9, "step", msgspec.json.encode(_step(2)))))
    assert [(item.id, item.attempt, item.run) for item in more] == [("9", 1, "r")]


@pytest.mark.parametrize(("kind", "data"), [("state", b"{}"), ("step", b"rubbish"), ("artifact", b"[1]")])
def test_what_cannot_be_read_is_shown_as_such(kind: str, data: bytes) -> None:
    [item] = Reader().items(_stored(1, kind, data))
    assert item.problem
    style, text = describe(item)
    assert style == "red"
    assert text


def test_kinds_of_the_future_are_shown_as_they_are() -> None:
    [item] = Reader().items(_stored(1, "prophecy", b'{"a":1}'))
    assert describe(item) == (None, '{"a":1}')
    assert msgspec.json.decode(msgspec.json.encode(item))["data"] == {"a": 1}


def test_steps_are_described() -> None:
    def text(step: Step) -> str:
        return describe(Item(id="1", sequence=1, time=datetime.now(UTC), run="r", kind="step", data=step))[1]

    assert text(_step(0, value=Payload(json=msgspec.Raw(b"3")), ms=12.0)) == "s [0] in 12ms 3"
    assert text(_step(0, kind="child", child="r~x")) == "child s [0] r~x"
    assert text(_step(0, status="started")) == "s [0] started"


def _record(run: str, parent: str | None = None) -> RunRecord:
    now = datetime.now(UTC)
    return RunRecord(
        id=run,
        root="a",
        agent="x",
        status=Status.RUNNING,
        input=Payload(),
        created_at=now,
        updated_at=now,
        parent=parent,
    )


def test_a_tree_is_drawn() -> None:
    records = [_record("a"), _record("b", "a"), _record("c", "b"), _record("d", "a")]
    assert [(record.id, lead) for record, lead in _ordered(records, "a")] == [
        ("a", ""), ("b", "├─ "), ("c", "│  └─ "), ("d", "└─ "),
    ]  # fmt: skip
    deep = [_record("0"), *(_record(str(n), str(n - 1)) for n in range(1, 3000))]
    assert len(_ordered(deep, "0")) == 3000
    assert _ordered(records, "unknown") == []


# -- modules ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "module", "agent"),
    [
        ("pkg.mod", "pkg.mod", None),
        ("pkg.mod:one", "pkg.mod", "one"),
        ("a/b.py:one", "a/b.py", "one"),
        ("a.py", "a.py", None),
        ("c:/x/a.py", "c:/x/a.py", None),
        ("a.py:", "a.py", None),
    ],
)
def test_targets(text: str, module: str, agent: str | None) -> None:
    assert Target.parse(text) == Target(module, agent)


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("missing.py", "there is no file missing.py"),
        ("missing", "there is no module 'missing'"),
        ("missing.deeper", "there is no module 'missing.deeper'"),
        ("words_agents.deeper", "there is no module 'words_agents.deeper'"),
        ("not a name", "is not the name of a module"),
        ("words_agents.py:other", "it has Listener, collector, failing, family, greeter, patient, sleeper"),
        ("words_empty.py", "has no agents or actors"),
        ("words_exits.py", "SystemExit: 3"),
    ],
)
def test_what_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str, said: str) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name, text in (("agents", AGENTS), ("empty", ""), ("exits", "raise SystemExit(3)\n")):
        (tmp_path / f"words_{name}.py").write_text(text)
        monkeypatch.delitem(sys.modules, f"words_{name}", raising=False)
    with pytest.raises(ModuleUnusable) as caught:
        find([target])
    assert said in caught.value.message


@pytest.mark.parametrize(("name", "value"), [("CALLBOARD_CONCURRENCY", "0"), ("CALLBOARD_LEASE_S", "soon")])
def test_bad_settings_are_named(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(InvalidInput, match=name):
        load(RuntimeSettings)


def test_a_file_is_loaded_also_when_another_module_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "json.py").write_text(
        "from callboard import Context, agent\n\n@agent('mine')\nasync def mine(ctx: Context) -> None: ...\n"
    )
    assert [agent.name for agent in find([str(tmp_path / "json.py")]).agents] == ["mine"]


def test_two_agents_of_one_name_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    text = "from callboard import Context, agent\n\n@agent('same')\nasync def f(ctx: Context) -> None: ...\n"
    (tmp_path / "twin_one.py").write_text(text)
    (tmp_path / "twin_two.py").write_text(text)
    with pytest.raises(ModuleUnusable, match="'same'"):
        find([str(tmp_path / "twin_one.py"), str(tmp_path / "twin_two.py")])
    assert len(find([str(tmp_path / "twin_one.py"), str(tmp_path / "twin_one.py")]).agents) == 1


def test_watched_folders_leave_state_and_environments_out(tmp_path: Path) -> None:
    for name in ("pkg/deep", ".callboard/nats", "venv/lib", "node_modules/x", "pkg/__pycache__"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "venv" / "pyvenv.cfg").write_text("")
    assert [str(folder.relative_to(tmp_path)) for folder in folders(tmp_path)] == [".", "pkg", "pkg/deep"]
