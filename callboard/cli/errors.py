"""The errors of the command line itself.

CallboardError
├── ModuleUnusable       (InvalidInput) the module named for a worker cannot be imported, or has no such agent
└── NotInstalled         (NotFound) the broker has no streams of this namespace
"""

from __future__ import annotations

from ..topics.errors import InvalidInput, NotFound


class ModuleUnusable(InvalidInput):
    """A module named on the command line cannot be used. Facts: `module`; `detail` has the author's own traceback."""

    code = "module_unusable"


class NotInstalled(NotFound):
    """The broker has no streams of this namespace: nothing was started there yet, or it is the wrong one."""

    code = "not_installed"
