"""Requests that are not quite right: each is refused with what was wrong, and what would be right."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from fastapi.routing import APIRoute

from callboard.gateway.app import _ROUTERS
from callboard.gateway.strict import StrictRoute
from callboard.topics.codec import why_not_json

PAGES = {"/", "/docs"}


def problem(answer: httpx.Response, status: int, code: str) -> dict[str, Any]:
    body: dict[str, Any] = answer.json()
    assert (answer.status_code, body["code"]) == (status, code), body
    assert answer.headers["content-type"] == "application/problem+json"
    return body


def test_every_route_is_strict() -> None:
    routes = [route for module in _ROUTERS for route in module.router.routes if isinstance(route, APIRoute)]
    assert {route.path for route in routes if not isinstance(route, StrictRoute)} == PAGES
    assert len(routes) > 20


@pytest.mark.parametrize(
    ("path", "known"),
    [
        ("/runs?agnet=x", "agent"),
        ("/runs/r/events?kind=state", "kinds"),
        ("/threads?lmit=1", "limit"),
        ("/schedules?all=1", "it has none"),
        ("/deadletters?after=3", "before"),
        ("/healthz?x=1", "it has none"),
    ],
)
async def test_an_unknown_parameter_is_refused_and_the_known_ones_are_named(
    http: httpx.AsyncClient, path: str, known: str
) -> None:
    body = problem(await http.get(path), 422, "unknown_parameter")
    name = path.partition("?")[2].partition("=")[0]
    assert f"{name!r}" in body["detail"]
    assert known in body["detail"]
    assert body["unknown"] == [name]


@pytest.mark.parametrize("kind", [None, "text/plain", "application/x-www-form-urlencoded"])
async def test_a_body_that_does_not_say_that_it_is_json(http: httpx.AsyncClient, kind: str | None) -> None:
    headers = {} if kind is None else {"content-type": kind}
    body = problem(await http.post("/runs", content=b'{"agent": "x"}', headers=headers), 415, "unsupported_media_type")
    assert "Content-Type: application/json" in body["detail"]
    if kind is not None:
        assert kind in body["detail"]


@pytest.mark.parametrize("kind", ["application/json; charset=utf-8", "Application/JSON", "application/vnd.x+json"])
async def test_json_by_its_other_names(http: httpx.AsyncClient, kind: str) -> None:
    answer = await http.post("/runs", content=b'{"agent": "nobody-serves"}', headers={"content-type": kind})
    assert answer.status_code == 202, answer.text


async def test_without_a_body_nothing_needs_to_be_said(http: httpx.AsyncClient) -> None:
    run = (await http.post("/runs", json={"agent": "nobody-serves"})).json()["run"]
    assert (await http.post(f"/runs/{run}/cancel")).status_code == 200


async def test_half_a_surrogate_pair_is_named_with_its_place(http: httpx.AsyncClient) -> None:
    sent = rb'{"agent": "x", "input": "\ud83d\ude00 and \ud800 alone"}'
    headers = {"content-type": "application/json"}
    body = problem(await http.post("/runs", content=sent, headers=headers), 400, "malformed_body")
    at = sent.index(rb"\ud800")
    assert rf"\ud800 at byte {at}" in body["detail"]
    assert "half of a surrogate pair" in body["detail"]


@pytest.mark.parametrize(
    ("body", "half"),
    [
        (rb'"\ud83d\ude00"', None),
        (rb'"\\ud800"', None),
        (rb'"\\\ud800"', rb"\ud800"),
        (rb'"\uDE00"', rb"\uDE00"),
        (rb'"\ud83d\ud83d\ude00"', rb"\ud83d"),
    ],
)
def test_what_is_half_a_pair(body: bytes, half: bytes | None) -> None:
    found = why_not_json(body, ValueError("as the decoder says"))
    assert found.startswith(half.decode()) if half else found == "as the decoder says"


async def test_metadata_filters_of_keys_with_colons(http: httpx.AsyncClient) -> None:
    labels = {"urn:team:x": "a:b", 'q"uote': "1", "plain": "c:d"}
    made = (await http.post("/runs", json={"agent": "nobody-serves", "metadata": labels})).json()["run"]
    newest = (await http.get(f"/runs/{made}")).json()["sequence"]
    for text in ('"urn:team:x":a:b', r'"q\"uote":1', 'q"uote:1', "plain:c:d", '"plain":c:d'):
        found = await http.get("/runs", params={"metadata": text, "min_sequence": newest})
        assert [run["id"] for run in found.json()["runs"]] == [made], text
    other = await http.get("/runs", params={"metadata": "urn:team:x:a:b", "min_sequence": newest})
    assert other.json()["runs"] == [], "the key ends at the first colon"
    for text in ('"urn:team:x', '"a"b:c', '"a"', ":x"):
        problem(await http.get("/runs", params={"metadata": text}), 422, "invalid_request")
