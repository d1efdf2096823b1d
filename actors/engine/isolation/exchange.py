"""What the worker and the process of a step say to each other."""

from __future__ import annotations

import sys
from typing import Any

import msgspec
from msgspec import Raw, Struct

from ....store.errors import info_of, trace_of
from ....topics.errors import CallboardError
from ....topics.messages import ErrorInfo
from ...agent import Terminal
from ..caller import quitting
from ..errors import StepRaised
from .address import Address

_TRACE_CHARS = 4000


class Order(Struct, frozen=True):
    """What is to be called."""

    address: Address
    path: list[str]
    """The worker's `sys.path`."""
    call: Raw
    """`{"args": […], "kwargs": {…}}`."""


class Answer(Struct, frozen=True, omit_defaults=True):
    """What became of it: `result`, or `error`."""

    result: Raw = Raw(b"null")
    error: Raised | None = None


class Raised(Struct, frozen=True, omit_defaults=True):
    """An exception as data."""

    module: str
    name: str
    info: ErrorInfo
    args: list[Any] | None = None
    """Its arguments, if JSON carries them."""
    quits: bool = False
    """It was to end the process (`sys.exit`)."""

    @classmethod
    def of(cls, error: BaseException) -> Raised:
        """What is told of an exception."""
        kind = type(error)
        info = msgspec.structs.replace(info_of(error), traceback=trace_of(error, _TRACE_CHARS))
        quits = isinstance(error, SystemExit | KeyboardInterrupt)
        if isinstance(error, SystemExit | KeyboardInterrupt):
            info = msgspec.structs.replace(info, message=quitting(error))
        return cls(kind.__module__, kind.__qualname__, info, _carried(error.args), quits)

    def revived(self) -> Exception:
        """The exception again, of its own class if this process has it loaded and it can be made anew; otherwise
        StepRaised, which names the class. Its note has the traceback of the other process."""
        error = self._terminal() if self.quits else self._own() or self._other()
        error.add_note(f"In the step's process:\n{self.info.traceback}")
        return error

    def _terminal(self) -> Exception:
        return Terminal(f"the step's function {self.info.message}")

    def _other(self) -> Exception:
        return StepRaised(f"{self.name}: {self.info.message}", type=f"{self.module}.{self.name}")

    def _own(self) -> Exception | None:
        kind = _class(self.module, self.name)
        if kind is None:
            return None
        try:
            return self._callboards(kind) if issubclass(kind, CallboardError) else self._made(kind)
        except Exception:  # noqa: BLE001  # the class is the author's, and may want anything of whoever makes one
            return None

    def _callboards(self, kind: type[CallboardError]) -> Exception:
        error = kind.__new__(kind)
        CallboardError.__init__(error, self.info.message, **(self.info.details or {}))
        return error

    def _made(self, kind: type[Exception]) -> Exception | None:
        ways = [[self.info.message]] if self.args is None else [self.args, [self.info.message]]
        for args in ways:
            error = kind(*args)
            if (str(error) or kind.__name__) == self.info.message:
                return error
        return None


def _carried(args: tuple[Any, ...]) -> list[Any] | None:
    try:
        same: list[Any] = msgspec.json.decode(msgspec.json.encode(args))
        return same if tuple(same) == args else None
    except (TypeError, ValueError, RecursionError):
        return None


def _class(module: str, name: str) -> type[Exception] | None:
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found if isinstance(found, type) and issubclass(found, Exception) else None
