"""Settings: from the environment, with what the command line says on top.

Where no server is named at all, the one that `callboard dev` runs in this folder is taken, if it runs.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from ..topics.errors import InvalidInput

if TYPE_CHECKING:
    from pydantic_settings import BaseSettings

    from ..topics.config import BrokerSettings

    S = TypeVar("S", bound=BaseSettings)

STATE = Path(".callboard")
"""Where `callboard dev` keeps its state."""
_QUICK_CONNECT_S = 3.0


@dataclass(frozen=True, slots=True)
class Globals:
    """The options that every command has."""

    nats_url: str | None = None
    namespace: str | None = None
    verbose: int = 0


class DevRecord(msgspec.Struct, frozen=True, kw_only=True):
    """`.callboard/dev.json`: where the parts of a running `callboard dev` are."""

    pid: int
    started: str
    """With the pid it names the process for certain."""
    nats_url: str
    namespace: str = "cb"
    gateway_url: str = ""


def dev_record(state: Path = STATE) -> DevRecord | None:
    """The record of the `callboard dev` that runs on this state folder; None when none does."""
    from ..runtime.nats_mark import ProcessMark

    try:
        record = msgspec.json.decode((state / "dev.json").read_bytes(), type=DevRecord)
    except (OSError, msgspec.MsgspecError):
        return None
    return record if ProcessMark(record.pid, record.started).alive else None


def load(kind: type[S], **overrides: Any) -> S:
    """Settings of one kind; overrides that are None count as not given. Raises InvalidInput, naming the variable."""
    from pydantic import ValidationError

    try:
        return kind(**{name: value for name, value in overrides.items() if value is not None})
    except ValidationError as error:
        prefix = str(kind.model_config.get("env_prefix", ""))
        found = "; ".join(f"{_variable(prefix, one['loc'])}: {one['msg']}" for one in error.errors())
        raise InvalidInput(f"bad settings: {found}") from error


def _variable(prefix: str, where: tuple[int | str, ...]) -> str:
    name = ".".join(str(part) for part in where).upper()
    return name if name.startswith("NATS_") else f"{prefix}{name}"


def broker_settings(chosen: Globals, *, quick: bool = False) -> BrokerSettings:
    """How to reach the broker. `quick` gives up connecting after three seconds unless the environment says how long."""
    from ..topics.config import BrokerSettings

    url, namespace = chosen.nats_url, chosen.namespace
    if url is None and not os.environ.get("NATS_URL"):
        record = dev_record()
        if record is not None:
            url = record.nats_url
            namespace = namespace or os.environ.get("CALLBOARD_NAMESPACE") or record.namespace
    settings = load(BrokerSettings, nats_url=url, namespace=namespace)
    if quick and "connect_timeout_s" not in settings.model_fields_set:
        return settings.model_copy(update={"connect_timeout_s": _QUICK_CONNECT_S})
    return settings
