"""A graph as an SVG image."""

from __future__ import annotations

from .compiled import Compiled


def svg(graph: Compiled) -> str:
    """To come."""
    raise NotImplementedError(graph.name)
