"""What is said on the wire: subjects, messages, streams, ids, fences, codec, and the connection. Knows no other room.

`subjects`, `ids`, `units`, `errors` are leaves; `messages` are the bodies; `client`, `ack` and `bus` the connection;
`reads` and `pull` how streams are read; `streams` declares them; `codec` turns users' values into JSON and back.
"""

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
