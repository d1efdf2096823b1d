"""Where the boxes of a drawing stand: a layered layout, after Sugiyama, Tagawa and Toda (1981), in plain Python.

1. Arrows that close a cycle are turned round. 2. Each box stands below all that lead to it. 3. Arrows that pass a layer
get a waypoint there. 4. Each layer is put into the order that crosses least, by the middle of the neighbours. 5. Boxes
move towards the middle of their neighbours as far as the others let them.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

Name = str
_GAP_X = 28.0
_GAP_Y = 46.0
_WAYPOINT_WIDTH = 14.0
_SWEEPS = 12


@dataclass
class Layout:
    """Centres of boxes and the points through which arrows pass, in pixels from the upper left corner."""

    centres: dict[Name, tuple[float, float]]
    paths: dict[tuple[Name, Name], list[tuple[float, float]]]
    """By arrow: the waypoints between both boxes, from source to target."""
    turned: set[tuple[Name, Name]]
    """Arrows that lead upwards."""
    width: float
    height: float


@dataclass
class _Layers:
    """The boxes and waypoints of each layer, and who is next to whom."""

    rows: list[list[Name]]
    above: dict[Name, list[Name]] = field(default_factory=dict)
    below: dict[Name, list[Name]] = field(default_factory=dict)

    def link(self, upper: Name, lower: Name) -> None:
        self.below.setdefault(upper, []).append(lower)
        self.above.setdefault(lower, []).append(upper)

    def crossings(self) -> int:
        return sum(self._between(upper, lower) for upper, lower in itertools.pairwise(self.rows))

    def _between(self, upper: list[Name], lower: list[Name]) -> int:
        place = {name: at for at, name in enumerate(lower)}
        ends = [place[name] for one in upper for name in sorted(self.below.get(one, ()), key=place.__getitem__)]
        return sum(1 for at, end in enumerate(ends) for other in ends[at + 1 :] if other < end)


def layout(sizes: Mapping[Name, tuple[float, float]], arrows: Sequence[tuple[Name, Name]], last: Name) -> Layout:
    """Places boxes of these sizes. `last` stands at the bottom; arrows from a box to itself are left out."""
    ways = [arrow for arrow in dict.fromkeys(arrows) if arrow[0] != arrow[1]]
    turned = _cycles(list(sizes), ways)
    down = [(target, source) if (source, target) in turned else (source, target) for source, target in ways]
    layers, points = _layered(list(sizes), down, last)
    _order(layers)
    widths = {name: sizes[name][0] if name in sizes else _WAYPOINT_WIDTH for row in layers.rows for name in row}
    across = _spread(layers, widths)
    height = max(size[1] for size in sizes.values())
    depth = {name: (at + 0.5) * height + at * _GAP_Y for at, row in enumerate(layers.rows) for name in row}
    paths = {}
    for way, waypoints in zip(ways, points, strict=True):
        passed = [(across[one], depth[one]) for one in waypoints]
        paths[way] = passed[::-1] if way in turned else passed
    return Layout(
        centres={name: (across[name], depth[name]) for name in sizes},
        paths=paths,
        turned=turned,
        width=max(across[name] + widths[name] / 2 for name in widths),
        height=len(layers.rows) * (height + _GAP_Y) - _GAP_Y,
    )


def _cycles(names: list[Name], ways: list[tuple[Name, Name]]) -> set[tuple[Name, Name]]:
    """The arrows back to a box that is still being walked from."""
    leads: dict[Name, list[Name]] = {name: [] for name in names}
    for source, target in ways:
        leads[source].append(target)
    found: set[tuple[Name, Name]] = set()
    state: dict[Name, int] = {}
    for root in names:
        if root in state:
            continue
        state[root] = 1
        walk = [(root, iter(leads[root]))]
        while walk:
            name, rest = walk[-1]
            one = next(rest, None)
            if one is None:
                state[name] = 2
                walk.pop()
            elif one not in state:
                state[one] = 1
                walk.append((one, iter(leads[one])))
            elif state[one] == 1:
                found.add((name, one))
    return found


def _layered(names: list[Name], down: list[tuple[Name, Name]], last: Name) -> tuple[_Layers, list[list[Name]]]:
    """The layers, and the waypoints of each arrow."""
    depth = _depths(names, down)
    depth[last] = max(1, *depth.values())
    layers = _Layers([[] for _ in range(max(depth.values()) + 1)])
    for name in names:
        layers.rows[depth[name]].append(name)
    points: list[list[Name]] = []
    for number, (upper, lower) in enumerate(down):
        passed = [f"\0{number}.{at}" for at in range(depth[upper] + 1, depth[lower])]
        points.append(passed)
        for at, name in enumerate(passed):
            layers.rows[depth[upper] + 1 + at].append(name)
        chain = [upper, *passed, lower]
        for one, other in itertools.pairwise(chain):
            layers.link(one, other)
    return layers, points


def _depths(names: list[Name], down: list[tuple[Name, Name]]) -> dict[Name, int]:
    """The length of the longest way to each box."""
    above: dict[Name, list[Name]] = {name: [] for name in names}
    for upper, lower in down:
        above[lower].append(upper)
    depth: dict[Name, int] = {}
    todo = list(names)
    while todo:
        name = todo[-1]
        missing = [one for one in above[name] if one not in depth]
        if name in depth or not missing:
            todo.pop()
            depth.setdefault(name, max((depth[one] + 1 for one in above[name]), default=0))
        else:
            todo += missing
    return depth


def _order(layers: _Layers) -> None:
    best, fewest = [list(row) for row in layers.rows], layers.crossings()
    for sweep in range(_SWEEPS):
        if not fewest:
            break
        downwards = sweep % 2 == 0
        rows = list(range(1, len(layers.rows))) if downwards else list(range(len(layers.rows) - 2, -1, -1))
        for at in rows:
            fixed = layers.rows[at - 1 if downwards else at + 1]
            layers.rows[at] = _sorted(layers.rows[at], fixed, layers.above if downwards else layers.below)
        if (crossings := layers.crossings()) < fewest:
            best, fewest = [list(row) for row in layers.rows], crossings
    layers.rows = best


def _sorted(row: list[Name], fixed: list[Name], nexts: Mapping[Name, list[Name]]) -> list[Name]:
    """A row by the middle of each one's neighbours in the row that stays; who has none keeps the place."""
    place = {name: at for at, name in enumerate(fixed)}
    keys = {name: _middle([place[one] for one in nexts.get(name, ())], at) for at, name in enumerate(row)}
    return sorted(row, key=keys.__getitem__)


def _middle(values: list[float] | list[int], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise


def _spread(layers: _Layers, widths: Mapping[Name, float]) -> dict[Name, float]:
    """The middle of each box from left to right."""
    across: dict[Name, float] = {}
    for row in layers.rows:
        _place(row, dict.fromkeys(row, 0.0), widths, across)
    for sweep in range(_SWEEPS):
        for row in layers.rows if sweep % 2 == 0 else layers.rows[::-1]:
            wanted = {}
            for name in row:
                near = [*layers.above.get(name, ()), *layers.below.get(name, ())]
                wanted[name] = _middle([across[one] for one in near], across[name])
            _place(row, wanted, widths, across)
    left = min(across[name] - widths[name] / 2 for name in widths)
    return {name: value - left for name, value in across.items()}


def _place(
    row: list[Name], wanted: Mapping[Name, float], widths: Mapping[Name, float], across: dict[Name, float]
) -> None:
    """Puts a row as near as it can to where its boxes want to be: groups that touch share their deviation."""
    groups: list[tuple[list[Name], float]] = []
    offsets: dict[Name, float] = {}
    for name in row:
        group, start = [name], wanted[name] - widths[name] / 2
        offsets[name] = widths[name] / 2
        while groups and groups[-1][1] + _length(groups[-1][0], widths) + _GAP_X > start:
            before, _ = groups.pop()
            shift = _length(before, widths) + _GAP_X
            for one in group:
                offsets[one] += shift
            group = [*before, *group]
            start = sum(wanted[one] - offsets[one] for one in group) / len(group)
        groups.append((group, start))
    for group, start in groups:
        for name in group:
            across[name] = start + offsets[name]


def _length(group: list[Name], widths: Mapping[Name, float]) -> float:
    return sum(widths[name] for name in group) + _GAP_X * (len(group) - 1)
