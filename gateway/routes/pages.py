"""Pages for people: the dashboard at `/` and the API's documentation at `/docs`. Nothing is loaded from elsewhere."""

from __future__ import annotations

from pathlib import Path

import fastapi_offline
from fastapi import APIRouter, FastAPI
from starlette.responses import FileResponse, Response
from starlette.staticfiles import StaticFiles

router = APIRouter(include_in_schema=False)

_STATIC = Path(__file__).parents[1] / "static"
_SWAGGER = Path(fastapi_offline.__file__).parent / "static"
_SELF = "default-src 'self'; img-src 'self' data:; style-src 'self' 'unsafe-inline'"
_POLICY = f"{_SELF}; frame-ancestors 'none'; base-uri 'none'"


@router.get("/")
async def dashboard() -> Response:
    """Runs with their live state, the tree of a run, its events."""
    return _page("index.html")


@router.get("/docs")
async def docs() -> Response:
    """The endpoints, to read and to try."""
    return _page("docs.html")


def _page(name: str) -> Response:
    headers = {"content-security-policy": _POLICY, "cache-control": "no-cache", "referrer-policy": "no-referrer"}
    return FileResponse(_STATIC / name, media_type="text/html", headers=headers)


def mount(app: FastAPI) -> None:
    """Puts the files behind the pages into the application."""
    app.mount("/static", StaticFiles(directory=_STATIC), name="static")
    app.mount("/docs/assets", StaticFiles(directory=_SWAGGER), name="swagger")
