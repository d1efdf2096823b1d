"""`callboard dev`: everything in one command.

This process runs the nats-server (as its child, unless one is named) and one child process for each role, by the
same commands that run them in production. `child` is one such process, `watch` the files whose change reloads the
worker, `stage` all of it together, `command` the command.
"""

from .command import register

__all__ = ["register"]
