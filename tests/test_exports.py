"""The public names: each room's `__init__` says what it is, and lists all it offers, sorted."""

import ast
import importlib
import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[1]
ROOMS = {
    "topics": "callboard.topics",
    "store": "callboard.store",
    "actors": "callboard.actors",
    "gateway": "callboard.gateway",
    "runtime": "callboard.runtime",
    "callboard": "callboard",
}


def order(name: str) -> tuple[int, list[str | int]]:
    """Constants, then classes, then the rest, each in natural order: the order that the formatter keeps (RUF022)."""
    rank = 0 if name.isupper() and len(name) > 1 else 1 if name[0].isupper() else 2
    return rank, [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]


def tree_of(folder: str) -> ast.Module:
    return ast.parse((ROOT / folder / "__init__.py").read_text(encoding="utf-8"))


def lazy(tree: ast.Module) -> list[ast.stmt]:
    """The statements for type checkers alone, of names that are loaded when they are first used."""
    blocks = [node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    return [node for block in blocks for node in block.body]


def bound_names(tree: ast.Module) -> set[str]:
    """What the statements of an `__init__` bind, without private names and without modules of the standard library."""
    names: set[str] = set()
    for node in [*tree.body, *lazy(tree)]:
        if isinstance(node, ast.ImportFrom) and node.module != "__future__":
            names |= {alias.asname or alias.name for alias in node.names if node.level or alias.asname == alias.name}
        elif isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
    return {name for name in names if not name.startswith("_")}


@pytest.fixture(params=ROOMS)
def folder(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def room(folder: str) -> ModuleType:
    return importlib.import_module(ROOMS[folder])


def test_a_room_says_what_it_is(folder: str) -> None:
    assert ast.get_docstring(tree_of(folder)), f"{folder}/__init__.py has no docstring"


def test_all_is_complete(folder: str, room: ModuleType) -> None:
    listed = {name for name in room.__all__ if not name.startswith("_")}
    modules = {name for name in bound_names(tree_of(folder)) if isinstance(getattr(room, name, None), ModuleType)}
    assert listed == bound_names(tree_of(folder)) - modules


def test_all_is_sorted_and_names_nothing_twice(room: ModuleType) -> None:
    assert list(room.__all__) == sorted(set(room.__all__), key=order)


def test_every_listed_name_exists(room: ModuleType) -> None:
    assert not [name for name in room.__all__ if not hasattr(room, name)]


def test_public_classes_and_functions_have_docstrings(room: ModuleType) -> None:
    """What is typed only by an alias or a constant has its comment beside it instead."""
    public = {name: getattr(room, name) for name in room.__all__}
    own = {name: value for name, value in public.items() if getattr(value, "__module__", "").startswith("callboard")}
    defined = {name: value for name, value in own.items() if isinstance(value, type) or callable(value)}
    assert not [name for name, value in defined.items() if not (getattr(value, "__doc__", None) or "").strip()]
