"""`callboard version`."""

from __future__ import annotations

import typer

from .options import Json


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("version", short_help="Print versions.")(version)


def installed() -> str:
    """The version of Callboard that is installed."""
    from importlib import metadata

    try:
        return metadata.version("callboard")
    except metadata.PackageNotFoundError:
        return "unknown"


def version(json: Json = False) -> None:
    """Print the versions of Callboard, Python, and the nats-server that `callboard dev` would start."""
    import platform

    from ..runtime.nats_binary import require_binary
    from ..topics.errors import BrokerError
    from ..topics.messages import VERSION
    from .console import Output

    server: str | None
    try:
        server = str(require_binary()[1])
    except BrokerError:
        server = None
    output = Output(json)
    if output.json:
        found = {"callboard": installed(), "wire": VERSION, "python": platform.python_version(), "nats_server": server}
        output.record(found)
        return
    output.fields(
        [
            ("callboard", f"{installed()} (wire version {VERSION})"),
            ("python", platform.python_version()),
            ("nats-server", server or "none found"),
        ]
    )
