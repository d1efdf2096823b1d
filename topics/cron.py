"""Cron expressions: when they fire. The six fields that the broker knows, evaluated here (docs/schedules.md says why).

    second minute hour day-of-month month day-of-week

A field is `*` (or `?`), a number, a range `a-b`, any of them with a step `/n`, or a list of these; months and days of
the week have names (`jan`, `mon`), days of the week count from 0, Sunday. `@yearly`, `@monthly`, `@weekly`, `@daily`
and `@hourly` are short for the obvious. When both day fields are restricted, either is enough, as in every cron.

Where the clocks change: an expression with a fixed hour fires once on each day that it names; a time that the clocks
skip fires when they have skipped it, a time that occurs twice fires the first time. An expression for every hour
follows real time: it leaves nothing out and fires in both hours that have the same name.
"""

from __future__ import annotations

import calendar
from collections.abc import Mapping
from datetime import UTC, date, datetime, time, timedelta
from typing import NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from .errors import InvalidInput

_MONTHS = {name.lower(): number for number, name in enumerate(calendar.month_abbr) if name}
_DAYS = {name: number for number, name in enumerate(("sun", "mon", "tue", "wed", "thu", "fri", "sat"))}
_SHORT = {
    "@yearly": "0 0 0 1 1 *",
    "@annually": "0 0 0 1 1 *",
    "@monthly": "0 0 0 1 * *",
    "@weekly": "0 0 0 * * 0",
    "@daily": "0 0 0 * * *",
    "@midnight": "0 0 0 * * *",
    "@hourly": "0 0 * * * *",
}
_NO_NAMES: Mapping[str, int] = {}
_LONGEST_DAYS = 366 * 9
"""The 29th of February can be eight years away, as around 2100."""
_SECOND = timedelta(seconds=1)


class _Bounds(NamedTuple):
    name: str
    low: int
    high: int
    names: Mapping[str, int]


_FIELDS = (
    _Bounds("second", 0, 59, _NO_NAMES),
    _Bounds("minute", 0, 59, _NO_NAMES),
    _Bounds("hour", 0, 23, _NO_NAMES),
    _Bounds("day of month", 1, 31, _NO_NAMES),
    _Bounds("month", 1, 12, _MONTHS),
    _Bounds("day of week", 0, 6, _DAYS),
)


class Cron:
    """An expression in a time zone. Raises InvalidInput, which names the field and what it may hold."""

    def __init__(self, text: str, zone: str = "UTC") -> None:
        self.text, self.zone = text, zone
        self._tz = _zone(zone)
        parts = _SHORT.get(text.strip().lower(), text).split()
        if len(parts) != len(_FIELDS):
            raise InvalidInput(
                f"cron expression {text[:80]!r} has {len(parts)} fields, not 6: write "
                "'second minute hour day-of-month month day-of-week', as in '0 30 9 * * mon-fri', or @daily",
                expression=text[:80],
            )
        sets = [_field(part, bounds, text) for part, bounds in zip(parts, _FIELDS, strict=True)]
        self._seconds, self._minutes, self._hours = (sorted(one) for one in sets[:3])
        self._days, self._months, self._weekdays = sets[3:]
        self._either = not (_is_open(parts[3]) or _is_open(parts[5]))
        self._hourly = len(sets[2]) == 24
        if self.following(datetime(2096, 1, 1, tzinfo=UTC)) is None:
            raise InvalidInput(f"cron expression {text[:80]!r} never fires: no such day exists", expression=text[:80])

    def following(self, after: datetime) -> datetime | None:
        """The first time after `after` (aware) at which it fires, in UTC; None when there is none within nine years."""
        return self._in_real_time(after) if self._hourly else self._by_the_clock(after)

    def _in_real_time(self, after: datetime) -> datetime | None:
        moment = after
        for _ in range(2 * _LONGEST_DAYS):
            offset = self._offset(moment + _SECOND)
            found = self._match((moment + offset).astimezone(UTC).replace(tzinfo=None))
            if found is None:
                return None
            instant = found.replace(tzinfo=UTC) - offset
            if self._offset(instant) == offset:
                return instant
            moment = self._change(moment + _SECOND, instant) - _SECOND  # the clocks change before: look from there
        return None

    def _by_the_clock(self, after: datetime) -> datetime | None:
        local: datetime | None = after.astimezone(self._tz).replace(tzinfo=None)
        while local is not None:
            local = self._match(local)
            if local is None:
                return None
            instant = self._instant(local)
            if instant > after:
                return instant
        return None

    def _instant(self, local: datetime) -> datetime:
        early, late = (local.replace(tzinfo=self._tz, fold=fold).astimezone(UTC) for fold in (1, 0))
        if late <= early or late.astimezone(self._tz).replace(tzinfo=None) == local:
            return late
        return self._change(early, late)

    def _offset(self, moment: datetime) -> timedelta:
        return moment.astimezone(self._tz).utcoffset() or timedelta()

    def _change(self, before: datetime, after: datetime) -> datetime:
        """The second at which the zone's offset changes between the two."""
        low, high = int(before.timestamp()), int(after.timestamp())
        old = self._offset(before)
        while high - low > 1:
            middle = (low + high) // 2
            if self._offset(datetime.fromtimestamp(middle, UTC)) == old:
                low = middle
            else:
                high = middle
        return datetime.fromtimestamp(high, UTC)

    def _match(self, after: datetime) -> datetime | None:
        """The first time on the wall after `after` that the fields name."""
        start = after.replace(microsecond=0) + _SECOND
        day = start.date()
        clock = (start.hour, start.minute, start.second)
        for _ in range(_LONGEST_DAYS):
            if self._names(day):
                found = self._time(*clock)
                if found is not None:
                    return datetime.combine(day, time(*found))
            if day == date.max:
                return None
            day, clock = day + timedelta(days=1), (0, 0, 0)
        return None

    def _names(self, day: date) -> bool:
        if day.month not in self._months:
            return False
        in_month, in_week = day.day in self._days, day.isoweekday() % 7 in self._weekdays
        return (in_month or in_week) if self._either else (in_month and in_week)

    def _time(self, hour: int, minute: int, second: int) -> tuple[int, int, int] | None:
        """The first time of day from this one on."""
        for one in self._hours:
            if one < hour:
                continue
            if one > hour:
                return one, self._minutes[0], self._seconds[0]
            for two in self._minutes:
                if two > minute:
                    return one, two, self._seconds[0]
                if two == minute:
                    three = next((three for three in self._seconds if three >= second), None)
                    if three is not None:
                        return one, two, three
        return None


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise InvalidInput(
            f"time zone {name[:60]!r} is not known here: use a name such as Europe/Berlin or UTC (the names come from "
            "the system's tzdata)",
            zone=name[:60],
        ) from error


def _is_open(part: str) -> bool:
    """Whether a day field leaves the choice of days to the other one."""
    return any(one.partition("/")[0] in ("*", "?") and one.partition("/")[2] in ("", "1") for one in part.split(","))


def _field(part: str, bounds: _Bounds, text: str) -> set[int]:
    found: set[int] = set()
    for one in part.split(","):
        try:
            found |= _range(one, bounds)
        except ValueError as error:
            raise InvalidInput(
                f"cron expression {text[:80]!r}: {bounds.name} {one[:20]!r} {error}; it takes {bounds.low} to "
                f"{bounds.high}, *, ranges a-b, steps /n, and lists of them",
                expression=text[:80], field=bounds.name,
            ) from None  # fmt: skip
    return found


def _range(one: str, bounds: _Bounds) -> set[int]:
    span, slash, step_text = one.partition("/")
    step = _number(step_text, _NO_NAMES) if slash else 1
    if step < 1:
        raise ValueError("has a step that is not positive")
    if span in ("*", "?"):
        return set(range(bounds.low, bounds.high + 1, step))
    first, dash, last = span.partition("-")
    low = _number(first, bounds.names)
    high = _number(last, bounds.names) if dash else (bounds.high if slash else low)
    if not bounds.low <= low <= high <= bounds.high:
        raise ValueError("is out of range")
    return set(range(low, high + 1, step))


def _number(text: str, names: Mapping[str, int]) -> int:
    if text.lower() in names:
        return names[text.lower()]
    if not (text.isascii() and text.isdigit() and len(text) <= 4):
        raise ValueError("is not a number")
    return int(text)
