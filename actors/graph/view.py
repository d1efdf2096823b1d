"""What a node sees of the state: an instance of the state's class, all its own.

A TypedDict is a `View`: a dict that copies a value when it is first asked for, so that a node which reads one channel
of fifty pays for one. The other classes are filled with copies."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Self

import msgspec
from pydantic import BaseModel

from .channel import Channel

Channels = Mapping[str, Channel]
Build = Callable[[Mapping[str, Any]], Any]

_MISSING = object()


class View(dict[str, Any]):
    """A copy of the state that is made as it is read. Below are the shared values; whatever hands one out copies it
    first. (C code that reads a dict past its methods, as JSON encoders do, sees the shared ones, and changes none.)"""

    __slots__ = ("_channels", "_shared")

    def __init__(self, values: dict[str, Any], shared: set[str], channels: Channels) -> None:
        super().__init__(values)
        self._channels = channels
        self._shared = shared

    def __getitem__(self, name: str) -> Any:
        value = super().__getitem__(name)
        if name in self._shared:
            self._shared.discard(name)
            value = self._channels[name].copy(value)
            super().__setitem__(name, value)
        return value

    def __setitem__(self, name: str, value: Any) -> None:
        self._shared.discard(name)
        super().__setitem__(name, value)

    def get(self, name: str, default: Any = None) -> Any:  # noqa: D102  # as dict's
        return self[name] if name in self else default  # noqa: SIM401  # get is what is being written

    def _all(self) -> None:
        for name in tuple(self._shared):
            if name in self:
                self[name]
        self._shared.clear()

    def __iter__(self) -> Iterator[str]:
        """Also has `dict(view)` and `{**view}` go through `__getitem__`."""
        return super().__iter__()

    def items(self) -> Any:  # noqa: D102
        self._all()
        return super().items()

    def values(self) -> Any:  # noqa: D102
        self._all()
        return super().values()

    def copy(self) -> dict[str, Any]:  # noqa: D102
        return dict(self)

    def pop(self, name: str, default: Any = _MISSING) -> Any:  # noqa: D102
        if name not in self and default is not _MISSING:
            return default
        value = self[name]
        del self[name]
        return value

    def popitem(self) -> tuple[str, Any]:  # noqa: D102
        self._all()
        return super().popitem()

    def setdefault(self, name: str, default: Any = None) -> Any:  # noqa: D102
        if name not in self:
            self[name] = default
        return self[name]

    def update(self, *others: Any, **more: Any) -> None:  # noqa: D102
        for name, value in dict(*others, **more).items():
            self[name] = value

    def __or__(self, other: Any) -> Any:
        return dict(self) | dict(other)

    def __ror__(self, other: Any) -> Any:
        return dict(other) | dict(self)

    def __ior__(self, other: Any) -> Self:  # type: ignore[override]
        self.update(other)
        return self

    def __eq__(self, other: object) -> bool:
        self._all()
        return super().__eq__(other)

    __hash__ = None

    def __repr__(self) -> str:
        self._all()
        return super().__repr__()

    def __reduce_ex__(self, protocol: Any) -> Any:
        return dict, (dict(self),)


def builder(cls: type, channels: Channels) -> Build:
    """A function that makes a node's view of the class out of a snapshot's values. Channels without a value are absent:
    no key, no attribute; `UNSET` in a Struct."""
    if issubclass(cls, dict):
        return _dict_builder(channels)
    if issubclass(cls, BaseModel):
        return lambda values: cls.model_construct(**{name: channels[name].read(one) for name, one in values.items()})
    if issubclass(cls, msgspec.Struct):
        return _struct_builder(cls, channels)
    return _dataclass_builder(cls, channels)


def _dict_builder(channels: Channels) -> Build:
    grows = [name for name, channel in channels.items() if channel.grows]
    mutable = frozenset(name for name, channel in channels.items() if channel.mutable)

    def build(values: Mapping[str, Any]) -> Any:
        own = dict(values)
        for name in grows:
            own[name] = own[name].items()
        shared = mutable.intersection(own)
        return View(own, set(shared), channels) if shared else own

    return build


def _struct_builder(cls: type[msgspec.Struct], channels: Channels) -> Build:
    needed = [field.name for field in msgspec.structs.fields(cls) if field.required]

    def build(values: Mapping[str, Any]) -> Any:
        given = {name: channels[name].read(one) for name, one in values.items()}
        return cls(**{name: given.get(name, msgspec.UNSET) for name in {*needed, *given}})

    return build


def _dataclass_builder(cls: type, channels: Channels) -> Build:
    def build(values: Mapping[str, Any]) -> Any:
        made: Any = object.__new__(cls)
        for name, value in values.items():
            object.__setattr__(made, name, channels[name].read(value))
        return made

    assert dataclasses.is_dataclass(cls)
    return build
