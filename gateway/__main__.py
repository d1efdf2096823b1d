"""`python -m callboard.gateway`: the gateway alone, with settings from the environment."""

from __future__ import annotations

import asyncio
import logging
import sys

import uvicorn

from ..topics.errors import CallboardError
from .server import serve


def main() -> int:
    """Serves until SIGTERM; 0 after an orderly end, 1 when it could not start."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        with asyncio.Runner(loop_factory=uvicorn.Config("", log_config=None).get_loop_factory()) as runner:
            runner.run(serve(ready=lambda url: print(url, flush=True)))  # noqa: T201
    except CallboardError as error:
        print(f"callboard gateway: {error}", file=sys.stderr)  # noqa: T201
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
