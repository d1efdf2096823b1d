"""The order of the pages on the documentation site, as a hook of mkdocs.

Pages are taken as they exist, so that a new page needs no entry here to be seen: what is not named below is put into
the last section, and decisions are listed by number.
"""

from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig

SECTIONS = {
    "Start": [
        "index",
        "agents",
        "actors",
        "effects",
        "interrupts",
        "graphs",
        "checkpoints",
        "threads",
        "versions",
        "limits",
        "schedules",
        "attention",
        "cli",
        "configuration",
        "deployment",
    ],
    "How it works": ["architecture", "guarantees", "glossary"],
    "Reference": ["schedules", "http", "wire-protocol", "types", "errors", "telemetry", "logging", "check"],
    "Project": ["performance", "dependencies"],
}
LAST = "Project"
DECISIONS = "Decisions"


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Set the navigation from the pages that are there."""
    docs = Path(config.docs_dir)
    known = {stem for stems in SECTIONS.values() for stem in stems}
    others = sorted(page.stem for page in docs.glob("*.md") if page.stem not in known)
    sections = SECTIONS | {LAST: SECTIONS[LAST] + others}
    nav = [{title: _existing(docs, stems)} for title, stems in sections.items()]
    decisions = [
        "adr/index.md",
        *sorted(f"adr/{page.name}" for page in (docs / "adr").glob("[0-9]*.md")),
        "adr/template.md",
    ]
    config.nav = [*nav, {DECISIONS: decisions}]
    return config


def _existing(docs: Path, stems: list[str]) -> list[str]:
    return [f"{stem}.md" for stem in stems if (docs / f"{stem}.md").exists()]
