"""Every error leaves as `application/problem+json` (RFC 9457): a stable `code`, the facts, never a stack trace."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import msgspec
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Match

from ..store.errors import BlobMissing, CheckpointKeyMissing, CheckpointMissing
from ..store.projection import ProjectionError
from ..topics import errors as wire
from .errors import (
    BadRequest,
    BodyTooLarge,
    GatewayError,
    HttpRefused,
    InternalError,
    InvalidRequest,
    MethodNotAllowed,
    RouteNotFound,
)

log = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"
_MEMBERS = frozenset({"type", "title", "status", "detail", "code", "instance", "retryable"})
_METHODS = ("DELETE", "GET", "PATCH", "POST", "PUT")
_RETRY_AFTER_S = 1
# The first class that matches gives the status; the order is from the special to the general.
_STATUS: tuple[tuple[type[wire.CallboardError], int], ...] = (
    (wire.InvalidInput, 400),
    (CheckpointMissing, 410),
    (wire.NotFound, 404),
    (wire.Conflict, 409),
    (wire.PayloadTooLarge, 413),
    (wire.StorageFull, 507),
    (wire.StaleFence, 409),
    (wire.BrokerError, 503),
    (BlobMissing, 410),
    (CheckpointKeyMissing, 501),
    (ProjectionError, 503),
)


def status_of(error: wire.CallboardError) -> int:
    """The HTTP status of an error."""
    if isinstance(error, HttpRefused):
        return int(error.facts.get("http_status", 500))
    if isinstance(error, GatewayError):
        return error.status
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 503 if error.retryable else 500)


def problem(error: wire.CallboardError, instance: str, headers: Mapping[str, str] | None = None) -> Response:
    """The answer that tells of `error`; `instance` is the path that was asked for."""
    status = status_of(error)
    code = error.code
    body = {key: value for key, value in error.facts.items() if key not in _MEMBERS and key != "http_status"} | {
        "type": f"urn:callboard:error:{code}",
        "title": code.replace("_", " ").capitalize(),
        "status": status,
        "detail": error.message,
        "code": code,
        "instance": instance,
        "retryable": error.retryable,
    }
    head = dict(headers or {})
    if status == 503:
        head.setdefault("retry-after", str(_RETRY_AFTER_S))
    return Response(msgspec.json.encode(body, enc_hook=str), status, head, MEDIA_TYPE)


def install(app: FastAPI) -> None:
    """Puts the handlers of all kinds of errors into the application."""
    app.add_exception_handler(wire.CallboardError, _on_callboard)
    app.add_exception_handler(RequestValidationError, _on_validation)
    app.add_exception_handler(HTTPException, _on_http)
    app.add_exception_handler(Exception, _on_defect)


async def _on_callboard(request: Request, error: Exception) -> Response:
    assert isinstance(error, wire.CallboardError)
    if status_of(error) >= 500:
        log.warning("%s %s: %s", request.method, request.url.path, error)
    return problem(error, request.url.path)


async def _on_validation(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    found = [{"where": _where(one["loc"]), "what": one["msg"].removeprefix("Value error, ")} for one in error.errors()]
    text = "; ".join(f"{one['where']}: {one['what']}" for one in found[:3])
    return problem(
        InvalidRequest(f"the request does not have the form it needs: {text}", errors=found), request.url.path
    )


def _where(location: tuple[int | str, ...]) -> str:
    """The path to what is wrong. Of alternatives the framework adds how it checks them, which nobody has sent."""
    return ".".join(part for part in map(str, location) if "[" not in part)


async def _on_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if isinstance(error.__cause__, wire.CallboardError):  # raised while the framework read the body
        return problem(error.__cause__, request.url.path, error.headers)
    path, method = request.url.path, request.method
    headers = {**(error.headers or {})}
    if error.status_code == 405:
        headers["Allow"] = _allowed(request)
    kinds: dict[int, GatewayError] = {
        400: BadRequest(str(error.detail)),
        404: RouteNotFound(f"there is nothing at {path}: /docs lists what there is"),
        405: MethodNotAllowed(f"{path} has no method {method}", allow=headers.get("Allow", "")),
        413: BodyTooLarge(str(error.detail)),
    }
    known = kinds.get(error.status_code) or HttpRefused(str(error.detail), http_status=error.status_code)
    return problem(known, path, headers)


def _allowed(request: Request) -> str:
    """The methods of a path. Each has a route of its own, and the framework names those of the first alone."""
    asked = ({**request.scope, "method": method} for method in _METHODS)
    routes = request.app.routes
    return ", ".join(one["method"] for one in asked if any(it.matches(one)[0] is Match.FULL for it in routes))


async def _on_defect(request: Request, error: Exception) -> Response:
    log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return problem(InternalError("the gateway failed on this request: its log has the details"), request.url.path)
