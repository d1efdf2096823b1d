"""Why a demo ends early."""

from __future__ import annotations


class DemoError(Exception):
    """The demo cannot go on; the message says what happened, in one paragraph."""


class Interrupted(Exception):
    """A signal asked the demo to stop. Exit code 128 + `number`."""

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by signal {number}")
        self.number = number
