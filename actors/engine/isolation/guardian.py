"""Leads the process group of one step, and ends all of it: when the step has ended, or the worker is gone.

Run as a script, `guardian.py ANSWERS`, with the order on standard input (its length in 8 bytes, then itself). Standard
input stays open as long as the worker lives. It forks before anything else is imported: whatever the step's code does
to its own interpreter, this one still watches. To the file descriptor ANSWERS it writes how the step's process ended
(its exit code in 4 bytes, a signal as a negative number), and what it has answered (the length in 8 bytes, then that).
"""

import contextlib
import importlib
import os
import select
import signal
import struct
import sys

_LOOK_S = 1.0
_PIECE = 65536
_DESCRIPTORS = 4096


def main(answers: int) -> None:
    """Takes the order, has it carried out, passes the answer on."""
    worker = os.getppid()
    os.closerange(3, answers)  # some event loops leave copies of the standard streams
    os.closerange(answers + 1, _DESCRIPTORS)
    order = _order()
    if order is None:
        return
    from_step, to_guardian = os.pipe()
    step = os.fork()
    if step == 0:
        os.close(answers)
        os.close(from_step)
        _carry_out(order, to_guardian)
        return
    os.close(to_guardian)
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.dup2(silent, 2)
    status, answer = _guard(step, from_step, worker)
    with contextlib.suppress(OSError):  # nobody may want it any more
        _write(answers, struct.pack("!iQ", os.waitstatus_to_exitcode(status), len(answer)) + answer)
    _end_group()


def _order() -> bytes | None:
    head = _read(8)
    return None if head is None else _read(struct.unpack("!Q", head)[0])


def _read(size: int) -> bytes | None:
    found = b""
    while len(found) < size:
        piece = os.read(0, min(_PIECE * 16, size - len(found)))
        if not piece:
            return None
        found += piece
    return found


def _write(target: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(target, rest) :]


def _guard(step: int, from_step: int, worker: int) -> tuple[int, bytes]:
    """How the step's process ended, and what it said. Ends everything if the worker goes first."""
    told, tell = os.pipe()
    os.set_blocking(tell, False)
    os.set_blocking(from_step, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(tell)
    pieces: list[bytes] = []
    watched = [0, from_step, told]
    while True:
        ended, status = os.waitpid(step, os.WNOHANG)
        if not _drain(from_step, pieces) and from_step in watched:
            watched.remove(from_step)
        if ended:
            return status, b"".join(pieces)
        ready = select.select(watched, [], [], _LOOK_S)[0]
        if told in ready:
            os.read(told, 64)
        if os.getppid() != worker or (0 in ready and not os.read(0, _PIECE)):
            _end_group()


def _drain(source: int, pieces: list[bytes]) -> bool:
    """Whether more may come."""
    try:
        while piece := os.read(source, _PIECE):
            pieces.append(piece)
    except BlockingIOError:
        return True
    return False


def _end_group() -> None:
    os.killpg(os.getpid(), signal.SIGKILL)


def _carry_out(order: bytes, answers: int) -> None:
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    code = 1
    try:
        callee = importlib.import_module("callboard.actors.engine.isolation.callee")
        _write(answers, callee.carry_out(order))
        code = 0
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)


if __name__ == "__main__":
    main(int(sys.argv[1]))
