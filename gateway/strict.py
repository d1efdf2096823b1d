"""What a route takes: known query parameters, a body that is strict JSON and says so, and a user's value byte for byte
as it was sent."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
from fastapi import Request, Response
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from ..topics.codec import why_not_json
from .errors import MalformedBody, UnknownParameter, UnsupportedMediaType

_decode = msgspec.json.Decoder().decode
_decode_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class StrictRequest(Request):
    """A request whose JSON must be JSON: no NaN, no Infinity, no lone surrogates, UTF-8."""

    async def json(self) -> Any:
        """The body. Raises MalformedBody."""
        body = await self.body()
        try:
            return _decode(body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise MalformedBody(f"the body is not JSON: {why_not_json(body, error)}") from error


class StrictRoute(APIRoute):
    """A route that refuses what it does not know, and reads its body strictly."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler, given strict requests."""
        handler = super().get_route_handler()
        known = sorted(_parameters(self.dependant))

        async def strict(request: Request) -> Response:
            _require_known(request, known)
            inner = StrictRequest(request.scope, request.receive)
            if self.body_field is not None:
                await _require_json(inner)
            return await handler(inner)

        return strict


def _parameters(dependant: Dependant) -> set[str]:
    """The query parameters of a route, those of its dependencies included."""
    own = {one.alias for one in dependant.query_params}
    return own.union(*(_parameters(one) for one in dependant.dependencies))


def _require_known(request: Request, known: list[str]) -> None:
    unknown = sorted(set(request.query_params) - set(known))
    if unknown:
        has = f"it has {', '.join(known)}" if known else "it has none"
        raise UnknownParameter(
            f"{request.url.path} has no query parameter {unknown[0][:80]!r}: {has}", unknown=unknown, known=known
        )


async def _require_json(request: StrictRequest) -> None:
    """A body says that it is JSON; without a body nothing needs to be said."""
    given = request.headers.get("content-type", "")
    kind = given.partition(";")[0].strip().lower()
    if kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json")):
        return
    if await request.body():
        what = f"says that it is {given[:80]!r}" if given else "does not say what it is"
        raise UnsupportedMediaType(f"the body {what}: send JSON, with the header Content-Type: application/json")


async def raw_field(request: Request, name: str) -> bytes:
    """One member of the body's object as it was sent (numbers keep their digits); `null` when absent."""
    fields: dict[str, msgspec.Raw] = _decode_fields(await request.body())
    return bytes(fields[name]) if name in fields else b"null"
