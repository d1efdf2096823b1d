"""The named results of a run."""

from __future__ import annotations

import re
from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Header, Response

from ...store.artifacts import Artifacts
from .. import models as out
from .. import translate
from ..desk import At, RunPath
from ..strict import StrictRoute

router = APIRouter(tags=["artifacts"], route_class=StrictRoute)

_WORD = r"[\w!#$&^.+-]{1,127}"
_MEDIA_TYPE = re.compile(rf"{_WORD}/{_WORD}(?:; ?[\w.-]{{1,64}}=[\w.+-]{{1,128}}){{0,4}}\Z", re.ASCII)
_INLINE = frozenset({"text/plain", "text/markdown", "text/csv", "application/json", "application/pdf"}) | {
    f"image/{kind}" for kind in ("png", "jpeg", "gif", "webp")
}


@router.get("/runs/{run}/artifacts", response_model=out.ArtifactList, summary="The artifacts of a run")
async def list_artifacts(run: RunPath, desk: At) -> out.ArtifactList:
    """The newest version of each, from the log."""
    await desk.link.log.require(run)
    found = await Artifacts(desk.link.bus, desk.blobs).list(run)
    return out.ArtifactList(artifacts=[translate.artifact(run, one) for one in found])


@router.get(
    "/runs/{run}/artifacts/{name:path}", summary="The content of an artifact", response_class=Response,
    responses={200: {"description": "The content, under its own media type", "content": {"*/*": {}}},
               304: {"description": "Not changed"}},
)  # fmt: skip
async def content(run: RunPath, name: str, desk: At, if_none_match: Annotated[str | None, Header()] = None) -> Response:
    """Served so that a browser does not run it: what is not plain is downloaded, nothing in it may load or script."""
    await desk.link.log.require(run)
    artifact, data = await Artifacts(desk.link.bus, desk.blobs).read(run, name)
    headers = {
        "etag": f'"{artifact.digest}"',
        "cache-control": "no-cache",
        "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; sandbox",
    }
    if if_none_match is not None and headers["etag"] in if_none_match:
        return Response(status_code=304, headers=headers)
    media_type = artifact.media_type if _MEDIA_TYPE.match(artifact.media_type) else "application/octet-stream"
    plain = media_type.partition(";")[0].strip().lower()
    headers["content-disposition"] = _disposition(name, inline=plain in _INLINE)
    headers["content-type"] = (
        f"{media_type}; charset=utf-8" if media_type.lower() == plain and _is_text(plain) else media_type
    )
    return Response(data, headers=headers)


def _is_text(media_type: str) -> bool:
    return media_type.startswith("text/")


def _disposition(name: str, *, inline: bool) -> str:
    """RFC 6266: an ASCII name for old clients, the real one beside it; neither can end the header or leave a folder."""
    last = name.rpartition("/")[2] or "artifact"
    plain = re.sub(r"[^A-Za-z0-9._ -]", "_", last)[:100]
    kind = "inline" if inline else "attachment"
    return f"{kind}; filename=\"{plain}\"; filename*=UTF-8''{quote(last[:200], safe='')}"
