"""Keys, their tokens and their partitions: the same on both sides of the wire, whoever publishes."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from callboard.actors.publication import key_headers, key_of, key_token, partition_of, publication, publish
from callboard.topics.bus import Bus
from callboard.topics.client import Message, head_bytes
from callboard.topics.subjects import PARTITIONS, Subjects

KEYS = [
    None,
    "a",
    "_",
    "a.b",
    "x y",
    "~tilde",
    "é",
    "line\nbreak",
    "*",
    ">",
    "k" * 65,
    "",
    *(f"key{n}" for n in range(60)),
]


async def test_the_server_computes_the_same_partition(bus: Bus) -> None:
    got: list[Message] = []
    await bus.subscribe(f"{bus.subjects.live}.topic.>", got.append)
    for key in KEYS:
        await publish(bus, "reviews", 1, key)
    async with asyncio.timeout(5):
        while len(got) < len(KEYS):
            await asyncio.sleep(0.01)
    for key, message in zip(KEYS, got, strict=True):
        token = key_token(key)
        assert message.subject == f"{bus.subjects.live}.topic.reviews.{partition_of(token)}.{token}"
        assert key_of(token, message.headers) == key


@given(st.one_of(st.none(), st.text()))
def test_every_key_has_one_token_and_comes_back(key: str | None) -> None:
    token = key_token(key)
    subject, headers = publication(Subjects("cb"), "reviews", key)
    assert subject == f"cb.topic.reviews.{token}"
    assert subject.count(".") == 3
    assert 0 <= partition_of(token) < PARTITIONS
    head = Message("", "", b"", head_bytes(headers)) if headers else Message("", "", b"", None)
    assert key_of(token, head.headers) == key
    assert key_headers(key, token) == {name: value for name, value in headers.items() if name != "traceparent"}


def test_a_foreign_header_that_is_no_json_is_no_reason_to_refuse() -> None:
    assert key_of("~x", {"Callboard-Topic-Key": "{"}) == "~x"
