"""The streams: their declaration, and how they come to be.

| stream | subjects | retention; where it is republished |
| --- | --- | --- |
| INBOX | `cb.task.*`, `cb.cmd.>`, `cb.timer.>` | work queue, message schedules |
| WORK | `cb.work.*`, `cb.work.*.*.*` (what waits at a gate), `cb.hook.*` | work queue |
| EVENTS | `cb.run.>`, `cb.thread.>`, `cb.agent.*`, `cb.schedule.*`, `cb.attention.*.*` | limits; `cb.live.>` |
| | `cb.label.*.*` | |
| TOPICS | `cb.topic.*.*`, stored as `cb.topic.{topic}.{partition}.{key}` | limits; `cb.live.topic.>` |
| ACTORS | `cb.actor.*.*`, `cb.webhook.*`, `cb.gate.*` | the last message of each subject |
| DEAD | `cb.dead.*` | limits; `cb.live.dead.>` |
"""

from __future__ import annotations

import logging
import secrets
from typing import Any

from .bus import Bus
from .config import BrokerSettings
from .errors import BrokerError
from .server import require_server
from .subjects import PARTITIONS, Subjects
from .units import nanoseconds

_PAIRS = ("attention.*.*", "label.*.*")
_DAY_S = 86_400
_EXISTS = 10058
_ABILITIES = ("allow_msg_ttl", "allow_msg_schedules")

log = logging.getLogger(__name__)


def declarations(subjects: Subjects, settings: BrokerSettings) -> list[dict[str, Any]]:
    """The configuration of every stream, as the JetStream API takes it."""
    ns = subjects.namespace
    common: dict[str, Any] = {
        "storage": settings.storage,
        "num_replicas": settings.replicas,
        "max_bytes": settings.max_bytes or -1,
        "discard": "new",
        "allow_direct": True,
    }
    kept = {"retention": "limits", "max_age": nanoseconds(settings.retention_days * _DAY_S)}
    return [
        common
        | {
            "name": subjects.inbox,
            "subjects": [f"{ns}.task.*", f"{ns}.cmd.>", f"{ns}.timer.>"],
            "retention": "workqueue",
            # The server takes schedules only with `discard: old`; without a limit of its own nothing is discarded, and
            # a full disk or account still refuses the publish.
            "discard": "old",
            "max_bytes": -1,
            "allow_msg_schedules": True,
            "allow_msg_ttl": True,
            "metadata": {subjects.salt_key: secrets.token_hex(16)},
        },
        common
        | {
            "name": subjects.work_stream,
            "subjects": [f"{ns}.work.*", f"{ns}.work.*.*.*", f"{ns}.hook.*"],
            "retention": "workqueue",
        },
        common
        | kept
        | {
            "name": subjects.events,
            "subjects": [f"{ns}.{one}" for one in ("run.>", "thread.>", "agent.*", "schedule.*", *_PAIRS)],
            "allow_msg_ttl": True,  # what says `never` outlives the retention
            "republish": {"src": f"{ns}.>", "dest": f"{ns}.live.>"},
        },
        common
        | kept
        | {
            "name": subjects.topics,
            "subjects": [f"{ns}.topic.*.*"],
            "subject_transform": {
                "src": f"{ns}.topic.*.*",
                "dest": f"{ns}.topic.{{{{wildcard(1)}}}}.{{{{partition({PARTITIONS},2)}}}}.{{{{wildcard(2)}}}}",
            },
            "republish": {"src": f"{ns}.topic.>", "dest": f"{ns}.live.topic.>"},
        },
        common
        | {
            "name": subjects.actors,
            "subjects": [f"{ns}.actor.*.*", f"{ns}.webhook.*", f"{ns}.gate.*"],
            "max_msgs_per_subject": 1,
        },
        common
        | kept
        | {
            "name": subjects.dead,
            "subjects": [f"{ns}.dead.*"],
            "republish": {"src": f"{ns}.dead.*", "dest": f"{ns}.live.dead.{{{{wildcard(1)}}}}"},
        },
    ]


async def ensure_streams(bus: Bus, settings: BrokerSettings) -> None:
    """Creates the streams that do not exist yet; an existing stream is left as its operator configured it, but for
    subjects and abilities that it lacks because an older version made it: those are added.

    Also gives the bus the installation's secret, kept in the INBOX stream's metadata. Safe to run by many at once.
    Raises ServerTooOld, JetStreamDisabled for a server that cannot have them."""
    require_server(bus.server_info)
    for config in declarations(bus.subjects, settings):
        name = config["name"]
        info = await bus.api(f"STREAM.INFO.{name}", missing_ok=True)
        if info is None:
            info = await _create(bus, config)
        elif (lacking := _lacking(config, info["config"])) is not None:
            info = await bus.api(f"STREAM.UPDATE.{name}", lacking) or info
            log.info("stream %s was made by an older version: its configuration is completed", name)
        if name == bus.subjects.inbox:
            bus.salt = (info["config"].get("metadata") or {}).get(bus.subjects.salt_key, bus.subjects.namespace)
        elif name == bus.subjects.events:
            bus.replicas = int(info["config"].get("num_replicas", 1))


def _lacking(wanted: dict[str, Any], found: dict[str, Any]) -> dict[str, Any] | None:
    """The configuration of a stream with what it lacks; None when it lacks nothing."""
    here: list[str] = found.get("subjects") or []
    subjects = [one for one in wanted["subjects"] if not any(_covers(wide, one) for wide in here)]
    abilities: dict[str, Any] = {name: True for name in _ABILITIES if wanted.get(name) and not found.get(name)}
    if wanted.get("republish") and not found.get("republish"):
        abilities["republish"] = wanted["republish"]
    if not subjects and not abilities:
        return None
    kept = [one for one in here if not any(_covers(new, one) for new in subjects)]
    return found | abilities | {"subjects": kept + subjects}


def _covers(wide: str, subject: str) -> bool:
    """Whether every subject that `subject` stands for is one of those of `wide`."""
    patterns, tokens = wide.split("."), subject.split(".")
    for place, pattern in enumerate(patterns):
        if pattern == ">":
            return len(tokens) > place
        if place >= len(tokens) or tokens[place] == ">" or pattern not in ("*", tokens[place]):
            return False
    return len(patterns) == len(tokens)


async def _create(bus: Bus, config: dict[str, Any]) -> dict[str, Any]:
    try:
        created = await bus.api(f"STREAM.CREATE.{config['name']}", config)
    except BrokerError as error:
        if error.facts.get("err_code") != _EXISTS:  # another process was faster, with another salt
            raise
        created = await bus.api(f"STREAM.INFO.{config['name']}")
    assert created is not None
    return created
