"""The gateway: HTTP, server-sent events and the dashboard over what topics say and the store holds.

From the bottom: `config`, `errors`, `problems` (errors as answers), `link` (the broker), `shelf` (the read model),
`models` and `translate` (what goes in and out), `sse/` (event streams), `desk` (all of these), `routes/`, `app`,
`server`.
"""

from typing import TYPE_CHECKING

from ..topics.lazy import lazy as _lazy

if TYPE_CHECKING:
    from .app import create_app
    from .config import GatewaySettings
    from .errors import GatewayError
    from .server import serve

__all__ = ["GatewayError", "GatewaySettings", "create_app", "serve"]

__getattr__, __dir__ = _lazy(
    __name__,
    {
        ".app": "create_app",
        ".config": "GatewaySettings",
        ".errors": "GatewayError",
        ".server": "serve",
    },
)
