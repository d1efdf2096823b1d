"""Whether a nats-server is new enough for the streams: asked of every connection before they are declared.

JetStream API level 2 came with nats-server 2.12: message schedules (durable timers) and `api_lvl` in INFO.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from .errors import BrokerError

MINIMUM_API_LEVEL = 2
_VERSION = re.compile(r"v?(\d+)\.(\d+)(?:\.(\d+))?")


class Version(NamedTuple):
    """A nats-server version; a pre-release counts as its release."""

    major: int
    minor: int
    patch: int = 0

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}.{self.patch}"

    @classmethod
    def parse(cls, text: str) -> Version | None:
        """Return the first version number in `text`, None when there is none."""
        found = _VERSION.search(text)
        if found is None:
            return None
        major, minor, patch = found.groups()
        return cls(int(major), int(minor), int(patch or 0))


MINIMUM_VERSION = Version(2, 12)


class ServerTooOld(BrokerError):
    """The nats-server lacks what the streams need. Facts: `found`, `needed`, `where`; for a level also `level`."""

    code = "server_too_old"


class JetStreamDisabled(BrokerError):
    """The server or the account that was connected to has no JetStream. Facts: `server`."""

    code = "jetstream_disabled"


def require_server(info: Mapping[str, Any], account: Mapping[str, Any] | None = None) -> None:
    """Check a server that was connected to; both arguments are the decoded JSON as the server sent it.

    `info` is INFO; `account` is the answer on `$JS.API.INFO`, when there is one. The account knows better than INFO
    whether JetStream can be reached, because in a cluster or behind a leaf node another server may offer it.

    Raises:
        ServerTooOld: version below 2.12 or JetStream API level below 2; names what was found and what is needed.
        JetStreamDisabled: neither the server nor the account offers JetStream.
    """
    require_version(info)
    where = _name_of(info)
    _require_jetstream(info, account, where)
    _require_level(info, account, where)


def require_version(info: Mapping[str, Any]) -> None:
    """Check the version in INFO alone, before anything is asked that an old server would not answer.

    Raises:
        ServerTooOld: older than 2.12.
    """
    found = Version.parse(str(info.get("version", "")))
    if found is not None and found < MINIMUM_VERSION:
        remedy = "upgrade the server; docs/deployment.md tells how without stopping a cluster"
        raise too_old(str(found), _name_of(info), remedy)


def _name_of(info: Mapping[str, Any]) -> str:
    return str(info.get("server_name") or info.get("server_id") or "the server")


def _require_jetstream(info: Mapping[str, Any], account: Mapping[str, Any] | None, where: str) -> None:
    if account is None and info.get("jetstream"):
        return
    if account is not None and "error" not in account:
        return
    reason = (account or {}).get("error", {}).get("description", "its INFO does not announce JetStream")
    raise JetStreamDisabled(
        f"{where} has no JetStream for this account ({reason}): enable it with a `jetstream {{ store_dir: … }}` block"
        " in the server's configuration, and for the account where accounts are used",
        server=where,
    )


def _require_level(info: Mapping[str, Any], account: Mapping[str, Any] | None, where: str) -> None:
    level = (account or {}).get("api", {}).get("level", info.get("api_lvl"))
    if level is None or int(level) >= MINIMUM_API_LEVEL:
        return
    version = str(info.get("version", "unknown"))
    remedy = "upgrade each server of the cluster: the one that answers for JetStream is older than the connected one"
    raise too_old(f"{version} with JetStream API level {level}", where, remedy, level=int(level))


def too_old(found: str, where: str, remedy: str, **facts: int) -> ServerTooOld:
    """The error that names both versions, and what to do."""
    return ServerTooOld(
        f"nats-server at {where} is {found}; Callboard needs {MINIMUM_VERSION} or newer"
        f" (JetStream API level {MINIMUM_API_LEVEL}): {remedy}",
        found=found,
        needed=str(MINIMUM_VERSION),
        where=where,
        **facts,
    )
