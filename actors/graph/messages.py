"""`messages`: a channel of messages with ids. A known id replaces its message, `Remove(id)` takes it out."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import msgspec
from pydantic import BaseModel

from ...topics import codec
from .errors import InvalidUpdate
from .fitting import Fit, fitter
from .grown import Grown
from .reducers import Applied, Reducer, item_type


class Remove(msgspec.Struct, frozen=True):
    """Takes the message with this id out of a `messages` channel. An id that is not there: nothing happens."""

    remove: str


class Put(msgspec.Struct, frozen=True):
    """A message on its way into a channel; tells it from a removal when it is written down."""

    put: Any


class _Messages(Reducer[Any]):
    name = "messages"
    grows = True

    def empty(self, type_: Any) -> Any:
        return Grown([])

    def prepare(self, type_: Any) -> Fit:
        fit = fitter(item_type(type_))

        def prepare(update: Any) -> list[Put | Remove]:
            many = update if isinstance(update, (list, tuple)) else [update]
            return [_prepared(one, fit) for one in many]

        return prepare

    def update_type(self, type_: Any) -> Any:
        return list[Any]

    def apply(self, old: Grown, update: Sequence[Put | Remove], mark: str) -> Applied:
        items = [with_id(one.put, f"{mark}.{at}") for at, one in enumerate(update) if isinstance(one, Put)]
        index = _index(old)
        if _only_new(index, len(old), items) and len(items) == len(update):
            new = old.plus(items)
            if new.positions is None:
                new.positions = index
            index.update((id_of(message), len(old) + at) for at, message in enumerate(items))
            return Applied(new, items)
        return Applied(_rewritten(old, update, items))


def _index(value: Grown) -> dict[Any, int]:
    """Where each id stands. Shared with later values, as their items are: positions beyond the end do not count."""
    if value.positions is None:
        value.positions = {id_of(message): at for at, message in enumerate(value)}
    return value.positions


def _only_new(index: dict[Any, int], length: int, items: list[Any]) -> bool:
    ids = [id_of(message) for message in items]
    return len(set(ids)) == len(ids) and all(index.get(one, length) >= length for one in ids)


def _prepared(one: Any, fit: Fit) -> Put | Remove:
    if isinstance(one, (Remove, Put)):
        return one if isinstance(one, Remove) else Put(fit(one.put))
    if isinstance(one, dict) and one.keys() == {"remove"}:
        return Remove(str(one["remove"]))
    if isinstance(one, dict) and one.keys() == {"put"}:
        return Put(fit(one["put"]))
    return Put(fit(one))


def _rewritten(old: Grown, update: Sequence[Put | Remove], items: list[Any]) -> Grown:
    found: dict[Any, Any] = {id_of(message): message for message in old}
    puts = iter(items)
    for change in update:
        if isinstance(change, Remove):
            found.pop(change.remove, None)
        else:
            message = next(puts)
            found[id_of(message)] = message
    return Grown(list(found.values()))


def id_of(message: Any) -> str | None:
    """The message's id: its key or attribute `id`."""
    found = message.get("id") if isinstance(message, dict) else getattr(message, "id", None)
    return found or None


def with_id(message: Any, id: str) -> Any:
    """The message, with this id if it has none."""
    if id_of(message) is not None:
        return message
    if isinstance(message, dict):
        return {**message, "id": id}
    if isinstance(message, BaseModel) and "id" in type(message).model_fields:
        return message.model_copy(update={"id": id})
    if isinstance(message, msgspec.Struct) and "id" in message.__struct_fields__:
        return msgspec.structs.replace(message, id=id)
    if dataclasses.is_dataclass(message) and not isinstance(message, type):
        names = {field.name for field in dataclasses.fields(message)}
        if "id" in names:
            return dataclasses.replace(message, id=id)
    raise InvalidUpdate(
        f"a message of type {codec.type_name(type(message))} has no field `id`: a `messages` channel holds dicts, or "
        "objects with `id: str | None = None`"
    )


messages: Reducer[Any] = _Messages()
