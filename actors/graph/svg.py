"""A graph as an SVG image."""

from __future__ import annotations

import itertools
from html import escape

from .arrows import Arrow, arrows
from .command import END, START
from .compiled import Compiled
from .layout import Layout, layout

_MARGIN = 16.0
_HEIGHT = 34.0
_CHAR = 7.4
"""Pixels of an average letter."""
_LOOP = 26.0
_LABEL = 0.6
"""How far along a short arrow its label stands: arrows part on their way."""
_STYLE = """
text { font: 13px system-ui, sans-serif; text-anchor: middle; fill: #1f2937 }
.box { fill: #f8fafc; stroke: #475569; stroke-width: 1.3 }
.agent { fill: #ecfdf5; stroke: #047857 }
.graph, .inner { fill: #eff6ff; stroke: #1d4ed8 }
.deferred { stroke-dasharray: 2 3 }
.end { fill: #334155; stroke: #334155 }
.end + text { fill: #ffffff }
.way { fill: none; stroke: #64748b; stroke-width: 1.3; marker-end: url(#tip) }
.chosen { stroke-dasharray: 5 4 }
.label { font-size: 11px; fill: #475569; paint-order: stroke; stroke: #ffffff; stroke-width: 4px }
.stop { stroke: #b45309; stroke-width: 3 }
"""
_TIP = """<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">
<path d="M0 0L8 4L0 8z" fill="#64748b"/></marker></defs>"""
_NAMES = {START: "START", END: "END"}


def svg(graph: Compiled) -> str:
    """Boxes are functions, pills are agents, double boxes are subgraphs; deferred nodes are dotted, and an orange bar
    stands where a node stops for an answer. Dashed arrows depend on what a branch or a node decides."""
    ways = arrows(graph)
    sizes = {name: (max(len(_NAMES.get(name, name)) * _CHAR + 26, 56), _HEIGHT) for name in (START, *graph.nodes, END)}
    plan = layout(sizes, [(way.source, way.target) for way in ways], END)
    loops = any(way.source == way.target for way in ways)
    width, height = plan.width + 2 * _MARGIN + (_LOOP + 16 if loops else 0), plan.height + 2 * _MARGIN
    body = [_way(plan, way, sizes) for way in _merged(ways)]
    body += [_box(graph, plan, name, sizes[name][0]) for name in sizes]
    size = f'viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img"><title>{escape(graph.name)}</title>'
    begin = f'<style>{_STYLE}</style>{_TIP}<g transform="translate({_MARGIN:.0f} {_MARGIN:.0f})">'
    return "\n".join([head, begin, *body, "</g></svg>\n"])


def _merged(ways: list[Arrow]) -> list[Arrow]:
    """Arrows between the same boxes as one, with all their labels."""
    found: dict[tuple[str, str], Arrow] = {}
    for way in ways:
        before = found.get((way.source, way.target))
        if before is not None:
            labels = ", ".join(dict.fromkeys(one for one in (before.label, way.label) if one))
            way = Arrow(way.source, way.target, labels, before.dashed and way.dashed)  # noqa: PLW2901
        found[way.source, way.target] = way
    return list(found.values())


def _way(plan: Layout, way: Arrow, sizes: dict[str, tuple[float, float]]) -> str:
    kind = "way chosen" if way.dashed else "way"
    if way.source == way.target:
        x, y = plan.centres[way.source]
        right = x + sizes[way.source][0] / 2
        far = right + _LOOP
        path = f"M{right:.1f} {y - 7:.1f}C{far:.1f} {y - 16:.1f} {far:.1f} {y + 16:.1f} {right:.1f} {y + 7:.1f}"
        return _drawn(path, kind, way.label, (right + _LOOP - 2, y - 17))
    up = (way.source, way.target) in plan.turned
    beside = (way.target, way.source) in plan.paths
    left, right = (sizes[name][0] / 4 if up else -10.0 if beside else 0.0 for name in (way.source, way.target))
    half = -_HEIGHT / 2 if up else _HEIGHT / 2
    (x0, y0), (x1, y1) = plan.centres[way.source], plan.centres[way.target]
    points = [(x0 + left, y0 + half), *plan.paths[way.source, way.target], (x1 + right, y1 - half)]
    path = f"M{points[0][0]:.1f} {points[0][1]:.1f}" + "".join(
        f"C{x:.1f} {(y + b) / 2:.1f} {a:.1f} {(y + b) / 2:.1f} {a:.1f} {b:.1f}"
        for (x, y), (a, b) in itertools.pairwise(points)
    )
    if len(points) > 2:
        return _drawn(path, kind, way.label, points[len(points) // 2])
    (xa, ya), (xb, yb) = points
    return _drawn(path, kind, way.label, (xa + (xb - xa) * _LABEL, ya + (yb - ya) * _LABEL))


def _drawn(path: str, kind: str, label: str, at: tuple[float, float]) -> str:
    text = f'<text class="label" x="{at[0]:.1f}" y="{at[1]:.1f}" dy="0.35em">{escape(label)}</text>' if label else ""
    return f'<path class="{kind}" d="{path}"/>{text}'


def _box(graph: Compiled, plan: Layout, name: str, width: float) -> str:
    x, y = plan.centres[name]
    left, top = x - width / 2, y - _HEIGHT / 2
    node = graph.nodes.get(name)
    kind = "end" if node is None else node.kind
    corner = _HEIGHT / 2 if kind in ("end", "agent") else 6
    more = " deferred" if node is not None and node.deferred else ""
    parts = [_rect(f"box {kind}{more}", left, top, width, _HEIGHT, corner)]
    if kind == "graph":
        parts.append(_rect("box inner", left + 3, top + 3, width - 6, _HEIGHT - 6, 4))
    parts.append(f'<text x="{x:.1f}" y="{y:.1f}" dy="0.35em">{escape(_NAMES.get(name, name))}</text>')
    for wanted, at in ((node is not None and node.before, top), (node is not None and node.after, top + _HEIGHT)):
        if wanted:
            parts.append(f'<path class="stop" d="M{left + 6:.1f} {at:.1f}h{width - 12:.1f}"/>')
    return "".join(parts)


def _rect(kind: str, left: float, top: float, width: float, height: float, corner: float) -> str:
    place = f'x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" height="{height:.1f}"'
    return f'<rect class="{kind}" {place} rx="{corner:.0f}"/>'
