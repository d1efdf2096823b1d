"""What is said on the wire: subjects, messages, streams, ids, fences, codec, and the connection. Knows no other room.

`subjects`, `ids`, `units`, `errors` are leaves; `messages` are the bodies; `client`, `ack` and `bus` the connection;
`reads` and `pull` how streams are read; `streams` declares them; `codec` turns users' values into JSON and back.
"""

from typing import TYPE_CHECKING

from .lazy import lazy as _lazy

if TYPE_CHECKING:
    from .bus import Bus
    from .config import BrokerSettings
    from .errors import CallboardError
    from .ids import RunId, ThreadId, WorkerId, new_run_id
    from .streams import ensure_streams
    from .subjects import Subjects

__all__ = [
    "BrokerSettings",
    "Bus",
    "CallboardError",
    "RunId",
    "Subjects",
    "ThreadId",
    "WorkerId",
    "ensure_streams",
    "new_run_id",
]

__getattr__, __dir__ = _lazy(
    __name__,
    {
        ".bus": "Bus",
        ".config": "BrokerSettings",
        ".errors": "CallboardError",
        ".ids": "RunId ThreadId WorkerId new_run_id",
        ".streams": "ensure_streams",
        ".subjects": "Subjects",
    },
)
