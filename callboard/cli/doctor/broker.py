"""The broker: its version, its account, its clock, and the streams as they should be."""

from __future__ import annotations

import time
from datetime import datetime
from typing import Any

from ...topics.bus import Bus
from ...topics.errors import BrokerError
from ...topics.server import JetStreamDisabled, ServerTooOld, require_server, require_version
from ...topics.streams import declarations
from ..wording import duration, masked, size
from .check import Check, note, ok, problem

SKEW_NOTE_S = 0.5
SKEW_PROBLEM_S = 5.0
FULL = 0.9
# What an operator may set otherwise without breaking anything.
_CHOICES = frozenset({"num_replicas", "max_bytes", "max_age", "storage"})
_IGNORED = frozenset({"metadata", "name"})


async def server(bus: Bus) -> list[Check]:
    """Version, API level, JetStream."""
    info = bus.server_info
    try:
        require_version(info)  # an old server may not answer what comes next
        account = await bus.api("INFO")
        require_server(info, account)
    except ServerTooOld as error:
        return [problem("server", error.message, "upgrade nats-server")]
    except (JetStreamDisabled, BrokerError) as error:
        return [problem("server", error.message, "enable JetStream (nats-server -js, or a jetstream block)")]
    level = (account or {}).get("api", {}).get("level", "?")
    where = masked(bus.settings.nats_url)
    text = (
        f"nats-server {info.get('version')} at {where}, JetStream API level {level}, "
        f"max_payload {size(bus.max_payload)}, values inline up to {size(bus.inline_limit)}"
    )
    return [ok("server", text), *_room(account or {})]


def _room(account: dict[str, Any]) -> list[Check]:
    limits = account.get("limits", {})
    found = []
    for kind, used, limit in (
        ("storage", account.get("storage", 0), limits.get("max_storage", -1)),
        ("memory", account.get("memory", 0), limits.get("max_memory", -1)),
    ):
        if limit > 0 and used / limit >= FULL:
            text = f"JetStream {kind} of the account: {size(used)} of {size(limit)} used"
            found.append(problem("room", text, "raise the limit, or let runs go: CALLBOARD_RETENTION_DAYS"))
    return found


async def streams(bus: Bus) -> list[Check]:
    """Each stream is there, is set up as declared, and has room."""
    found: list[Check] = []
    for wanted in declarations(bus.subjects, bus.settings):
        info = await bus.api(f"STREAM.INFO.{wanted['name']}", missing_ok=True)
        found += _stream(wanted, info)
    return found


def _stream(wanted: dict[str, Any], info: dict[str, Any] | None) -> list[Check]:
    name = f"stream {wanted['name']}"
    if info is None:
        return [problem(name, "is missing", "start a coordinator (callboard coordinator): it declares what is missing")]
    config, state = info["config"], info["state"]
    found = [_drift(name, key, value, config.get(key)) for key, value in wanted.items() if _differs(key, value, config)]
    found += _dropping(name, wanted, config)
    limit = config.get("max_bytes", -1)
    if limit > 0 and state["bytes"] / limit >= FULL:
        found.append(
            problem(
                name,
                f"is nearly full: {size(state['bytes'])} of {size(limit)}",
                "raise its max_bytes (nats stream edit)",
            )
        )
    found += _replicas(name, info)
    text = f"{state['messages']} messages, {size(state['bytes'])}, {state.get('num_subjects', 0)} subjects"
    return found or [ok(name, text)]


def _dropping(name: str, wanted: dict[str, Any], config: dict[str, Any]) -> list[Check]:
    """A stream that makes room by dropping what is oldest, though nothing has taken it: never as declared."""
    limits = [key for key in ("max_bytes", "max_msgs", "max_age") if config.get(key, -1) > 0]
    if wanted.get("retention") != "workqueue" or config.get("discard") != "old" or not limits:
        return []
    text = f"{' and '.join(limits)} with discard old: tasks that nobody has taken yet are dropped"
    return [problem(name, text, "take that limit away (nats stream edit); limit the server or the account instead")]


def _differs(key: str, value: Any, config: dict[str, Any]) -> bool:
    if key in _IGNORED:
        return False
    actual = config.get(key)
    if isinstance(value, dict):
        return not isinstance(actual, dict) or any(actual.get(name) != part for name, part in value.items())
    if isinstance(value, list):
        return sorted(value) != sorted(actual or [])
    return bool((actual or 0) != value) if isinstance(value, int) else bool(actual != value)


def _drift(name: str, key: str, value: Any, actual: Any) -> Check:
    text = f"{key} is {actual!r}, declared is {value!r}"
    if key in _CHOICES:
        return note(
            name, text, "fine if it is meant so; else set the CALLBOARD_ variable here, or nats stream edit there"
        )
    return problem(
        name, text, f"set it back: nats stream edit, or the JetStream API; {key} is what Callboard relies on"
    )


def _replicas(name: str, info: dict[str, Any]) -> list[Check]:
    cluster = info.get("cluster") or {}
    if not cluster.get("name") and not cluster.get("replicas"):
        return []
    if not cluster.get("leader"):
        return [problem(name, "has no leader", "start the servers that are down: more than half must run")]
    late = [one["name"] for one in cluster.get("replicas") or [] if one.get("offline") or not one.get("current")]
    return [problem(name, f"replicas not current: {', '.join(late)}", "look at those servers")] if late else []


async def clock(bus: Bus) -> list[Check]:
    """How far this machine's clock is from the server's."""
    before = time.time()
    info = await bus.api(f"STREAM.INFO.{bus.subjects.events}", missing_ok=True)
    after = time.time()
    stamp = (info or {}).get("ts")
    if not stamp:
        return []
    theirs = datetime.fromisoformat(f"{stamp[:26].rstrip('Z')}Z").timestamp()
    skew = max(theirs - after, before - theirs, 0.0)
    text = f"this machine is {duration(skew)} {'behind' if theirs > after else 'ahead of'} the server"
    if skew >= SKEW_PROBLEM_S:
        return [problem("clock", text, "synchronise both by NTP: delays and deadlines are computed from the clock")]
    if skew >= SKEW_NOTE_S:
        return [note("clock", text, "synchronise both by NTP")]
    return [ok("clock", f"{text}" if skew else "agrees with the server's")]
