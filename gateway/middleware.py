"""Around every request: the limit of its body, the time it takes, and headers that keep browsers careful."""

from __future__ import annotations

import time

from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .errors import BodyTooLarge
from .metrics import Metrics
from .problems import problem

_UNTIMED = ("/runs/{run}/events", "/runs/{run}/wait")


class Edge:
    """Pure ASGI, so that streams pass through without a task or a queue between."""

    def __init__(self, app: ASGIApp, metrics: Metrics, body_limit: int) -> None:
        self._app, self._metrics, self._limit = app, metrics, body_limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request; other kinds of connections pass through."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status = 500
        began = time.perf_counter()

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message).setdefault("x-content-type-options", "nosniff")
            await send(message)

        try:
            if self._declared(scope) > self._limit:
                refusal = problem(self._too_large(), scope["path"])
                await refusal(scope, receive, watched)
            else:
                await self._app(scope, self._limited(receive), watched)
        finally:
            route = getattr(scope.get("route"), "path", "none")
            if route not in _UNTIMED:
                self._metrics.requests.labels(_method(scope), route, str(status)).observe(time.perf_counter() - began)

    def _limited(self, receive: Receive) -> Receive:
        taken = 0

        async def limited() -> Message:
            nonlocal taken
            message = await receive()
            taken += len(message.get("body", b""))
            if taken > self._limit:
                raise HTTPException(413, self._too_large().message) from self._too_large()
            return message

        return limited

    def _too_large(self) -> BodyTooLarge:
        return BodyTooLarge(f"the body is above this gateway's limit of {self._limit} bytes", limit=self._limit)

    @staticmethod
    def _declared(scope: Scope) -> int:
        for name, text in scope["headers"]:
            if name == b"content-length" and text.isdigit():
                return int(text)
        return 0


def _method(scope: Scope) -> str:
    """The method; one name for all that HTTP does not know, so that labels stay few."""
    method: str = scope["method"]
    return method if method in {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"} else "OTHER"
