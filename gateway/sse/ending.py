"""When a stream of events is over: what is known of the ends of the runs that it tells of."""

from __future__ import annotations

import msgspec

from ...topics.ids import root_of
from ...topics.messages import TERMINAL, Status
from ...topics.reads import Stored


class _State(msgspec.Struct):
    status: Status


_decode = msgspec.json.Decoder(_State).decode


class Ending:
    """Follows the states of one run, or of a whole tree.

    A tree is over when its root has ended and every descendant that began has ended too."""

    def __init__(self, run: str) -> None:
        self._root = root_of(run)
        self._only = run
        self._newest: dict[str, int] = {}
        self._open: set[str] = set()
        self._last_end = 0
        self._root_ended = False

    @property
    def at(self) -> int | None:
        """The sequence of the state with which all had ended; None while something goes on."""
        return self._last_end if self._root_ended and not self._open else None

    def see(self, stored: Stored) -> None:
        """Takes in a state event; one older than the newest seen of its run, or broken, changes nothing."""
        run = stored.subject.rsplit(".", 2)[1]
        if self._newest.get(run, 0) >= stored.sequence:
            return
        try:
            status = _decode(stored.data).status
        except msgspec.MsgspecError:
            return
        self._newest[run] = stored.sequence
        if status not in TERMINAL:
            self._open.add(run)
            return
        self._open.discard(run)
        self._last_end = max(self._last_end, stored.sequence)
        self._root_ended = self._root_ended or run in (self._root, self._only)
