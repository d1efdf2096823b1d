"""`Given`: the input of a run as it came over the wire, which a graph reads when it begins, and only then.

An execution that goes on from a checkpoint needs its input no more. What was right for the version that began the run
is not held against the one that takes it up.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from pydantic import AliasChoices, AliasPath, BaseModel

from ...topics import codec
from ...topics.errors import did_you_mean
from .compiled import Compiled
from .errors import UnknownChannel
from .schema import fields_of

_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


@dataclass(frozen=True, slots=True)
class Given:
    """An input as JSON, and the type as which it is read."""

    data: bytes | msgspec.Raw
    type_: Any

    def read(self, graph: Compiled) -> Any:
        """The input as its type. Raises DecodeError; UnknownChannel for a field that the graph does not take."""
        try:
            fields: Mapping[str, msgspec.Raw] = _object(self.data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return codec.decode(self.data, self.type_)  # which says what is wrong with it
        named = graph.schema.named_now(fields)
        _require_taken(graph, named, _keys(graph))
        return codec.decode(self.data if named is fields else msgspec.json.encode(named), self.type_)


def taken(graph: Compiled, input: Any) -> Any:
    """An input of this process, held to the same rule. Raises UnknownChannel."""
    if not isinstance(input, dict):
        return input
    named = graph.schema.named_now(input)
    _require_taken(graph, named, graph.schema.channels if graph.input_type is None else fields_of(graph.input_type))
    return named


def _require_taken(graph: Compiled, names: Iterable[str], known: Collection[str] | None) -> None:
    if known is None:
        return
    for name in names:
        if name not in known:
            cls = graph.input_type
            of = f"state {graph.schema.name}" if cls is None else codec.type_name(cls)
            raise UnknownChannel(
                f"the input names channel {name!r}, which {of} does not have{did_you_mean(name, known)}", channel=name
            )


def _keys(graph: Compiled) -> Collection[str] | None:
    """What an input may name in JSON; None: its class says itself what becomes of other names."""
    cls = graph.input_type
    if cls is None:
        return graph.schema.channels
    if issubclass(cls, BaseModel):
        return None if cls.model_config.get("extra") else frozenset(_of_model(cls))
    if issubclass(cls, msgspec.Struct):
        return frozenset((*cls.__struct_encode_fields__, cls.__struct_config__.tag_field or ""))
    return fields_of(cls)


def _of_model(cls: type[BaseModel]) -> Iterable[str]:
    for name, field in cls.model_fields.items():
        alias = field.validation_alias
        yield name
        for one in alias.choices if isinstance(alias, AliasChoices) else [alias]:
            if isinstance(one, AliasPath):
                yield str(one.path[0])
            elif one is not None:
                yield one
