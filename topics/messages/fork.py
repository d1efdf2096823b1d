"""Where a run continues from that begins with the state of another one."""

from __future__ import annotations

from msgspec import Struct

from .values import Payload


class Fork(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A checkpoint of another run from which a run begins."""

    run: str = ""
    """Only a command `fork`, which names the run otherwise, may leave it out."""
    checkpoint: int = 0
    """Its id, the stream sequence of its message. 0 in a request: the newest one; in a record never."""
    update: Payload | None = None
    """An edit of the state, by channel, applied before the run begins; checked against the state's schema there."""
    as_node: str | None = None
    """The node that the edit is taken to come from: what follows it is carried out next."""
    anew: bool = False
    """Whether the run has an input of its own, which is added to the state. Otherwise it goes on where that run was."""


class Tip(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The state of a thread: the checkpoint that the next run of the same agent there begins from."""

    run: str
    checkpoint: int
    agent: str
