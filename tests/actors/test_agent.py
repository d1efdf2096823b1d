"""What an author may declare, and what is refused where it is written."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from callboard.actors.agent import Retry, Retryable, Terminal, agent
from callboard.actors.engine import Context
from callboard.topics.codec import DecodeError
from callboard.topics.errors import BrokerError, CallboardError, InvalidInput, StaleFence, Unavailable


class Task(msgspec.Struct):
    path: str


async def code(ctx: Context, task: Task) -> list[int]:
    """First line.

    More."""
    return [1]


def test_declaration_and_what_a_worker_registers() -> None:
    found = agent("reviewer", topics=["review"], retries=Retry(max_attempts=5), timeout=timedelta(minutes=5))(code)
    info = found.info()
    assert (info.name, info.topics, info.description, info.timeout_s) == ("reviewer", ["review"], "First line.", 300)
    assert info.retry.max_attempts == 5
    assert (found.input_type, found.result_type, found.takes_input) == (Task, list[int], True)
    assert info.input_schema
    assert info.output_schema


async def test_calling_an_agent_calls_its_function() -> None:
    found = agent("plain")(code)
    assert await found(None, Task("x")) == [1]


@pytest.mark.parametrize(
    "options",
    [
        {"name": "a b"}, {"name": ""}, {"name": "a.b"}, {"name": "*"}, {"name": "a", "topics": "review"},
        {"name": "a", "topics": ["a b"]}, {"name": "a", "timeout": timedelta(0)},
    ],
)  # fmt: skip
def test_bad_declarations(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        agent(**options)(code)


def test_functions_that_cannot_be_agents() -> None:
    def sync(ctx: Context) -> int:
        return 1

    async def nothing() -> int:
        return 1

    async def too_much(ctx: Context, one: int, two: int) -> int:
        return 1

    bad: list[Any] = [sync, nothing, too_much]
    for fn in bad:
        with pytest.raises(CallboardError) as caught:
            agent("a")(fn)
        assert fn.__name__ in str(caught.value)


@pytest.mark.parametrize(
    "fields",
    [
        {"max_attempts": 0}, {"factor": 0.5}, {"jitter": 2}, {"jitter": -1}, {"initial": timedelta(-1)},
        {"maximum": timedelta(-1)}, {"factor": float("nan")}, {"jitter": float("nan")},
    ],
)  # fmt: skip
def test_bad_retries(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        Retry(**fields)


def test_which_errors_are_repeated() -> None:
    default, chosen = Retry(), Retry(on=(OSError,), never=(FileNotFoundError,))
    assert default.covers(ValueError())
    assert not default.covers(Terminal("x"))
    assert not default.covers(DecodeError("x"))
    assert not default.covers(StaleFence("x"))
    assert default.covers(Unavailable("x"))
    assert chosen.covers(ConnectionError())
    assert not chosen.covers(FileNotFoundError())
    assert not chosen.covers(ValueError())
    assert chosen.covers(Retryable("x"))
    assert Retry(on=(StaleFence,)).covers(StaleFence("x"))
    assert Retry(on=(BrokerError,)).covers(StaleFence("x"))
    assert not Retry(on=(OSError,), never=(Unavailable,)).covers(Unavailable("x"))


def test_policy_goes_over_the_wire_as_declared() -> None:
    policy = Retry(initial=timedelta(seconds=2), factor=3, maximum=timedelta(seconds=10), jitter=0).policy()
    assert [policy.delay_s(n, 0.5) for n in (1, 2, 3)] == [2, 6, 10]
