"""Ids of runs."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.topics.errors import InvalidRunId
from callboard.topics.ids import (
    child_run_id,
    derived_run_id,
    is_run_id,
    new_run_id,
    new_token,
    require_run_id,
    root_of,
)

FORM = re.compile(r"[0-9a-hjkmnp-tv-z]{24}\Z")


def test_a_new_id_is_one_token_and_sorts_by_time() -> None:
    ids = [new_run_id(stamp) for stamp in (0, 1, 31, 32, 1_700_000_000_000, 1_700_000_000_001, 2**45 - 1)]
    assert all(FORM.match(one) for one in ids)
    assert ids == sorted(ids)
    assert len({new_run_id(5) for _ in range(1000)}) == 1000


def test_a_derived_id_follows_from_its_parts_and_the_secret() -> None:
    one = derived_run_id("salt", 1_700_000_000_000, "a", "b")
    assert FORM.match(one)
    assert one == derived_run_id("salt", 1_700_000_000_000, "a", "b")
    others = {
        derived_run_id("salt2", 1_700_000_000_000, "a", "b"),
        derived_run_id("salt", 1_700_000_000_000, "ab", ""),
        derived_run_id("salt", 1_700_000_000_000, "a", "c"),
    }
    assert len(others | {one}) == 4


def test_a_child_belongs_to_the_root_at_any_depth() -> None:
    root = new_run_id()
    child = child_run_id(root, "1")
    grandchild = child_run_id(child, "1")
    assert child == child_run_id(root, "1")
    assert len({child, grandchild, child_run_id(root, "2")}) == 3
    assert root_of(root) == root_of(child) == root_of(grandchild) == root
    assert all(is_run_id(one) for one in (root, child, grandchild))


@pytest.mark.parametrize("text", ["a", "A-b_9", "x" * 64, "a~" + "0" * 16])
def test_what_a_caller_may_choose(text: str) -> None:
    assert require_run_id(text) == text


@pytest.mark.parametrize(
    "text",
    ["", "x" * 65, "a.b", "a b", "a*", ">", "a\n", "ä", "a~", "~" + "0" * 16, "a~" + "0" * 15, "a~" + "u" * 16,
     "a~" + "0" * 16 + "~" + "0" * 16, "a~" + "0" * 16 + "\n"],
)  # fmt: skip
def test_what_is_no_run_id(text: str) -> None:
    with pytest.raises(InvalidRunId) as caught:
        require_run_id(text)
    assert caught.value.code == "invalid_run_id"


@given(st.text())
def test_a_run_id_is_always_one_subject_token(text: str) -> None:
    if is_run_id(text):
        assert not set(text) & set(" .*>\t\r\n\0")


def test_tokens_have_the_length_asked_for() -> None:
    assert [len(new_token(length)) for length in (1, 16, 40)] == [1, 16, 40]
