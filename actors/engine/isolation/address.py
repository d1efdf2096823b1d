"""Where another process finds a function."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from ....topics.errors import InvalidInput


class Address(Struct, frozen=True):
    """A function at the top level of a module (or of a class there)."""

    module: str
    name: str
    """Its qualified name."""
    file: str | None = None
    """The module's file: for a module that was loaded under a name which no import finds."""

    @classmethod
    def of(cls, fn: Callable[..., Any]) -> Address:
        """The address of a function. Raises InvalidInput for what another process could not import."""
        module, name = getattr(fn, "__module__", None), getattr(fn, "__qualname__", None)
        if not inspect.isroutine(fn) or not module or not name:
            raise _refused(fn, "is no function: give a function, and what it needs as arguments")
        if "<" in name:
            raise _refused(fn, "is defined inside a function: move it to the top level of its module")
        if module == "__main__":
            raise _refused(fn, "stands in the script that was started: move it to a module that can be imported")
        if _found(sys.modules.get(module), name) is not fn:
            raise _refused(fn, f"is not what {module}.{name} is: only what is found under its own name can be called")
        return cls(module, name, getattr(sys.modules[module], "__file__", None))


def _found(start: Any, name: str) -> Any:
    for part in name.split("."):
        start = getattr(start, part, None)
    return start


def _refused(fn: Callable[..., Any], why: str) -> InvalidInput:
    name = getattr(fn, "__qualname__", None) or type(fn).__name__
    return InvalidInput(f'{name} cannot be called with isolate="process": it {why}')
