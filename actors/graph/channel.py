"""`Channel`: one field of the state, with the rule by which it takes what nodes write."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...topics import codec
from ...topics.codec import DecodeError, EncodeError
from .copying import copied, copier
from .errors import InvalidUpdate
from .fitting import Fit, fitter
from .grown import Grown
from .reducers import NOTHING, Applied, Custom, Reducer, item_type


class Was:
    """A former name of a field, for checkpoints that were written under it: `Annotated[str, Was("text")]`."""

    def __init__(self, *names: str) -> None:
        self.names = names


class Channel:
    """A field of the state. Without a reducer it takes the last value, from one writer a superstep."""

    __slots__ = ("_copy", "_default", "_fit", "_whole", "grows", "name", "reducer", "type_", "was")

    def __init__(
        self,
        name: str,
        type_: Any,
        reducer: Reducer[Any] | None = None,
        *,
        default: Callable[[], Any] | None = None,
        fit: Fit | None = None,
        was: tuple[str, ...] = (),
    ) -> None:
        codec.check_type(type_)
        self.name, self.type_, self.reducer, self.was = name, type_, reducer, was
        self.grows = reducer is not None and reducer.grows
        self._default = default
        self._fit = reducer.prepare(type_) if reducer else fit or fitter(type_)
        self._whole = fitter(type_) if isinstance(reducer, Custom) else None
        self._copy = copier(item_type(type_) if self.grows else type_)

    def initial(self) -> Any:
        """The value before any write; NOTHING if there is none."""
        if self._default is None:
            return self.reducer.empty(self.type_) if self.reducer else NOTHING
        value = self._default()
        return Grown(list(value)) if self.grows else value

    def prepare(self, update: Any, source: str) -> Any:
        """The update of a node, or of an input, as it is kept until it is applied. Raises InvalidUpdate."""
        try:
            return self._fit(update)
        except (DecodeError, EncodeError, ValueError, TypeError) as error:
            text = getattr(error, "message", None) or str(error)
            raise InvalidUpdate(
                f"what {source} wrote to channel {self.name!r} does not fit: {text}", channel=self.name, source=source
            ) from error

    def apply(self, old: Any, update: Any, mark: str) -> Applied:
        """The next value. What a custom reducer gives is fitted to the declared type."""
        if self.reducer is None:
            return Applied(update)
        applied = self.reducer.apply(old, update, mark)
        if self._whole is None:
            return applied
        try:
            return Applied(self._whole(applied.value))
        except (DecodeError, EncodeError) as error:
            raise InvalidUpdate(
                f"what reducer {self.reducer.name!r} made of channel {self.name!r} does not fit: {error.message}",
                channel=self.name,
                source=mark,
            ) from error

    def whole(self, value: Any) -> Any:
        """A whole value as snapshots hold it, made to fit. Raises EncodeError, DecodeError."""
        fitted = fitter(self.type_)(value)
        return Grown(fitted) if self.grows else fitted

    @property
    def mutable(self) -> bool:
        """Whether `copy` is needed."""
        return self._copy is not None

    def copy(self, value: Any) -> Any:
        """A copy of a value, which is a list where the channel grows."""
        if self._copy is None:
            return value
        return [copied(one) for one in value] if self.grows else self._copy(value)

    def read(self, value: Any) -> Any:
        """A copy of a snapshot's value, for a node."""
        return self.copy(value.items() if self.grows else value)

    # -- as JSON ------------------------------------------------------------------------------------------------

    def dump(self, value: Any) -> bytes:
        """A whole value."""
        return codec.encode(value.items() if self.grows else value)

    def dump_items(self, items: Sequence[Any]) -> bytes:
        """Appended items, as an array."""
        return codec.encode(list(items))

    def restore(self, whole: bytes | None, appended: Sequence[bytes] = ()) -> Any:
        """The value that was dumped, with the items that were appended after it."""
        if not self.grows:
            return codec.decode(whole or b"null", self.type_)
        items = list(codec.decode(whole, self.type_)) if whole is not None else []
        for part in appended:
            items += codec.decode(part, self.type_)
        return Grown(items)

    def dump_update(self, update: Any) -> bytes:
        """An update of a finished task."""
        return codec.encode(update)

    def load_update(self, data: bytes) -> Any:
        """The same again."""
        if self.reducer is None:
            return codec.decode(data, self.type_)
        return self._fit(codec.decode(data, self.reducer.update_type(self.type_)))

    @property
    def signature(self) -> str:
        """What the graph's fingerprint knows of it."""
        return f"{self.name}:{codec.type_name(self.type_)}:{self.reducer.name if self.reducer else ''}"
