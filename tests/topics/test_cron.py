"""When cron expressions fire: against what the broker makes of them, around changes of the clocks, and what is
refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.topics.cron import Cron
from callboard.topics.errors import InvalidInput


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def fires(cron: Cron, after: datetime, count: int) -> list[datetime]:
    found: list[datetime] = []
    for _ in range(count):
        due = cron.following(after)
        assert due is not None
        found.append(due)
        after = due
    return found


@pytest.mark.parametrize(
    ("text", "after", "due"),
    [
        ("* * * * * *", "2026-03-01T12:00:00.900", "2026-03-01T12:00:01"),
        ("*/15 * * * * *", "2026-03-01T12:00:15", "2026-03-01T12:00:30"),
        ("10/20 * * * * *", "2026-03-01T12:00:31", "2026-03-01T12:00:50"),
        ("0 30 9 * * mon-fri", "2026-02-27T10:00:00", "2026-03-02T09:30:00"),
        ("0 0 0 1 1 *", "2026-03-01T00:00:00", "2027-01-01T00:00:00"),
        ("0 0 12 13 * fri", "2026-03-01T00:00:00", "2026-03-06T12:00:00"),  # either day is enough
        ("0 0 12 13 * ?", "2026-03-01T00:00:00", "2026-03-13T12:00:00"),
        ("0 0 0 29 2 *", "2026-03-01T00:00:00", "2028-02-29T00:00:00"),
        ("0 0 0 29 2 *", "2097-01-01T00:00:00", "2104-02-29T00:00:00"),
        ("0 0 9 * JAN,dec Sun", "2026-02-01T00:00:00", "2026-12-06T09:00:00"),
        ("@daily", "2026-12-31T00:00:00", "2027-01-01T00:00:00"),
        ("@hourly", "2026-12-31T23:59:59", "2027-01-01T00:00:00"),
        ("59 59 23 31 12 *", "2026-12-31T23:59:58.999", "2026-12-31T23:59:59"),
    ],
)
def test_the_next_time_it_fires(text: str, after: str, due: str) -> None:
    assert Cron(text).following(at(after)) == at(due)


def test_a_fixed_hour_fires_once_on_each_day_of_the_year() -> None:
    """Also on the day that skips it and on the day that has it twice."""
    due = fires(Cron("0 30 2 * * *", "Europe/Berlin"), at("2026-01-01T00:00:00"), 364)
    assert len({one.date() for one in due}) == 364
    assert at("2026-03-29T01:00:00") in due  # 02:30 does not exist: when the clocks have gone to 03:00
    assert at("2026-10-25T00:30:00") in due  # the first of the two
    assert at("2026-10-25T01:30:00") not in due


def test_every_hour_follows_real_time() -> None:
    for start in ("2026-03-28T20:00:00", "2026-10-24T20:00:00"):
        due = fires(Cron("0 15 * * * *", "Europe/Berlin"), at(start), 12)
        assert {after - before for before, after in pairwise(due)} == {timedelta(hours=1)}


def test_a_zone_off_by_half_an_hour() -> None:
    assert Cron("0 0 9 * * *", "Asia/Kolkata").following(at("2026-03-01T00:00:00")) == at("2026-03-01T03:30:00")


_PART = st.sampled_from(["*", "0", "7", "*/5", "1-3", "0,6", "2/2"])


@given(st.tuples(_PART, _PART, _PART), st.integers(0, 2**31), st.sampled_from(["UTC", "Europe/Berlin", "America/Lima"]))
def test_it_fires_after_the_moment_in_order_and_on_the_second(
    parts: tuple[str, str, str], second: int, zone: str
) -> None:
    cron = Cron(" ".join([*parts, "*", "*", "*"]), zone)
    moment = datetime.fromtimestamp(second, UTC)
    due = fires(cron, moment, 3)
    assert moment < due[0] < due[1] < due[2]
    assert all(one.microsecond == 0 for one in due)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("0 9 * * *", "5 fields"),
        ("", "0 fields"),
        ("60 * * * * *", "second"),
        ("* * 24 * * *", "hour"),
        ("* * * 0 * *", "day of month"),
        ("* * * * 13 *", "month"),
        ("* * * * * 7", "day of week"),
        ("* * * * foo *", "month"),
        ("5-1 * * * * *", "second"),
        ("*/0 * * * * *", "step"),
        ("1,,2 * * * * *", "not a number"),
        ("0 0 0 31 2 *", "never fires"),
        ("@sometimes", "1 fields"),
        ("0 0 0 ١ * *", "day of month"),
    ],
)
def test_what_cannot_be_is_refused_with_its_field(text: str, word: str) -> None:
    with pytest.raises(InvalidInput, match=word):
        Cron(text)


@pytest.mark.parametrize("zone", ["Nowhere/Land", "", "../etc/passwd", "Europe", "a\0b"])
def test_an_unknown_zone_is_refused(zone: str) -> None:
    with pytest.raises(InvalidInput, match="time zone"):
        Cron("@daily", zone)
