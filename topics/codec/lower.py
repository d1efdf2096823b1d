"""The careful way to encode: every value is looked at, what is not carried is refused with its path.

The result holds only what msgspec writes exactly as docs/types.md says.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import math
from collections.abc import Callable, Iterable
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from typing import Any
from uuid import UUID

import msgspec
from pydantic import BaseModel

from .errors import EncodeError
from .models import FieldPlan, plan_of, written_by_pydantic
from .path import join
from .scan import MAX_DEPTH, enum_is_carried, whole_minutes
from .survey import ADDRESSES, class_name

MAX_VALUES = 10_000_000
"""Values in one message. Above it the structure most likely repeats itself without end."""

MAX_INT_DIGITS = 4300
"""What Python itself reads and writes by default (`sys.get_int_max_str_digits`)."""

_INT_LIMIT = 10**MAX_INT_DIGITS
_ZONED = (dt.datetime, dt.time)
_PASSED = (dt.date, dt.timedelta, UUID)


def lower(value: Any) -> Any:
    """Return the value as plain JSON values and scalars that msgspec knows. Raises EncodeError."""
    work = Lowering()
    try:
        return work.value(value)
    except RecursionError:
        raise work.refuse(value, "the value is nested too deep for the stack of the calling code") from None


class Lowering:
    """One walk through one value: where it stands, which containers are open, how many values were seen."""

    def __init__(self) -> None:
        self.trail: list[str | int] = []
        self.open: set[int] = set()
        self.count = 0

    def refuse(self, value: Any, reason: str) -> EncodeError:
        """Return the error for the value at the place where the walk stands."""
        path, name = "$" + join(self.trail), class_name(type(value))
        return EncodeError(f"cannot encode `{name}` at {path}: {reason}", path=path, type_name=name)

    def value(self, value: Any) -> Any:
        """Return one value in wire form."""
        self.count += 1
        if self.count > MAX_VALUES:
            raise self.refuse(value, f"there are more than {MAX_VALUES:,} values; write large data as an artifact")
        if value is None or type(value) is bool or (type(value) is str and value.isascii()):
            return value
        if isinstance(value, Enum):
            return self._enum(value)
        for types, write in _SCALARS:
            if isinstance(value, types):
                return write(self, value)
        return self._container(value)

    def _container(self, value: Any) -> Any:
        write = _writer(value)
        if write is None:
            raise self.refuse(value, _advice(value))
        mark = id(value)
        if mark in self.open:
            raise self.refuse(value, "it contains itself")
        if len(self.open) >= MAX_DEPTH:
            raise self.refuse(value, f"it is nested deeper than {MAX_DEPTH} levels")
        self.open.add(mark)
        try:
            return write(self, value)
        finally:
            self.open.discard(mark)

    def below(self, part: str | int, value: Any) -> Any:
        """Return the value of one element or field. On an error the trail stays as it is: it is the error's path."""
        self.trail.append(part)
        lowered = self.value(value)
        self.trail.pop()
        return lowered

    def _enum(self, value: Enum) -> Any:
        if not enum_is_carried(type(value)):
            raise self.refuse(value, "the values of its members must be all str or all int of at most 64 bits")
        return self.value(value.value)

    def text(self, value: str) -> str:
        """Return an exact str; lone surrogates have no UTF-8 form."""
        plain = value if type(value) is str else str.__str__(value)
        if not plain.isascii():
            try:
                plain.encode()
            except UnicodeEncodeError as error:
                raise self.refuse(value, f"a lone surrogate at index {error.start} has no UTF-8 form") from None
        return plain

    def integer(self, value: int) -> int:
        """Return an exact int."""
        if not -_INT_LIMIT < value < _INT_LIMIT:
            raise self.refuse(value, f"it has more than {MAX_INT_DIGITS} digits")
        return int(value)

    def number(self, value: float) -> float:
        """Return a finite float."""
        if not math.isfinite(value):
            raise self.refuse(value, f"{float(value)!r} has no JSON form; use None or a string for it")
        return float(value)

    def decimal(self, value: Decimal) -> Decimal:
        """Return a finite Decimal."""
        if not value.is_finite():
            raise self.refuse(value, f"{value} has no JSON form; use None or a string for it")
        return value if type(value) is Decimal else Decimal(value)

    def zoned(self, value: dt.datetime | dt.time) -> dt.datetime | dt.time:
        """Return a datetime or time whose zone can be written."""
        if not whole_minutes(value):
            raise self.refuse(value, "its zone has no offset of whole minutes here; convert it to UTC")
        exact: dt.datetime | dt.time = self.exact(value)
        return exact

    def exact(self, value: Any) -> Any:
        """Return it if it is of the very type: a subclass may hold more than is written, such as nanoseconds."""
        if type(value) in (*_ZONED, *_PASSED):
            return value
        raise self.refuse(value, f"a subclass of {class_name(_base(value))} may hold more than is written; convert it")

    def key(self, key: Any) -> str:
        """Return the text of a key; keys of several types may not meet in one text."""
        if isinstance(key, bool) or key is None or not isinstance(key, _KEYS):
            raise self.refuse(key, f"a key must be a str, a number or another scalar, got {key!r:.60}")
        lowered = self.value(key)
        if isinstance(lowered, str):
            return lowered
        [text] = msgspec.to_builtins({lowered: 0}, str_keys=True)
        return str(text)

    def mapping(self, value: dict[Any, Any]) -> dict[str, Any]:
        """Return a dict with text keys, in the same order."""
        out: dict[str, Any] = {}
        for key, item in value.items():
            name = self.key(key)
            if name in out:
                self.trail.append(name)
                raise self.refuse(key, f"two keys are written as {name!r:.80}; the first would be lost")
            out[name] = self.below(name, item)
        return out

    def sequence(self, value: Iterable[Any]) -> list[Any]:
        """Return a list."""
        return [self.below(index, item) for index, item in enumerate(value)]

    def unordered(self, value: Iterable[Any]) -> list[Any]:
        """Return a list in an order that is the same in every process: that of the elements' bytes.

        Elements of a set have no place of their own; a fault in one is shown at the set.
        """
        return sorted(map(self.value, value), key=msgspec.json.encode)

    def fields(self, value: Any, names: Iterable[tuple[str, str]]) -> dict[str, Any]:
        """Return the named attributes under their wire names; UNSET is left out."""
        out: dict[str, Any] = {}
        for name, key in names:
            try:
                item = getattr(value, name)
            except AttributeError:
                raise self.refuse(value, f"its field {name} has no value") from None
            if item is not msgspec.UNSET:
                out[key] = self.below(name, item)
        return out

    def dataclass(self, value: Any) -> dict[str, Any]:
        """Return all fields of a dataclass."""
        return self.fields(value, [(field.name, field.name) for field in dataclasses.fields(value)])

    def struct(self, value: msgspec.Struct) -> Any:
        """Return a Struct as its class is configured: renamed, tagged, as an array."""
        config = value.__struct_config__
        names = list(zip(value.__struct_fields__, value.__struct_encode_fields__, strict=True))
        out = self.fields(value, names)
        if config.array_like:
            if len(out) < len(names):
                raise self.refuse(value, "an array_like Struct cannot leave out a field that is UNSET")
            return [*([] if config.tag is None else [config.tag]), *out.values()]
        if config.omit_defaults:
            out = {key: item for key, item in out.items() if not _is_default(value, key)}
        return out if config.tag is None else {str(config.tag_field): config.tag, **out}

    def model(self, value: BaseModel) -> Any:
        """Return a pydantic model field by field, or by its own serializer where it has one."""
        plan = plan_of(type(value))
        if plan.refusal:
            raise self.refuse(value, plan.refusal)
        if plan.whole:
            return self.value(self._pydantic(value))
        if plan.root:
            return self.value(self._field(value, plan.fields[0]))
        out = {field.key: self.below(field.name, self._field(value, field)) for field in plan.fields}
        return out | self.mapping(value.__pydantic_extra__ or {})

    def _field(self, value: BaseModel, field: FieldPlan) -> Any:
        try:
            item = getattr(value, field.name)
        except AttributeError:
            raise self.refuse(value, f"its field {field.name} has no value") from None
        return self._pydantic(value, field) if field.custom else item

    def _pydantic(self, value: BaseModel, field: FieldPlan | None = None) -> Any:
        try:
            return written_by_pydantic(value, field)
        except Exception as error:
            self.trail += [field.name] if field else []
            raise self.refuse(value, f"pydantic could not write it: {error}") from error


_Writer = Callable[[Lowering, Any], Any]
_SCALARS: tuple[tuple[type | tuple[type, ...], _Writer], ...] = (
    (str, Lowering.text),
    (int, Lowering.integer),
    (float, Lowering.number),
    ((bytes, bytearray), lambda _, value: bytes(value)),
    (memoryview, lambda _, value: value.tobytes()),
    (_ZONED, Lowering.zoned),
    (_PASSED, Lowering.exact),
    (Decimal, Lowering.decimal),
    (PurePath, lambda work, value: work.text(str(value))),
    (ADDRESSES, lambda _, value: str(value)),
)
_KEYS = (Enum, str, int, float, bytes, *_ZONED, *_PASSED, Decimal, PurePath, *ADDRESSES)


def _writer(value: Any) -> _Writer | None:
    if isinstance(value, BaseModel):
        return Lowering.model
    if isinstance(value, msgspec.Struct):
        return Lowering.struct
    if isinstance(value, dict):
        return Lowering.mapping
    if isinstance(value, list | tuple):
        return Lowering.sequence
    if isinstance(value, set | frozenset):
        return Lowering.unordered
    if isinstance(value, msgspec.Raw):
        return _raw
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return Lowering.dataclass
    return None


def _raw(work: Lowering, value: msgspec.Raw) -> Any:
    try:
        return work.value(msgspec.json.decode(value))
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise work.refuse(value, f"it is no JSON: {error}") from error


def _is_default(value: msgspec.Struct, key: str) -> bool:
    """Say whether msgspec would leave the field out: it is the default, or as empty as a new one."""
    field = next(entry for entry in msgspec.structs.fields(value) if entry.encode_name == key)
    item = getattr(value, field.name)
    if field.default is not msgspec.NODEFAULT:
        return item is field.default or (type(item) is type(field.default) and bool(item == field.default))
    return field.default_factory in (list, dict, set) and type(item) is field.default_factory and not item


def _base(value: Any) -> type:
    return next(base for base in (*_ZONED, *_PASSED) if isinstance(value, base))


def _advice(value: Any) -> str:
    if isinstance(value, type):
        return "a class is not carried; send an instance or its name"
    if callable(value):
        return "functions are not carried"
    if hasattr(value, "__next__") or hasattr(value, "__anext__"):
        return "iterators are not carried; make it a list"
    return "objects of this type are not carried; use a pydantic model, dataclass, Struct, TypedDict or plain JSON"
