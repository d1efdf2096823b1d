"""Names of a package that are loaded when they are first used.

An `__init__` that imports what it offers makes every import of one module beneath it pay for all of them: a command
that prints a version would load the connection and what it stands on, which takes half a second. So the rooms and
the façade list their names, and where each lives:

    from .lazy import lazy as _lazy

    if TYPE_CHECKING:
        from .bus import Bus

    __all__ = ["Bus"]
    __getattr__, __dir__ = _lazy(__name__, {".bus": "Bus"})

A name that a module of the same package has too (`actors.agent`) cannot be loaded so: the module is found first.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy(package: str, where: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The `__getattr__` and `__dir__` of a package whose names live in these modules (PEP 562).

    `where` gives for each module, relative to the package, its names with spaces between them. A name that is
    not listed raises AttributeError, as ever."""
    modules = {name: module for module, listed in where.items() for name in listed.split()}

    def load(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(modules[name], package), name)
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *modules})

    return load, names
