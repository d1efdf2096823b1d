"""The garbage collector of a process that serves.

What a run is made of is freed as it ends, by reference counts. The collector is for what refers to itself, such as an
error and the frames that it came through. As Python sets it, it begins with every 700 objects that are there more than
before, and looks now and then at all modules as well: with dozens of runs in hand that was a quarter of a worker's
time, and found next to nothing.
"""

from __future__ import annotations

import gc

_YOUNG = 20_000
"""So many objects come on top before the young ones are looked at: more than the runs in hand of a worker have. What
waits for it meanwhile are a few megabytes."""
_ROUNDS = 5
"""So many looks at the young before one at those that have outlived one, and so many of these before one at all."""


def settle() -> None:
    """To be called when the process has started: what there is now stays for good, and is not looked at again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG, _ROUNDS, _ROUNDS)
