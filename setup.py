"""Which folders make up the import package `callboard`; all other metadata stands in pyproject.toml.

The rooms are folders at the top of the repository, and each may have sub-packages. pyproject.toml can map a folder
to a package but cannot search several mapped folders at once, and a hand-written list of sub-packages is forgotten
with the first new one, so the search is done here.
"""

from pathlib import Path

from setuptools import setup

HERE = Path(__file__).resolve().parent
FACADE = "callboard"
ROOMS = ("topics", "store", "actors", "gateway", "runtime")


def subpackages(folder: str, package: str) -> list[str]:
    """Return `package` and each package below it, found by the `__init__.py` files under `folder`."""
    top = HERE / folder
    below = (init.parent.relative_to(top).parts for init in top.rglob("__init__.py"))
    return sorted(".".join((package, *parts)) for parts in below)


PACKAGE_DIR = {FACADE: FACADE} | {f"{FACADE}.{room}": room for room in ROOMS}

setup(
    package_dir=PACKAGE_DIR,
    packages=[name for package, folder in PACKAGE_DIR.items() for name in subpackages(folder, package)],
)
