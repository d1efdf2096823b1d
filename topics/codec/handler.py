"""The input and result types of a handler, read from its annotations."""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
import typing
from collections.abc import Callable, Iterator
from inspect import Parameter
from types import FrameType
from typing import Any

from .decode import check_type
from .errors import TypeNotCarried

_POSITIONAL = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


def handler_types(fn: Callable[..., Any]) -> tuple[Any, Any]:
    """Return (input type, result type) of `(ctx, input) -> result`, a function, method, partial or callable object.

    The input is the second positional parameter (the third if the first is `self` or `cls`); what is not annotated, or
    not there, is `Parameter.empty`. String annotations may name classes of the module and of the functions around the
    handler; only these two annotations are evaluated, so `ctx` may be typed by a name imported for type checkers alone.

    Raises TypeNotCarried if one does not resolve or cannot be read back, TypeError if the function cannot be called
    with a context and an input.
    """
    target = _function_of(fn)
    signature = _signature(fn)
    parameters = _own_parameters(signature, fn, target)
    _check_call(parameters, target)
    annotation = parameters[1].annotation if len(parameters) > 1 else Parameter.empty
    spaces = _namespaces(target)
    types = (
        _resolved(annotation, spaces, target, "the input"),
        _resolved(signature.return_annotation, spaces, target, "the result"),
    )
    for type_ in types:
        check_type(type_)
    return types


def _function_of(fn: Callable[..., Any]) -> Any:
    while isinstance(fn, functools.partial):
        fn = fn.func
    fn = inspect.unwrap(fn)
    if not inspect.isroutine(fn) and not inspect.isclass(fn):
        fn = type(fn).__call__
    return getattr(fn, "__func__", fn)


def _signature(fn: Callable[..., Any]) -> inspect.Signature:
    options: dict[str, Any] = {}
    if sys.version_info >= (3, 14):  # annotations are evaluated when asked for, and one of them may not resolve
        options["annotation_format"] = importlib.import_module("annotationlib").Format.FORWARDREF
    return inspect.signature(fn, **options)


def _own_parameters(signature: inspect.Signature, fn: Callable[..., Any], target: Any) -> list[Parameter]:
    parameters = [entry for entry in signature.parameters.values() if entry.kind in _POSITIONAL]
    in_class = "." in target.__qualname__.rpartition("<locals>.")[2]
    unbound = in_class and inspect.isfunction(fn) and parameters and parameters[0].name in ("self", "cls")
    return parameters[1:] if unbound else parameters


def _check_call(parameters: list[Parameter], target: Any) -> None:
    required = [entry.name for entry in parameters if entry.default is Parameter.empty]
    if not parameters:
        raise TypeError(f"{target.__qualname__} takes no context: declare it as (ctx, input) or (ctx)")
    if len(required) > 2:
        raise TypeError(f"{target.__qualname__} needs {', '.join(required)}: it is called with a context and one input")


def _namespaces(target: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return globals and locals for string annotations: those of the functions around, inner ones last."""
    found: dict[str, Any] = {}
    for frame in reversed(list(_frames_around(target))):
        found |= frame.f_locals
    names = getattr(getattr(target, "__code__", None), "co_freevars", ())
    for name, cell in zip(names, getattr(target, "__closure__", None) or (), strict=False):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # bound later than the handler is declared
            continue
    parameters = getattr(target, "__type_params__", ())
    return getattr(target, "__globals__", {}), found | {entry.__name__: entry for entry in parameters}


def _frames_around(target: Any) -> Iterator[FrameType]:
    """Yield the running frames of the functions and class bodies that the handler is being defined in."""
    frame = sys._getframe(1)  # noqa: SLF001 -- the only way to the locals of a function that is running
    while frame is not None:
        name = frame.f_code.co_qualname
        same_module = frame.f_globals is getattr(target, "__globals__", None)
        if same_module and (target.__qualname__.startswith((f"{name}.<locals>.", f"{name}."))):
            yield frame
        if frame.f_back is None:
            return
        frame = frame.f_back


def _resolved(annotation: Any, spaces: tuple[dict[str, Any], dict[str, Any]], target: Any, what: str) -> Any:
    if annotation is Parameter.empty or annotation is Any:
        return annotation
    holder = type("Holder", (), {"__annotations__": {"value": annotation}})
    try:
        return typing.get_type_hints(holder, *spaces, include_extras=True)["value"]
    except Exception as error:
        name = annotation if isinstance(annotation, str) else repr(annotation)
        raise TypeNotCarried(
            f"the annotation {name!r} of {what} of {target.__module__}.{target.__qualname__} does not "
            f"resolve: {error}. Define or import it before the handler, outside of TYPE_CHECKING.",
            type_name=name,
        ) from error
