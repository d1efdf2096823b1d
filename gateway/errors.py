"""What can be wrong with a request itself; each error knows its HTTP status.

GatewayError
├── MalformedBody        the body is not strict JSON (400)
├── InvalidRequest       a field or parameter does not have its form (422)
├── UnknownParameter     the path has no such query parameter (422)
├── UnsupportedMediaType the body is not said to be JSON (415)
├── BadRequest           the parts of the request contradict one another (400)
├── RouteNotFound        no such path (404)
├── MethodNotAllowed     the path has no such method (405)
├── BodyTooLarge         above the body limit (413)
├── ProjectionMissing    lists are asked for and there is no read model yet (503)
├── HttpRefused          any other refusal of the HTTP layer
└── InternalError        a defect; the log has the details (500)
"""

from __future__ import annotations

from typing import ClassVar

from ..topics.errors import CallboardError


class GatewayError(CallboardError):
    """Root of the errors of the HTTP edge."""

    code = "gateway_error"
    status: ClassVar[int] = 500


class MalformedBody(GatewayError):
    """The body is not JSON by RFC 8259: NaN, Infinity, lone surrogates and bytes that are not UTF-8 are refused."""

    code = "malformed_body"
    status = 400


class InvalidRequest(GatewayError):
    """A field or parameter does not have its form; `errors` lists where and what."""

    code = "invalid_request"
    status = 422


class UnknownParameter(GatewayError):
    """The path has no such query parameter. Facts: `unknown`, `known`."""

    code = "unknown_parameter"
    status = 422


class UnsupportedMediaType(GatewayError):
    """A body whose Content-Type is missing, or is not JSON."""

    code = "unsupported_media_type"
    status = 415


class BadRequest(GatewayError):
    """The parts of the request contradict one another."""

    code = "bad_request"
    status = 400


class RouteNotFound(GatewayError):
    """No such path."""

    code = "route_not_found"
    status = 404


class MethodNotAllowed(GatewayError):
    """The path exists and does not have this method."""

    code = "method_not_allowed"
    status = 405


class BodyTooLarge(GatewayError):
    """The request body is above the limit of this gateway."""

    code = "body_too_large"
    status = 413


class ProjectionMissing(GatewayError):
    """A list was asked for and there is no read model at the configured path yet."""

    code = "projection_missing"
    retryable = True
    status = 503


class HttpRefused(GatewayError):
    """Refused by the HTTP layer for a reason that has no code of its own."""

    code = "http_refused"


class InternalError(GatewayError):
    """A defect of the gateway: the details stand in its log, not in the answer."""

    code = "internal_error"
