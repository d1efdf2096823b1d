"""The documentation names what the code has: error codes, commands, settings, metrics; and its links hold.

Everything is found by looking into the code, so that a new name fails here until it is described.
"""

import ast
import importlib
import importlib.util
import pkgutil
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typer
from pydantic import AliasChoices
from pydantic_settings import BaseSettings

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
ROOMS = ("topics", "store", "actors", "gateway", "runtime")
METRIC_MAKERS = re.compile(
    r"^(Counter|Gauge|Histogram|Summary|Info|\w+MetricFamily|create_(\w+_)?(counter|gauge|histogram))$"
)


def pages() -> list[Path]:
    return [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]


@pytest.fixture(scope="module")
def text() -> str:
    return "\n".join(page.read_text(encoding="utf-8") for page in DOCS.rglob("*.md"))


@pytest.fixture(scope="module")
def quoted(text: str) -> str:
    """What stands in code spans and code blocks, one a line."""
    blocks = re.findall(r"^```.*?\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    without = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    return "\n".join([*blocks, *re.findall(r"`([^`\n]+)`", without)])


def mentions(quoted: str, name: str) -> bool:
    return re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", quoted) is not None


def sources() -> list[Path]:
    return [path for room in (*ROOMS, "callboard") for path in sorted((ROOT / room).rglob("*.py"))]


def all_modules() -> Iterator[ModuleType]:
    """Every module of the package, imported; `__main__` modules are left out because importing one runs it."""
    for room in ("callboard", *(f"callboard.{room}" for room in ROOMS)):
        package = importlib.import_module(room)
        yield package
        for found in pkgutil.walk_packages(package.__path__, f"{room}."):
            if not found.name.endswith("__main__"):
                yield importlib.import_module(found.name)


def classes(base: type) -> set[type]:
    """`base` and all its subclasses that are ours."""
    list(all_modules())
    found, todo = set(), [base]
    while todo:
        one = todo.pop()
        if one not in found:
            found.add(one)
            todo += one.__subclasses__()
    return {one for one in found if one.__module__.split(".")[0] == "callboard"}


# --- errors --------------------------------------------------------------------------------------------------------


def test_every_error_code_is_described(quoted: str) -> None:
    if not (ROOT / "topics" / "errors.py").exists():
        pytest.skip("there are no errors yet")
    root = importlib.import_module("callboard.topics.errors").CallboardError
    codes = {str(one.code) for one in classes(root)}  # type: ignore[attr-defined]  # every subclass has a code
    assert len(codes) > 5
    assert not {code for code in sorted(codes) if not mentions(quoted, code)}


def test_the_page_on_errors_says_whether_a_retry_helps() -> None:
    """Its rows name codes that exist, with the `retryable` that they have."""
    if not (ROOT / "topics" / "errors.py").exists():
        pytest.skip("there are no errors yet")
    root: Any = importlib.import_module("callboard.topics.errors").CallboardError
    actual = {one.code: one.retryable for one in classes(root) if "code" in one.__dict__}  # type: ignore[attr-defined]
    rows = re.findall(
        r"^\| `(\w+)` \| (yes|no) \|", (DOCS / "errors.md").read_text(encoding="utf-8"), flags=re.MULTILINE
    )
    assert {code: word == "yes" for code, word in rows} == {code: actual.get(code) for code, _ in rows}
    assert len(rows) == len(dict(rows)) > 5


def test_no_two_errors_share_a_code() -> None:
    """A subclass may keep its parent's code; two unrelated classes may not have the same one."""
    if not (ROOT / "topics" / "errors.py").exists():
        pytest.skip("there are no errors yet")
    root = importlib.import_module("callboard.topics.errors").CallboardError
    owners = {one: one.__dict__["code"] for one in classes(root) if "code" in one.__dict__}
    double = [code for code in set(owners.values()) if list(owners.values()).count(code) > 1]
    assert not double


# --- commands ------------------------------------------------------------------------------------------------------


def leaves(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Commands that do something, with their full name. Any: some releases of typer carry a click of their own."""
    children = getattr(command, "commands", None)
    if children is None:
        yield path, command
        return
    for name, child in children.items():
        if not child.hidden:
            yield from leaves(child, f"{path} {name}")


def command_line() -> list[tuple[str, Any]]:
    if not (ROOT / "callboard" / "cli").exists():
        pytest.skip("there is no command line yet")
    apps = [
        value
        for name in ("callboard.cli", *(f"callboard.cli.{found}" for found in ("app", "main", "root")))
        if importlib.util.find_spec(name)
        for value in vars(importlib.import_module(name)).values()
        if isinstance(value, typer.Typer)
    ]
    trees = [list(leaves(typer.main.get_command(app), "callboard")) for app in apps]
    return max(trees, key=len)


def test_every_command_is_described(quoted: str) -> None:
    commands = command_line()
    assert len(commands) > 8
    assert not [path for path, _ in commands if not mentions(quoted, path)]


def test_every_option_is_described(quoted: str) -> None:
    options = {
        (path, max(parameter.opts, key=len))
        for path, command in command_line()
        for parameter in command.params
        if parameter.param_type_name == "option"
    }
    assert not sorted((path, option) for path, option in options if not mentions(quoted, option))


# --- settings ------------------------------------------------------------------------------------------------------


def variables(settings: type[BaseSettings]) -> Iterator[str]:
    """The names in the environment that fill the fields of `settings`, one a field."""
    prefix = settings.model_config.get("env_prefix", "")
    for name, field in settings.model_fields.items():
        alias = field.validation_alias
        if isinstance(alias, AliasChoices):
            alias = next(choice for choice in alias.choices if isinstance(choice, str))
        yield (alias if isinstance(alias, str) else f"{prefix}{name}").upper()


def spelled_out() -> set[str]:
    """Variables that are named in the code itself, past the settings classes."""
    found = {
        node.value
        for path in sources()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    return {value for value in found if re.fullmatch(r"(CALLBOARD|NATS)_[A-Z0-9_]*[A-Z0-9]", value)}


def test_every_setting_is_described(quoted: str) -> None:
    if not list(ROOT.glob("*/config.py")):
        pytest.skip("there are no settings yet")
    names = {name for settings in classes(BaseSettings) for name in variables(settings)} | spelled_out()
    assert len(names) > 3
    assert not sorted(name for name in names if not mentions(quoted, name))


# --- metrics -------------------------------------------------------------------------------------------------------


def metric_names() -> set[str]:
    """First arguments of the calls that make metrics, read from the source: some are made only while serving."""
    names: set[str] = set()
    for path in sources():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not (isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant)):
                continue
            called = getattr(node.func, "attr", getattr(node.func, "id", ""))
            name = node.args[0].value
            if METRIC_MAKERS.match(called) and isinstance(name, str):
                names.add(name)
    return names


def test_every_metric_is_described(quoted: str) -> None:
    if len(list((ROOT / "gateway").rglob("*.py"))) < 2:
        pytest.skip("there is no gateway yet")
    names = metric_names()
    assert len(names) > 2
    assert not sorted(name for name in names if not mentions(quoted, name))


# --- links and examples --------------------------------------------------------------------------------------------


def links(page: Path) -> Iterator[str]:
    body = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)", re.sub(r"`[^`\n]*`", "", body)):
        if not re.match(r"[a-z]+:|#", target):
            yield target.split("#")[0]


def test_links_lead_somewhere() -> None:
    broken = [
        f"{page.relative_to(ROOT)}: {link}"
        for page in pages()
        for link in links(page)
        if not (page.parent / link).exists()
    ]
    assert not broken


def test_python_in_the_documentation_is_python() -> None:
    """Indented blocks (in lists) count too; what is only an excerpt still has to be a sequence of statements."""
    for page in pages():
        for block in re.findall(
            r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL
        ):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", SyntaxWarning)
                compile(block, str(page), "exec", flags=ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


# --- decisions -----------------------------------------------------------------------------------------------------


def test_every_decision_has_its_head_and_stands_in_the_index() -> None:
    decisions = sorted(page for page in (DOCS / "adr").glob("[0-9]*.md"))
    index = (DOCS / "adr" / "index.md").read_text(encoding="utf-8")
    assert [page.name[:4] for page in decisions] == [f"{number:04}" for number in range(1, len(decisions) + 1)]
    for page in decisions:
        lines = page.read_text(encoding="utf-8").splitlines()
        assert lines[0].startswith(f"# {page.name[:4]} "), page.name
        head = dict(re.findall(r"^\| (date|status|updates) \| (.*?) \|$", "\n".join(lines[:12]), flags=re.MULTILINE))
        assert set(head) >= {"date", "status"}, page.name
        assert f"| [{page.name[:4]}]({page.name}) | {lines[0][7:]} | {head['status']} |" in index, page.name
        for section in ("## Context", "## Decision", "## Consequences"):
            assert section in lines, f"{page.name} lacks {section}"
