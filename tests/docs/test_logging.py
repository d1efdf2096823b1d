"""Each message that docs/logging.md explains is one that the code writes."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("topics", "store", "actors", "gateway", "runtime", "callboard")


def texts() -> list[str]:
    """All strings in the code; what is filled in stands as `…`."""
    found = []
    for room in ROOMS:
        for path in (ROOT / room).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    found.append(re.sub(r"%[-.\d]*[a-z]", "…", node.value))
                elif isinstance(node, ast.JoinedStr):
                    parts = (str(one.value) if isinstance(one, ast.Constant) else "…" for one in node.values)
                    found.append("".join(parts))
    return found


def test_the_messages_are_written_somewhere() -> None:
    page = (ROOT / "docs" / "logging.md").read_text(encoding="utf-8").partition("## What to do about it")[2]
    messages = re.findall(r"^\| `([^`]+)` \|", page, flags=re.MULTILINE)
    assert len(messages) > 10
    known = texts()
    for message in messages:
        pattern = re.compile(".*".join(map(re.escape, message.split("…"))), flags=re.DOTALL)
        assert any(pattern.search(text) for text in known), message
