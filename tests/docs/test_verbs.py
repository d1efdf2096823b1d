"""The table of docs/wire-protocol.md that says from where each verb can be said is true, and lists every verb."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from callboard.gateway import create_app
from callboard.topics.bus import Bus
from callboard.topics.config import BrokerSettings
from callboard.topics.errors import InvalidMessage
from tests.actors.company import company
from tests.test_docs import command_line

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "wire-protocol.md").read_text(encoding="utf-8")
_ROW = re.compile(r"^\| (\w+) \| (`cb\.[^|]+) \| (`[A-Z]+ [^|]+) \| (`callboard [^|]+) \|$", re.MULTILINE)
_ASKED = {"create", "watch", "interrupt", "cancel", "resume", "retry", "fork"}
_BETWEEN_PARTS = {
    "outcome", "child", "due", "wake", "interrupt_due", "cancel_deadline", "deadline", "starved", "sweep",
}  # fmt: skip


async def verbs(settings: BrokerSettings, bus: Bus) -> set[str]:
    """Those that a coordinator knows, as it says itself to whoever asks for another one."""
    async with company(settings, bus, []) as all_:
        with pytest.raises(InvalidMessage, match="known are") as caught:
            await all_.submitter.command("some-run", "dance")
    return set(caught.value.message.partition("known are ")[2].split(", "))


async def test_every_verb_is_said_over_each_of_nats_http_and_the_command_line(
    settings: BrokerSettings, bus: Bus
) -> None:
    rows = _ROW.findall(PAGE)
    assert {verb for verb, *_ in rows} >= _ASKED
    routes = {
        f"{method.upper()} {path}" for path, methods in create_app().openapi()["paths"].items() for method in methods
    }
    commands = {path for path, _ in command_line()}
    durable = set()
    for _, subjects, http, line in rows:
        durable |= set(re.findall(r"cb\.cmd\.\{run\}\.(\w+)", subjects))
        assert set(re.findall(r"`([A-Z]+ [^`]+)`", http)) <= routes
        assert set(re.findall(r"`(callboard [^`]+)`", line)) <= commands
    assert durable | {"fail"} | _BETWEEN_PARTS == await verbs(settings, bus)
