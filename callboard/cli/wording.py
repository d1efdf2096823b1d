"""Words for people: ages, sizes, cut texts. Nothing that could move a terminal's cursor gets through."""

from __future__ import annotations

from datetime import datetime

import msgspec

from ..topics.messages import BlobRef, Payload
from ..topics.units import now

_UNITS = (("d", 86_400), ("h", 3_600), ("m", 60))
_KIB = 1024


def clean(text: str) -> str:
    """The text on one line, with control characters written out."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def cut(text: str, width: int) -> str:
    """The text, cleaned, in at most `width` characters."""
    text = clean(text)
    return text if len(text) <= width else f"{text[: width - 1]}…"


def duration(seconds: float) -> str:
    """`850ms`, `12.3s`, `5m 3s`, `2h 10m`, `3d 4h`."""
    if seconds < 1:
        return f"{max(0, round(seconds * 1000))}ms"
    if seconds < 60:
        return f"{seconds:.1f}s".replace(".0s", "s")
    whole = int(seconds)
    for (unit, size), (below, small) in zip(_UNITS, (*_UNITS[1:], ("s", 1)), strict=True):
        if whole >= size:
            return f"{whole // size}{unit} {whole % size // small}{below}"
    return f"{whole}s"


def age(moment: datetime | None) -> str:
    """How long ago; `-` for never."""
    return "-" if moment is None else duration(max(0.0, (now() - moment).total_seconds()))


def took(begin: datetime | None, end: datetime | None) -> str:
    """How long from one to the other, up to now when it has not ended; `-` when it has not begun."""
    return "-" if begin is None else duration(max(0.0, ((end or now()) - begin).total_seconds()))


def size(count: int) -> str:
    """Bytes in a readable unit."""
    if count < _KIB:
        return f"{count} B"
    value = float(count)
    for unit in ("KiB", "MiB", "GiB"):
        value /= _KIB
        if value < _KIB:
            return f"{value:.1f} {unit}"
    return f"{value / _KIB:.1f} TiB"


def stamp(moment: datetime | None) -> str:
    """A time in UTC to the millisecond; `-` for none."""
    return "-" if moment is None else f"{moment:%Y-%m-%d %H:%M:%S}.{moment.microsecond // 1000:03d}Z"


def payload(value: Payload | None, width: int = 100) -> str:
    """A user's value on one line: its JSON, or where it lies."""
    if value is None:
        return "-"
    if value.sealed:
        return "<encrypted>"
    if isinstance(value.ref, BlobRef):
        return f"<{size(value.ref.size)} in the object store>"
    return cut(bytes(value.json).decode(errors="replace"), width) if isinstance(value.json, msgspec.Raw) else "null"


def masked(url: str) -> str:
    """NATS URLs without user and password."""
    parts = []
    for one in url.split(","):
        scheme, sep, rest = one.strip().rpartition("://")
        parts.append(f"{scheme}{sep}{rest.rpartition('@')[2]}")
    return ",".join(parts)
