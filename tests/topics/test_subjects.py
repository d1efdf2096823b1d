"""Subjects, streams and errors: the names on the wire."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.topics.errors import (
    BrokerError,
    CallboardError,
    InvalidSubject,
    NotFound,
    StaleFence,
    Unavailable,
    error_from_code,
)
from callboard.topics.ids import child_run_id, new_run_id
from callboard.topics.subjects import Subjects, require_token


def test_the_literal_prefix_of_a_run_follows_from_its_id() -> None:
    subjects, root = Subjects("cb"), new_run_id()
    child = child_run_id(root, "1")
    assert subjects.state(root) == f"cb.run.{root}.{root}.state"
    assert subjects.event(child, "step") == f"cb.run.{root}.{child}.step"
    assert subjects.log(child) == f"cb.run.{root}.{child}.*"
    assert subjects.tree(child) == subjects.tree(root) == f"cb.run.{root}.>"
    assert subjects.live_of(subjects.state(root)) == f"cb.live.run.{root}.{root}.state"


def test_two_namespaces_share_nothing() -> None:
    one, other = Subjects("one"), Subjects("other")
    for name in Subjects.__slots__:
        if name != "salt_key":
            assert getattr(one, name) != getattr(other, name)


@pytest.mark.parametrize("namespace", ["", "a.b", "a b", "x" * 33, "*", "ä", "a\n"])
def test_an_impossible_namespace_is_refused(namespace: str) -> None:
    with pytest.raises(InvalidSubject, match="namespace"):
        Subjects(namespace)


@pytest.mark.parametrize("text", ["a", "ä", "a-b_c", "x" * 128, "🎭"])
def test_what_can_be_a_token(text: str) -> None:
    assert require_token("topic", text) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a.b",
        "a b",
        "*",
        ">",
        "a*",
        "x" * 129,
        "@a",
        "a/b",
        "a\\b",
        "\ud800",
        "a\n",
        "a\0",
        "\x7f",
        "a\u2028",
    ],
)
def test_what_cannot_be_a_token(text: str) -> None:
    with pytest.raises(InvalidSubject, match="topic") as caught:
        require_token("topic", text)
    assert caught.value.kind == "topic"


@given(st.text(max_size=200))
def test_a_token_is_one_word_of_the_protocol(text: str) -> None:
    try:
        token = require_token("topic", text)
    except InvalidSubject:
        return
    assert token.split() == [token]
    assert not set(token) & set(".*>")


# -- errors by code ---------------------------------------------------------------------------------------------------


def every(kind: type[CallboardError]) -> list[type[CallboardError]]:
    return [kind, *(one for sub in kind.__subclasses__() for one in every(sub))]


def test_every_error_comes_back_as_its_class() -> None:
    codes: dict[str, type[CallboardError]] = {}
    for kind in every(CallboardError):
        if kind.__module__.startswith("callboard."):
            codes.setdefault(kind.code, kind)
    for code, kind in codes.items():
        error = error_from_code(code, "text", {"run": "r"})
        assert type(error) is kind
        assert (str(error), error.message, error.run, error.code) == ("text", "text", "r", code)
    assert isinstance(error_from_code("stale_fence", "x"), StaleFence)
    assert not issubclass(NotFound, BrokerError)


def test_a_code_that_nobody_knows_here_keeps_its_code() -> None:
    error = error_from_code("from_the_future", "text", retryable=True)
    assert type(error) is CallboardError
    assert (error.code, error.retryable) == ("from_the_future", True)
    assert (CallboardError.code, CallboardError.retryable) == ("error", False)


def test_the_sender_says_whether_a_retry_helps() -> None:
    assert error_from_code("unavailable", "x").retryable
    assert not error_from_code("unavailable", "x", retryable=False).retryable
    assert Unavailable.retryable


def test_a_fact_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="nothing"):
        _ = NotFound("x", run="r").nothing
