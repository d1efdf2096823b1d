"""Which modules a target has: a folder, a single file, or packages of the running interpreter's standard library."""

import os
import platform
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path

from .models import Listing, ReviewTask

STANDARD_PACKAGES = (
    "asyncio",
    "collections",
    "concurrent",
    "email",
    "html",
    "http",
    "importlib",
    "json",
    "logging",
    "multiprocessing",
    "unittest",
    "urllib",
    "xml",
)
"""The default target: code that all know, without test suites; about 175 modules in Python 3.11 to 3.14."""

SKIPPED_FOLDERS = frozenset({"__pycache__", "node_modules", "site-packages"})
_TEST_FOLDERS = frozenset({"test", "tests"})
_SUFFIXES = frozenset({".py", ".pyw"})


class AuditTargetError(ValueError):
    """The target cannot be audited: it does not exist, is no Python code, or holds none. A retry does not help."""

    code = "audit_target"
    retryable = False

    def __init__(self, target: str, problem: str) -> None:
        """`target` is what was asked for, `problem` what is wrong with it and what to do."""
        super().__init__(f"cannot audit {target!r}: {problem}")
        self.target = target
        self.problem = problem


def list_modules(target: str | None = None) -> Listing:
    """List the modules of a folder or a file; without a target those of `STANDARD_PACKAGES`.

    Hidden folders, virtual environments, `__pycache__`, `node_modules` and `site-packages` are left out unless the
    target itself is one. Symbolic links to folders are not followed. Nothing is written or imported.
    Raises AuditTargetError when nothing can be audited.
    """
    if not target:
        return _standard_library()
    path = Path(target).expanduser()
    try:
        if path.is_dir():
            return _folder(target, path.resolve())
        if path.is_file():
            return _single_file(target, path.absolute())
        exists = path.exists()
    except AuditTargetError:
        raise
    except (OSError, ValueError) as error:
        raise AuditTargetError(target, f"it cannot be looked at ({error})") from error
    if exists:
        raise AuditTargetError(target, "it is neither a folder nor a regular file")
    raise AuditTargetError(target, "no such file or folder; give a folder with Python code or a .py file")


def _standard_library() -> Listing:
    root = Path(sysconfig.get_path("stdlib")).resolve()
    skipped: list[str] = []
    files = [
        file
        for package in STANDARD_PACKAGES
        for file in _python_files(root / package, skipped)
        if not _TEST_FOLDERS.intersection(file.relative_to(root).parts[:-1])
    ]
    if not files:
        problem = "this interpreter comes without the sources of its standard library; give a TARGET"
        raise AuditTargetError(str(root), problem)
    label = f"standard library of Python {platform.python_version()} ({', '.join(STANDARD_PACKAGES)})"
    return Listing(label, _tasks(root, files, ""), tuple(skipped))


def _folder(target: str, root: Path) -> Listing:
    skipped: list[str] = []
    files = list(_python_files(root, skipped))
    if not files:
        because = f" ({'; '.join(skipped[:3])})" if skipped else ""
        raise AuditTargetError(target, f"the folder holds no Python files{because}")
    prefix = root.name if (root / "__init__.py").is_file() else ""
    return Listing(root.name or target, _tasks(root, files, prefix), tuple(skipped))


def _single_file(target: str, path: Path) -> Listing:
    if path.suffix not in _SUFFIXES:
        raise AuditTargetError(target, "it is not a Python source file (.py)")
    if not _encodable(str(path)):
        raise AuditTargetError(target, "its path is not valid text")
    return Listing(path.name, (ReviewTask(str(path), path.stem, path.name),))


def _python_files(root: Path, skipped: list[str]) -> Iterator[Path]:
    """Yield the Python files below root in a stable order; what cannot be listed goes to `skipped`."""

    def unreadable(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            skipped.append(f"{_shown(Path(error.filename), root)}: {error.strerror}")

    for folder, names, files in os.walk(root, onerror=unreadable):
        names[:] = sorted(name for name in names if _wanted(Path(folder, name)))
        for file in (Path(folder, name) for name in sorted(files) if Path(name).suffix in _SUFFIXES):
            if not _encodable(str(file)):
                skipped.append(f"{_shown(file, root)}: the name is not valid text")
            elif file.is_symlink() or file.is_file():
                yield file
            else:
                skipped.append(f"{_shown(file, root)}: not a regular file")


def _wanted(folder: Path) -> bool:
    if folder.name.startswith(".") or folder.name in SKIPPED_FOLDERS:
        return False
    return not (folder / "pyvenv.cfg").is_file()


def _tasks(root: Path, files: Iterable[Path], prefix: str) -> tuple[ReviewTask, ...]:
    """Name the modules. Where two files claim one name (`a.py`, `a/__init__.py`) the later is called by its file."""
    tasks: dict[str, ReviewTask] = {}
    for path in files:
        file = path.relative_to(root)
        parts = [prefix, *file.with_suffix("").parts]
        if parts[-1] == "__init__" and len(parts) > 1:
            parts.pop()
        module = ".".join(part for part in parts if part) or file.stem
        if module in tasks:
            module = file.as_posix()
        tasks[module] = ReviewTask(str(path), module, file.as_posix())
    return tuple(sorted(tasks.values(), key=lambda task: task.module))


def _shown(path: Path, root: Path) -> str:
    shown = path.relative_to(root).as_posix() if path.is_relative_to(root) else path.name
    return shown.encode("utf-8", "backslashreplace").decode()


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
