"""Functions that are called in a process of their own, and those that one attempt has under way."""

from __future__ import annotations

import asyncio
import inspect
import logging
import sys
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Raw

from ....topics import codec
from ..errors import AttemptEnded, StepProcessFailed
from ..tenure import Tenure
from .address import Address
from .exchange import Answer, Order
from .group import Group

_decode = msgspec.json.Decoder(Answer).decode


class Isolation:
    """The processes of one attempt. `slots` bounds those of all attempts of a worker; `logger` gets what they print."""

    def __init__(self, slots: asyncio.Semaphore, logger: logging.LoggerAdapter[logging.Logger], tenure: Tenure) -> None:
        self._slots, self._logger, self._tenure = slots, logger, tenure
        self._groups: set[Group] = set()
        self._ended = False

    async def call(self, address: Address, call: bytes) -> Raw:
        """The result, as JSON, of a function called with `{"args": […], "kwargs": {…}}`.

        When this is cancelled, or the attempt is over, the process group is killed. Raises what the function raises,
        StepProcessFailed when its process dies."""
        order = msgspec.json.encode(Order(address, [entry for entry in sys.path if entry], Raw(call)))
        async with self._slots:
            await self._tenure.confirm()
            self._require_open()
            group = await Group.begun(order, self._say)
            self._groups.add(group)
            try:
                self._require_open()
                status, data = await group.answer()
            finally:
                self._groups.discard(group)
                await group.closed()
        self._require_open()
        return self._result(address, status, data)

    def _require_open(self) -> None:
        if self._ended:
            raise AttemptEnded("the attempt has ended: the processes of its steps are killed")

    def _result(self, address: Address, status: int | None, data: bytes) -> Raw:
        if not data:
            raise StepProcessFailed(f"the process of {address.name} {_end_of(status)} before it had a result")
        answer = _decode(data)
        if answer.error is not None:
            raise answer.error.revived()
        return answer.result

    def _say(self, stream: int, line: str) -> None:
        self._logger.log(logging.INFO if stream == 1 else logging.WARNING, "%s", line)

    def end(self) -> None:
        """Kills what is under way, and lets nothing begin any more."""
        self._ended = True
        for group in list(self._groups):
            group.end()


class Isolated:
    """A function, to be called in a process of its own. Raises InvalidInput for one that no other process can find."""

    def __init__(self, fn: Callable[..., Any], isolation: Isolation) -> None:
        self._fn, self._isolation = fn, isolation
        self._address = Address.of(fn)

    async def __call__(self, *args: Any, **kwargs: Any) -> Raw:
        """The result as JSON. Raises TypeError for arguments that the function does not take, EncodeError for those
        that cannot be carried; see `Isolation.call`."""
        try:
            signature = inspect.signature(self._fn)
        except ValueError:  # a built-in that does not say
            pass
        else:
            signature.bind(*args, **kwargs)
        return await self._isolation.call(self._address, codec.encode({"args": list(args), "kwargs": kwargs}))


def _end_of(status: int | None) -> str:
    if status is None:
        return "was killed together with its guardian"
    return f"was killed by signal {-status}" if status < 0 else f"ended with exit code {status}"
