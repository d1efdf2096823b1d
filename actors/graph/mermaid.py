"""A graph as Mermaid text."""

from __future__ import annotations

from .arrows import Arrow, arrows
from .command import END, START
from .compiled import Compiled


def mermaid(graph: Compiled) -> str:
    """A `flowchart TD`. Dashed arrows depend on a branch, a Command or a channel; joins meet in a dot."""
    lines = ["flowchart TD"]
    names = {name: f"n{at}" for at, name in enumerate(graph.nodes)} | {START: "start", END: "finish"}
    lines += ['    start(["START"])', '    finish(["END"])']
    lines += [f"    {names[name]}{_box(graph, name)}" for name in graph.nodes]
    lines += [_line(arrow, names) for arrow in arrows(graph)]
    return "\n".join(lines) + "\n"


def _box(graph: Compiled, name: str) -> str:
    text = name.replace('"', "#quot;")
    match graph.nodes[name].kind:
        case "graph":
            return f'[["{text}"]]'
        case "agent":
            return f'("{text}")'
    return f'["{text}"]'


def _line(arrow: Arrow, names: dict[str, str]) -> str:
    text = arrow.label.replace('"', "#quot;")
    label = f'|"{text}"|' if text else ""
    line = "-.->" if arrow.dashed else "-->"
    return f"    {names[arrow.source]} {line}{label} {names[arrow.target]}"
