"""What hosts: processes, supervision, leases, the embedded server, telemetry. Knows `actors`, `store` and `topics`.

`host` runs actors: each has a `mailbox`, is fed by `sources`, watched by `supervision`, seen by `presence`. `lease`
keeps work messages from a thread of its own; `process` runs a main function until a signal; `nats_server` is the
broker as a child process.
"""

from typing import TYPE_CHECKING

from ..topics.lazy import lazy as _lazy

if TYPE_CHECKING:
    from .config import RuntimeSettings
    from .host import Host
    from .lease import LeaseKeeper
    from .nats_server import EmbeddedServer
    from .process import run_process

__all__ = ["EmbeddedServer", "Host", "LeaseKeeper", "RuntimeSettings", "run_process"]

__getattr__, __dir__ = _lazy(
    __name__,
    {
        ".config": "RuntimeSettings",
        ".host": "Host",
        ".lease": "LeaseKeeper",
        ".nats_server": "EmbeddedServer",
        ".process": "run_process",
    },
)
