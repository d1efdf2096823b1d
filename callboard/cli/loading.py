"""Importing the module that a worker shall serve, and finding what is in it.

A module is named as Python names it (`mypkg.agents`), or as a file (`agents.py`, `jobs/agents.py`). What goes wrong
inside it is shown as its author would see it: their own lines, none of ours.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from ..actors.actor import Actor
from ..actors.agent import Agent
from .errors import ModuleUnusable

_OURS = str(Path(__file__).resolve().parents[2])


class Target(NamedTuple):
    """`MODULE[:agent]`, taken apart."""

    module: str
    agent: str | None

    @classmethod
    def parse(cls, text: str) -> Target:
        """From the command line; a drive letter or a path with a colon is not an agent."""
        module, colon, agent = text.rpartition(":")
        if not colon or "/" in agent or "\\" in agent:
            return cls(text, None)
        return cls(module, agent or None)

    @property
    def file(self) -> Path | None:
        """The file it names; None when it is a module's name."""
        path = Path(self.module)
        return path if path.suffix == ".py" or len(path.parts) > 1 else None


class Found(NamedTuple):
    """What a worker serves."""

    agents: list[Agent[Any]]
    actors: list[type[Actor]]


def find(targets: Sequence[str]) -> Found:
    """The agents and actors of all targets, each once. Raises ModuleUnusable."""
    agents: dict[int, Agent[Any]] = {}
    actors: dict[type[Actor], None] = {}
    for text in targets:
        target = Target.parse(text)
        found = _select(target, _found_in(import_module(target)))
        agents.update((id(agent), agent) for agent in found.agents)
        actors.update(dict.fromkeys(found.actors))
    _require_distinct(list(agents.values()))
    return Found(list(agents.values()), list(actors))


def check_exists(text: str) -> None:
    """Whether what `MODULE[:agent]` names is there, without running any of it. Raises ModuleUnusable."""
    target = Target.parse(text)
    if target.file is not None:
        if not target.file.is_file():
            raise ModuleUnusable(f"there is no file {target.module}", module=target.module)
        return
    _add_folder(Path.cwd())
    _require_exists(target.module.partition(".")[0], target.module)


def _add_folder(folder: Path) -> None:
    """Makes modules of the folder importable, as `python -m` does for the current one."""
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def import_module(target: Target) -> ModuleType:
    """The module, imported. Raises ModuleUnusable when it is not there, or raises itself."""
    if target.file is not None:
        return _from_file(target.file, target.module)
    _add_folder(Path.cwd())
    _require_exists(target.module, target.module)
    with _Importing(target.module):
        return importlib.import_module(target.module)
    raise AssertionError  # `_Importing` swallows nothing


def _require_exists(name: str, given: str) -> None:
    if not all(part.isidentifier() for part in name.split(".")):
        raise ModuleUnusable(f"{name!r} is not the name of a module: write pkg.module or path/to/file.py", module=name)
    with _Importing(name):  # finding a submodule imports its package
        try:
            spec = importlib.util.find_spec(name)
        except ModuleNotFoundError as error:
            if error.name is None or not (name == error.name or name.startswith(f"{error.name}.")):
                raise
            spec = None
    if spec is None:
        raise ModuleUnusable(f"there is no module {given!r} in this folder or on the Python path", module=given)


def _from_file(path: Path, name: str) -> ModuleType:
    if not path.is_file():
        raise ModuleUnusable(f"there is no file {name}", module=name)
    path = path.resolve()
    module_name, root = _module_name(path)
    _add_folder(root)
    with _Importing(name):
        module = importlib.import_module(module_name)
        if Path(module.__file__ or "").resolve() == path:
            return module
        # A module of the same name comes first on the path: load the file under its own name.
        spec = importlib.util.spec_from_file_location(f"_callboard_{path.stem}", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
        return module
    raise AssertionError  # `_Importing` swallows nothing


def _module_name(path: Path) -> tuple[str, Path]:
    """The dotted name of a file within its packages, and the folder above them."""
    parts = [] if path.stem == "__init__" else [path.stem]
    root = path.parent
    while (root / "__init__.py").exists():
        parts.insert(0, root.name)
        root = root.parent
    return ".".join(parts) or path.parent.name, root


class _Importing:
    """Turns what an author's module raises into ModuleUnusable with the author's own traceback."""

    def __init__(self, module: str) -> None:
        self._module = module

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if error is None or isinstance(error, ModuleUnusable | KeyboardInterrupt):
            return
        detail = own_traceback(error)
        said = traceback.format_exception_only(error)[-1].strip()
        raise ModuleUnusable(
            f"{self._module} cannot be imported: {said}", module=self._module, detail=detail
        ) from error


def own_traceback(error: BaseException) -> str:
    """The traceback without the lines of the import system and of Callboard."""
    told = traceback.TracebackException.from_exception(error)
    seen: list[traceback.TracebackException] = [told]
    while seen:
        one = seen.pop()
        one.stack = traceback.StackSummary.from_list([frame for frame in one.stack if _is_own(frame.filename)])
        seen += [part for part in (one.__cause__, one.__context__) if part is not None]
    return "".join(told.format())


def _is_own(filename: str) -> bool:
    if filename.startswith("<frozen"):
        return False
    path = Path(filename)
    package = Path(_OURS)
    ours = {str(package / room) for room in ("topics", "store", "actors", "runtime", "gateway", "callboard", "cli")}
    return (
        path.name != "importlib"
        and "/importlib/" not in path.as_posix()
        and not any(str(path).startswith(f"{folder}/") for folder in ours)
    )


def _found_in(module: ModuleType) -> Found:
    agents: dict[int, Agent[Any]] = {}
    actors: dict[type[Actor], None] = {}
    for value in vars(module).values():
        if isinstance(value, Agent):
            agents[id(value)] = value
        elif _is_application_actor(value):
            actors[value] = None
    return Found(list(agents.values()), list(actors))


def _is_application_actor(value: object) -> bool:
    """A subclass of Actor that is the author's, not merely imported from Callboard."""
    if not inspect.isclass(value) or not issubclass(value, Actor) or inspect.isabstract(value):
        return False
    return not value.__module__.startswith("callboard.")


def _select(target: Target, found: Found) -> Found:
    if target.agent is None:
        if not found.agents and not found.actors:
            raise ModuleUnusable(
                f"{target.module} has no agents or actors: declare one with @agent, or a subclass of Actor, at the top "
                "level of the module",
                module=target.module,
            )
        return found
    agents = [agent for agent in found.agents if agent.name == target.agent]
    actors = [actor for actor in found.actors if target.agent in {actor.__name__, actor.__name__.lower()}]
    if not agents and not actors:
        known = sorted([agent.name for agent in found.agents] + [actor.__name__ for actor in found.actors])
        raise ModuleUnusable(
            f"{target.module} has no agent {target.agent!r}; it has {', '.join(known) or 'none'}", module=target.module
        )
    return Found(agents, actors)


def _require_distinct(agents: Sequence[Agent[Any]]) -> None:
    names = [agent.name for agent in agents]
    double = sorted({name for name in names if names.count(name) > 1})
    if double:
        raise ModuleUnusable(f"more than one agent has the name {double[0]!r}: rename one", module=double[0])
