"""`callboard doctor`: what is wrong, and how to mend it.

`check` (what is found), `broker` (server, streams, clock), `traffic` (consumers, queues, dead letters, runs),
`limits`, `command`.
"""

from .command import register

__all__ = ["register"]
