"""`Schema`: the state of a graph as channels, read once from its class."""

from __future__ import annotations

import dataclasses
import inspect
import sys
import typing
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any, TypeVar, cast, get_args, get_origin

import msgspec
import pydantic
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from ...topics import codec
from ...topics.errors import did_you_mean
from .channel import Channel, Was
from .copying import copied
from .errors import InvalidState, InvalidUpdate, UnknownChannel
from .fitting import Fit
from .modeling import argument, bounded, validators
from .reducers import NOTHING, Custom, Reducer, find_reducer
from .view import builder

V = TypeVar("V")
_WRAPPERS = tuple(
    getattr(typing, name) for name in ("Required", "NotRequired", "ReadOnly", "Final") if hasattr(typing, name)
)
_Field = tuple[Any, "Callable[[], Any] | None", "Fit | None"]


class Schema:
    """The channels of a state class, and how its instances are made and taken apart."""

    def __init__(self, cls: Any) -> None:
        self.cls = cls
        fields = fields_of(cls)
        self.channels: dict[str, Channel] = {
            name: _channel(cls, name, type_, default, fit) for name, (type_, default, fit) in fields.items()
        }
        if not self.channels:
            raise InvalidState(f"state {codec.type_name(cls)} has no fields: each channel of a graph is a field")
        self._needed = [name for name, (_, default, _) in fields.items() if default is None]
        self.former = {old: name for name, channel in self.channels.items() for old in channel.was}
        self.view = builder(cls, self.channels)

    @property
    def name(self) -> str:
        """The name of the state's class."""
        return codec.type_name(self.cls)

    def initial(self) -> dict[str, Any]:
        """The values before the input: defaults, and what reducers begin with."""
        values = {name: channel.initial() for name, channel in self.channels.items()}
        return {name: value for name, value in values.items() if value is not NOTHING}

    def channel(self, name: str, source: str) -> Channel:
        """The channel of this name. Raises UnknownChannel, which says who asked."""
        found = self.channels.get(name)
        if found is None:
            hint = did_you_mean(name, self.channels)
            raise UnknownChannel(
                f"{source} names channel {name!r}, which state {self.name} does not have{hint}", channel=name
            )
        return found

    def prepare(self, update: Any, source: str) -> dict[str, Any]:
        """What a node or an input gave, by channel, each made to fit. Raises InvalidUpdate, UnknownChannel."""
        if update is None:
            return {}
        if not isinstance(update, dict):
            raise InvalidUpdate(
                f"{source} gave {codec.type_name(type(update))}: give a dict of the channels that change, or None",
                source=source,
            )
        channels = self.channels
        prepared = {}
        for name, value in update.items():
            channel = channels.get(name) or self.channel(name, source)
            prepared[name] = channel.prepare(value, source)
        return prepared

    def named_now(self, given: Mapping[str, V]) -> Mapping[str, V]:
        """An input under the names of today: whoever sends it may know a channel by a former one."""
        if not self.former or self.former.keys().isdisjoint(given):
            return given
        now = {name: self.former.get(name, name) for name in given}
        return {name if now[name] in given else now[name]: value for name, value in given.items()}

    def taken_apart(self, value: Any) -> Any:
        """An input as a dict: an instance of a class gives the fields that were set, or differ from their defaults."""
        if isinstance(value, BaseModel):
            return {name: getattr(value, name) for name in value.model_fields_set if name in self.channels}
        if isinstance(value, msgspec.Struct):
            given = msgspec.structs.asdict(value)
        elif dataclasses.is_dataclass(value) and not isinstance(value, type):
            given = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        else:
            return value
        defaults = {name: make() for name, (_, make, _) in fields_of(type(value)).items() if make is not None}
        return {name: one for name, one in given.items() if one is not msgspec.UNSET and not _same(name, one, defaults)}

    def result(self, values: Mapping[str, Any], cls: Any = None) -> Any:
        """The values as an instance of `cls` (default: the state), through its constructor. Raises InvalidUpdate."""
        cls = cls or self.cls
        names = list(self.channels if cls is self.cls else fields_of(cls))
        given = {name: self.channels[name].read(values[name]) for name in names if name in values}
        return given if issubclass(cls, dict) else self._constructed(cls, given)

    def _constructed(self, cls: Any, given: Mapping[str, Any]) -> Any:
        later = [field.name for field in dataclasses.fields(cls) if not field.init] if _is_dataclass(cls) else []
        names = {name: argument(cls, name) for name in given if name not in later}
        try:
            made = cls(**{names[name]: given[name] for name in names})
        except (TypeError, ValueError) as error:
            raise InvalidUpdate(
                f"the state does not make a {codec.type_name(cls)}: {error}", source=self.name
            ) from error
        for name in later:
            if name in given:
                object.__setattr__(made, name, given[name])
        return made

    def require_whole(self, values: Mapping[str, Any]) -> None:
        """Raises InvalidUpdate for values that the class as a whole refuses; where some have still to come, nothing is
        said."""
        if not issubclass(self.cls, dict) and all(name in values for name in self._needed):
            self.result(values)


def _channel(cls: Any, name: str, hint: Any, default: Callable[[], Any] | None, fit: Fit | None) -> Channel:
    while get_origin(hint) in _WRAPPERS:
        hint = get_args(hint)[0]
    marks: tuple[Any, ...] = ()
    if get_origin(hint) is typing.Annotated:
        hint, *rest = get_args(hint)
        marks = tuple(rest)
    was = tuple(old for mark in marks if isinstance(mark, Was) for old in mark.names)
    reducer, others = find_reducer(mark for mark in marks if not isinstance(mark, Was))
    others = [mark for mark in others if isinstance(mark, msgspec.Meta)]
    type_ = typing.Annotated[(hint, *others)] if others else hint
    if isinstance(reducer, Custom) and inspect.iscoroutinefunction(reducer.fn):
        raise InvalidState(
            f"reducer {reducer.name!r} of field {name!r} of {codec.type_name(cls)} is async: make it sync"
        )
    if reducer is not None and reducer.grows and (get_origin(hint) or hint) is not list:
        raise InvalidState(f"field {name!r} of {codec.type_name(cls)} has reducer {reducer.name}: declare it as a list")
    try:
        return Channel(name, type_, reducer, default=default, fit=None if reducer else fit, was=was)
    except codec.TypeNotCarried as error:
        raise InvalidState(f"field {name!r} of state {codec.type_name(cls)}: {error.message}") from error


def fields_of(cls: Any) -> dict[str, _Field]:
    """Type, default and validator of each field. Raises InvalidState."""
    if not isinstance(cls, type):
        raise InvalidState(f"a state is a class, not {cls!r}")
    if typing.is_typeddict(cls):
        return {name: (hint, None, None) for name, hint in _hints(cls).items()}
    if issubclass(cls, BaseModel):
        return {name: _of_model(cls, name, info) for name, info in cls.model_fields.items()}
    if issubclass(cls, msgspec.Struct):
        hints = _hints(cls)
        return {
            field.name: (hints[field.name], _default(field.default, field.default_factory, msgspec.NODEFAULT), None)
            for field in msgspec.structs.fields(cls)
        }
    if dataclasses.is_dataclass(cls):
        hints = _hints(cls)
        return {
            field.name: (hints[field.name], _default(field.default, field.default_factory, dataclasses.MISSING), None)
            for field in dataclasses.fields(cls)
        }
    raise InvalidState(
        f"{codec.type_name(cls)} is no state: declare a TypedDict, dataclass, pydantic model or msgspec Struct"
    )


def _default(value: Any, factory: Any, missing: Any) -> Callable[[], Any] | None:
    if factory is not missing:
        made: Callable[[], Any] = factory
        return made
    return None if value is missing else lambda: value


def _of_model(cls: type[BaseModel], name: str, info: FieldInfo) -> _Field:
    hint = _hints(cls)[name]
    default = None if info.is_required() else lambda: info.get_default(call_default_factory=True)
    plain = [mark for mark in info.metadata if not callable(mark) and not isinstance(mark, (Reducer, Was))]
    marks = [*plain, *validators(cls, name)]
    if not marks:
        return hint, default, None
    base = info.annotation
    adapter: pydantic.TypeAdapter[Any] = pydantic.TypeAdapter(cast(Any, typing.Annotated[(base, *marks)]))
    return bounded(hint, plain), default, lambda value: copied(adapter.validate_python(value))


def _same(name: str, value: Any, defaults: Mapping[str, Any]) -> bool:
    return name in defaults and type(value) is type(defaults[name]) and bool(value == defaults[name])


def _is_dataclass(cls: type) -> bool:
    return dataclasses.is_dataclass(cls)


def _hints(cls: type) -> dict[str, Any]:
    """The annotations, resolved; names of the functions around the class's use are known as well."""
    try:
        return typing.get_type_hints(cls, include_extras=True)
    except NameError as error:
        spaces: dict[str, Any] = {}
        frame: FrameType | None = sys._getframe(1)  # noqa: SLF001  # the only way to the locals of what is running
        while frame is not None:
            spaces = {**frame.f_locals, **spaces} if frame.f_globals is _module_of(cls) else spaces
            frame = frame.f_back
        try:
            return typing.get_type_hints(cls, localns=spaces, include_extras=True)
        except NameError:
            raise InvalidState(f"an annotation of state {codec.type_name(cls)} does not resolve: {error}") from error


def _module_of(cls: type) -> Any:
    module = sys.modules.get(cls.__module__)
    return vars(module) if module else None
