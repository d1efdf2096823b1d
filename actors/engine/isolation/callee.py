"""The inside of a step's process: imports the function, calls it, says what became of it."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import inspect
import logging
import sys
import typing
from collections.abc import Callable
from io import TextIOWrapper
from typing import Any

import msgspec
from msgspec import Raw, Struct

from ....topics import codec
from .address import Address
from .exchange import Answer, Order, Raised

_decode_order = msgspec.json.Decoder(Order).decode


class _Call(Struct):
    args: list[Raw] = []
    kwargs: dict[str, Raw] = {}


def carry_out(data: bytes) -> bytes:
    """The answer to an order, both as they travel."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(line_buffering=True)
    logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s")
    order = _decode_order(data)
    try:
        sys.path[:] = order.path
        fn = _imported(order.address)
        args, kwargs = _arguments(fn, msgspec.json.decode(order.call, type=_Call))
        answer = Answer(result=Raw(codec.encode(_called(fn, args, kwargs))))
    except BaseException as error:  # noqa: BLE001  # whatever it is, it is told; the process ends after that
        answer = Answer(error=Raised.of(error))
    return msgspec.json.encode(answer)


def _called(fn: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> Any:
    result = fn(*args, **kwargs)
    if not inspect.isawaitable(result):
        return result

    async def awaited() -> Any:
        return await result

    return asyncio.run(awaited())


def _imported(address: Address) -> Callable[..., Any]:
    try:
        found: Any = importlib.import_module(address.module)
    except ModuleNotFoundError as error:
        if error.name != address.module or address.file is None:
            raise
        found = _from_file(address.module, address.file)
    for part in address.name.split("."):
        found = getattr(found, part)
    fn: Callable[..., Any] = found
    return fn


def _from_file(name: str, file: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError(f"no module can be made of {file}", name=name)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _arguments(fn: Callable[..., Any], call: _Call) -> tuple[list[Any], dict[str, Any]]:
    """The arguments, each as the type of its parameter."""
    types = _Types(fn)
    args = [codec.decode(value, types.at(index)) for index, value in enumerate(call.args)]
    return args, {name: codec.decode(value, types.named(name)) for name, value in call.kwargs.items()}


class _Types:
    def __init__(self, fn: Callable[..., Any]) -> None:
        try:
            self._hints = typing.get_type_hints(fn, include_extras=True)
        except Exception:  # noqa: BLE001  # annotations that do not resolve can raise anything: plain JSON then
            self._hints = {}
        try:
            self._parameters = list(inspect.signature(fn).parameters.values())
        except ValueError:  # a built-in that does not say
            self._parameters = []

    def at(self, index: int) -> Any:
        ordered = [one for one in self._parameters if one.kind not in (one.KEYWORD_ONLY, one.VAR_KEYWORD)]
        rest = [one for one in ordered if one.kind is one.VAR_POSITIONAL]
        found = [*ordered[index : index + 1], *rest]
        return self._hints.get(found[0].name, Any) if found else Any

    def named(self, name: str) -> Any:
        named = [one.name for one in self._parameters if one.kind in (one.KEYWORD_ONLY, one.POSITIONAL_OR_KEYWORD)]
        rest = [one.name for one in self._parameters if one.kind is one.VAR_KEYWORD]
        found = [name] if name in named else rest
        return self._hints.get(found[0], Any) if found else Any
