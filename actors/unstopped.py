"""`Unstopped`: a call whose outcome can go through a future."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Unstopped:
    """Calls a function of an author's in a thread. A `StopIteration` (from a bare `next()`, say) comes out as a
    RuntimeError, as Python itself has it in coroutines: no future takes one, and who waits for it would wait for
    ever. So does a `GeneratorExit`, which in whoever waits would be taken for its own end."""

    __slots__ = ("_call",)

    def __init__(self, call: Callable[[], Any]) -> None:
        self._call = call

    def __call__(self) -> Any:  # noqa: D102  # the class says it
        try:
            return self._call()
        except StopIteration as error:
            raise RuntimeError("the function raised StopIteration: give next() a default, or catch it") from error
        except GeneratorExit as error:
            raise RuntimeError("the function raised GeneratorExit") from error
