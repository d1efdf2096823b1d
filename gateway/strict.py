"""Reading request bodies: strict JSON, and a user's value byte for byte as it was sent."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
from fastapi import Request, Response
from fastapi.routing import APIRoute

from .errors import MalformedBody

_decode = msgspec.json.Decoder().decode
_decode_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class StrictRequest(Request):
    """A request whose JSON must be JSON: no NaN, no Infinity, no lone surrogates, UTF-8."""

    async def json(self) -> Any:
        """The body. Raises MalformedBody."""
        try:
            return _decode(await self.body())
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise MalformedBody(f"the body is not JSON: {error}") from error


class StrictRoute(APIRoute):
    """A route that reads its body strictly."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler, given strict requests."""
        handler = super().get_route_handler()

        async def strict(request: Request) -> Response:
            return await handler(StrictRequest(request.scope, request.receive))

        return strict


async def raw_field(request: Request, name: str) -> bytes:
    """One member of the body's object as it was sent (numbers keep their digits); `null` when absent."""
    fields: dict[str, msgspec.Raw] = _decode_fields(await request.body())
    return bytes(fields[name]) if name in fields else b"null"
