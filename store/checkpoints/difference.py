"""What differs between two states, channel by channel."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

from .state import State

Kind = Literal["added", "removed", "changed", "appended"]
_MOST = 200
"""So many differences inside of one value are listed."""


class Change(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One place inside of a value."""

    path: str
    """JSON Pointer (RFC 6901) from the channel's value."""
    old: Any | UnsetType = UNSET
    """Absent: there was nothing here."""
    new: Any | UnsetType = UNSET
    """Absent: there is nothing here any more."""


class Difference(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How one channel differs."""

    channel: str
    kind: Kind
    old: Any | UnsetType = UNSET
    """Of a channel that was removed, or changed."""
    new: Any | UnsetType = UNSET
    """Of a channel that was added, or changed."""
    appended: Any | UnsetType = UNSET
    """Of a list or text that grew at its end: what came on."""
    inside: list[Change] = []
    """Of a changed list or object: where it differs, the first of them."""


def differences(old: State, new: State) -> list[Difference]:
    """What has to be done to `old` to get `new`, by channel name; values that are equal as JSON do not differ."""
    found = []
    for name in sorted({*old.raws, *new.raws}):
        one = _difference(name, old.raws.get(name), new.raws.get(name))
        if one is not None:
            found.append(one)
    return found


def _difference(name: str, old: bytes | None, new: bytes | None) -> Difference | None:
    if old == new:
        return None
    if old is None:
        return Difference(channel=name, kind="added", new=msgspec.json.decode(new or b"null"))
    if new is None:
        return Difference(channel=name, kind="removed", old=msgspec.json.decode(old))
    before, after = msgspec.json.decode(old), msgspec.json.decode(new)
    if _same(before, after):
        return None
    if type(before) is type(after) and isinstance(before, list | str) and len(before) < len(after):
        head = after[: len(before)]
        if _same(before, head):
            return Difference(channel=name, kind="appended", appended=after[len(before) :])
    inside = [] if type(before) is not type(after) else list(_inside("", before, after))[:_MOST]
    if inside and not inside[0].path:
        inside = []
    return Difference(channel=name, kind="changed", old=before, new=after, inside=inside)


def _inside(path: str, old: Any, new: Any) -> Iterator[Change]:
    if isinstance(old, dict) and isinstance(new, dict):
        pairs = [(key, old.get(key, UNSET), new.get(key, UNSET)) for key in {**old, **new}]
    elif isinstance(old, list) and isinstance(new, list):
        rows = range(max(len(old), len(new)))
        pairs = [(str(i), old[i] if i < len(old) else UNSET, new[i] if i < len(new) else UNSET) for i in rows]
    else:
        yield Change(path=path, old=old, new=new)
        return
    for key, before, after in pairs:
        if before is UNSET or after is UNSET or not _same(before, after):
            yield from _inside(f"{path}/{key.replace('~', '~0').replace('/', '~1')}", before, after)


def _same(old: Any, new: Any) -> bool:
    """Equal as JSON, where 1, 1.0 and true are three values."""
    return msgspec.json.encode(old, order="sorted") == msgspec.json.encode(new, order="sorted")
