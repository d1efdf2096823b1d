"""Each test that docs/guarantees.md names as a proof exists."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "guarantees.md"


def test_the_proofs_exist() -> None:
    named = re.findall(r"`(test_\w+\.py)(?:::(test_\w+))?`", PAGE.read_text(encoding="utf-8"))
    assert len(named) > 15
    for file, test in named:
        found = [path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob(file)]
        assert found, file
        assert not test or any(f"def {test}(" in text for text in found), f"{file}::{test}"
