"""Records a run of one of the agents here: `python -m tests.histories.record history_mixed` writes its JSON beside."""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from callboard.topics.bus import Bus
from callboard.topics.config import BrokerSettings
from callboard.topics.streams import ensure_streams
from tests.actors.company import company
from tests.histories.agents import AGENTS, INPUTS
from tests.support.nats import private_server

FOLDER = Path(__file__).parent


async def record(url: str, name: str) -> dict[str, Any]:
    """The log of the whole tree of one run, message by message, and its result."""
    settings = BrokerSettings(nats_url=url, namespace="h")
    bus = await Bus.connect(settings)
    await ensure_streams(bus, settings)
    async with company(settings, bus, list(AGENTS.values())) as all_:
        ended = await all_.run(name, INPUTS[name])
        pages = [page async for page in all_.log.tree_history(ended.id)]
        log = [{"subject": one.subject, "body": json.loads(one.data)} for page in pages for one in page]
        assert ended.result is not None
        result = json.loads(await all_.submitter._blobs.value(ended.result))
    await bus.close()
    return {"run": ended.id, "agent": name, "salt": bus.salt, "result": result, "log": log}


def _neutral(text: str) -> str:
    """The history without the folder of the checkout, which stands in tracebacks."""
    return text.replace(f"{FOLDER.parents[1]}/", "callboard/")


def main() -> None:
    """Writes the histories of the named agents."""
    for name in sys.argv[1:]:
        with tempfile.TemporaryDirectory() as folder, private_server(Path(folder)) as server:
            history = asyncio.run(record(server.url, name))
        (FOLDER / f"{name}.json").write_text(_neutral(json.dumps(history, indent=1)) + "\n")


if __name__ == "__main__":
    main()
