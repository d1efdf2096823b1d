"""What `pip install callboard` puts on a machine: all packages and data files of the rooms, under one name."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("topics", "store", "actors", "gateway", "runtime", "callboard")
METADATA = ("pyproject.toml", "setup.py", "README.md", "LICENSE")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built from a copy, so that nothing is left in the repository and no older build is packed."""
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in METADATA:
        shutil.copy(ROOT / name, source)
    for room in ROOMS:
        shutil.copytree(ROOT / room, source / room, ignore=shutil.ignore_patterns("__pycache__"))
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, "--wheel-dir", str(target), str(source)], check=True, timeout=100)
    (built,) = target.glob("*.whl")
    return built


def installed_name(path: Path) -> str:
    parts = path.relative_to(ROOT).parts
    return "/".join(parts if parts[0] == "callboard" else ("callboard", *parts))


def test_the_wheel_holds_every_file_of_the_rooms(wheel: Path) -> None:
    files = [path for room in ROOMS for path in (ROOT / room).rglob("*") if path.is_file()]
    wanted = {installed_name(path) for path in files if "__pycache__" not in path.parts}
    assert wanted <= set(zipfile.ZipFile(wheel).namelist())


def test_the_wheel_holds_nothing_else(wheel: Path) -> None:
    """No top-level `topics` or `store`, which would be in the way of other packages."""
    tops = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert sorted(tops) == ["callboard", f"{wheel.name.rsplit('-', 3)[0]}.dist-info"]


def test_the_installed_wheel_can_be_imported(wheel: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(wheel).extractall(tmp_path)
    names = ", ".join(["callboard", *(f"callboard.{room}" for room in ROOMS if room != "callboard")])
    code = f"import {names}; print(callboard.__file__); print(callboard.topics.__file__)"
    env = os.environ | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=env, check=True, timeout=60, capture_output=True, text=True
    )
    assert all(line.startswith(str(tmp_path)) for line in done.stdout.split())


@pytest.mark.parametrize("script", ["up.py", "down.py"])
def test_the_scripts_of_compose_take_the_installed_callboard(wheel: Path, tmp_path: Path, script: str) -> None:
    """The folder `callboard` of a checkout is a part of the package, and must not stand before the installed one."""
    zipfile.ZipFile(wheel).extractall(tmp_path)
    file = str(ROOT / "compose" / script)
    code = f"import runpy; runpy.run_path({file!r}); import callboard; print(callboard.__file__)"
    env = os.environ | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=env, check=True, timeout=60, capture_output=True, text=True
    )
    assert done.stdout.startswith(str(tmp_path)), done.stdout
