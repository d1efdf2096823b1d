"""The application: routes, error handling, the limits around them, and the life of what stands behind."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from ..topics.config import BrokerSettings
from . import problems
from .config import GatewaySettings
from .desk import Desk
from .metrics import Metrics
from .middleware import Edge
from .models import Problem
from .routes import (
    agents,
    artifacts,
    attention,
    deadletters,
    effects,
    events,
    forks,
    interrupts,
    operations,
    pages,
    runs,
    schedules,
    states,
    threads,
)

_ROUTERS = (
    runs,
    forks,
    interrupts,
    effects,
    events,
    artifacts,
    states,
    threads,
    schedules,
    agents,
    attention,
    deadletters,
    operations,
    pages,
)


def create_app(settings: GatewaySettings | None = None, broker: BrokerSettings | None = None) -> FastAPI:
    """The gateway as an ASGI application; settings not given come from the environment.

    It starts also when NATS is away, and connects as soon as it can."""
    settings, broker = settings or GatewaySettings(), broker or BrokerSettings()
    metrics = Metrics()

    @asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        desk = Desk(settings, broker, metrics)
        app.state.desk = desk
        desk.start()
        try:
            yield
        finally:
            await desk.close()

    app = FastAPI(
        title="Callboard", version=version("callboard"), lifespan=life, docs_url=None, redoc_url=None,
        description="Durable runs of agents: create them, watch them, wait for them.",
        # newer releases record spans of every request, also of each look at /healthz: ours say what a task is about
        telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
    )  # fmt: skip
    app.add_middleware(Edge, metrics=metrics, body_limit=settings.body_limit)
    problems.install(app)
    for module in _ROUTERS:
        app.include_router(module.router)
    pages.mount(app)
    app.openapi = lambda: _schema(app)  # type: ignore[method-assign]  # FastAPI's documented way
    return app


def _schema(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document: every operation answers errors as a Problem."""
    if app.openapi_schema is None:
        schema = get_openapi(
            title=app.title,
            version=app.version,
            description=app.description,
            routes=app.routes,
            separate_input_output_schemas=False,
        )
        parts = schema["components"]["schemas"]
        for name in ("HTTPValidationError", "ValidationError"):
            parts.pop(name, None)
        parts["Problem"] = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
        content = {problems.MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
        for operations_of_path in schema["paths"].values():
            for operation in operations_of_path.values():
                operation["responses"].pop("422", None)
                operation["responses"]["default"] = {"description": "Any error", "content": content}
        app.openapi_schema = schema
    return app.openapi_schema
