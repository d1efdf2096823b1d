"""The garbage collector after the start of a process."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from callboard.runtime import garbage


class Knot:
    def __init__(self) -> None:
        self.itself = self


@pytest.fixture
def as_before() -> Iterator[None]:
    thresholds = gc.get_threshold()
    yield
    gc.set_threshold(*thresholds)
    gc.unfreeze()


def alive() -> int:
    return sum(type(one) is Knot for one in gc.get_objects())


def collections() -> int:
    return sum(generation["collections"] for generation in gc.get_stats())


@pytest.mark.usefixtures("as_before")
def test_what_is_there_at_the_start_is_not_looked_at_again() -> None:
    there = [Knot() for _ in range(10)]
    garbage.settle()
    assert gc.get_freeze_count() > 1000
    assert alive() == 0, "the collector sees what it is to leave alone"
    assert all(one.itself is one for one in there)


@pytest.mark.usefixtures("as_before")
def test_runs_in_hand_start_no_collection_and_what_refers_to_itself_is_still_found() -> None:
    garbage.settle()
    before = collections()
    in_hand = [[[number]] for number in range(5_000)]
    assert collections() == before
    del in_hand
    for _ in range(30_000):
        Knot()
    assert collections() > before
    assert alive() < 30_000
