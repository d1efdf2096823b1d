"""Requests to the coordinators, which outlive the one that has them in hand.

The broker gives a request to one of those that serve it. If that one dies, or stands still, no answer comes, and
nobody says so. So a request is sent again while it waits for its answer, under the same reply subject: whoever answers
first is heard, and a slow coordinator's answer is not thrown away. One that still has the request in hand drops the
copy. All requests of `cb.rpc.…` may be carried out twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from .bus import Bus, settle_request
from .client import Message
from .errors import Unavailable

AGAIN_S = 1.0
"""Much longer than an answer takes, so that copies are sent only when something is wrong; each pause is twice the one
before, so that a coordinator which has too much to do is not given more."""


async def ask(bus: Bus, verb: str, data: bytes, timeout_s: float, again: Callable[[], bytes] | None = None) -> Message:
    """The answer to a request on `cb.rpc.{verb}`. `again` gives the body of the copies, where that is another one.

    Raises NoResponders when no coordinator is there, Unavailable after `timeout_s` seconds or when the connection is
    lost; the request may have been carried out."""
    subject = f"{bus.subjects.rpc}.{verb}"
    future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
    async with bus.call(subject, data, None, partial(settle_request, future, subject)) as reply:
        copies = _Copies(lambda: bus.publish(subject, again() if again else data, reply=reply))
        try:
            async with asyncio.timeout(timeout_s):
                return await future
        except TimeoutError:
            raise Unavailable(f"no answer on {subject} within {timeout_s:g} s", subject=subject) from None
        finally:
            copies.stop()


class _Copies:
    """Sends again, and again, until it is stopped."""

    def __init__(self, send: Callable[[], None]) -> None:
        self._send, self._pause_s = send, AGAIN_S
        self._timer = asyncio.get_running_loop().call_later(self._pause_s, self._next)

    def _next(self) -> None:
        self._send()
        self._pause_s *= 2
        self._timer = asyncio.get_running_loop().call_later(self._pause_s, self._next)

    def stop(self) -> None:
        self._timer.cancel()
