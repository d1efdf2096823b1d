"""Exit codes: what a script may rely on, and which error gives which."""

from __future__ import annotations

from ..topics.errors import (
    BrokerError,
    CallboardError,
    Conflict,
    InvalidInput,
    NotFound,
    PayloadTooLarge,
    StaleFence,
)

OK = 0
FAILED = 1
"""The run did not complete, `doctor` found a problem, or the command itself failed."""
USAGE = 2
"""Bad arguments or input."""
NOT_FOUND = 3
UNAVAILABLE = 4
"""The broker cannot be reached or used, or nobody answers there."""
CONFLICT = 5
UNFINISHED = 6
"""The time given for waiting is up; the run goes on."""
INTERRUPTED = 130
"""Ended by Ctrl-C before it was done."""
BROKEN_PIPE = 141
"""Whoever read the output stopped reading."""

# The first class that matches gives the code; the order is from the special to the general.
_CODES: tuple[tuple[type[CallboardError], int], ...] = (
    (InvalidInput, USAGE),
    (PayloadTooLarge, USAGE),
    (NotFound, NOT_FOUND),
    (Conflict, CONFLICT),
    (StaleFence, CONFLICT),
    (BrokerError, UNAVAILABLE),
)


def exit_code(error: CallboardError) -> int:
    """The exit code that tells of `error`."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), FAILED)
