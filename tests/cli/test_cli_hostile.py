"""Every option and argument of every command that ends by itself, given what nobody should type."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from callboard.cli import exits

from .conftest import Call
from .test_cli_words import ALL

RUNS_ON = {("dev",), ("coordinator",), ("worker",), ("gateway",), ("projector",), ("webhooks", "run"), ("tail",)}
HOSTILE = [
    "", " ", "-1", "0", "9" * 23, "1e308", "nan", "inf", "a\nb", "a\0b", "ü😀", "x" * 70_000, "*", ">", "a.b", "a b",
    "a~b", "../../etc/passwd", "{}", "[]", "null", r'"\ud800"', "[" * 3000, "-", "--", "a=b=c", "=", "0001-01-01",
    "9999-12-31T23:59:59+14:00", "http://", "http://[::1", "%s%n", "\x1b[31m", "\u202e", "0x10", "1_000",
]  # fmt: skip
SAID = {exits.OK, exits.FAILED, exits.USAGE, exits.NOT_FOUND, exits.CONFLICT, exits.UNFINISHED}


def lines(run: str) -> Iterator[tuple[str, ...]]:
    """A value at each place where one can stand; all of them occur."""
    values = itertools.cycle(HOSTILE)
    for path, command in ALL.items():
        if path not in RUNS_ON and not getattr(command, "commands", None):
            for parameter in command.params:
                if not getattr(parameter, "is_flag", False):
                    yield line(path, command, parameter, next(values), run)


def line(path: tuple[str, ...], command: Any, target: Any, value: str, run: str) -> tuple[str, ...]:
    """The command with this value at this place, and with something that it takes where it asks for more."""
    usual = {"value": "1", "agent": "greeter", "topic": "greetings"}
    options, arguments = list(path), list[str]()
    for parameter in command.params:
        if parameter is target or parameter.required:
            given = value if parameter is target else usual.get(parameter.name, run)
            if parameter.param_type_name == "argument":
                arguments.append(given)
            else:
                options += [parameter.opts[0], given]
    return (*options, "--", *arguments)


@pytest.mark.proof
def test_nothing_that_is_typed_ends_in_a_stack_trace(cli: Call) -> None:
    """An exit code that the documentation names, and in case of an error a word on it."""
    cli("run", "greeter", '"x"', "--wait", "--id", "usual")
    for words in lines("usual"):
        done = cli(*words, text="")
        assert done.returncode in SAID, (words, done)
        assert done.returncode in (exits.OK, exits.FAILED) or done.stderr.strip(), (words, done)
        assert "Traceback" not in done.stderr, (words, done)
