"""nats-py's client with a short way in and out for hot subjects.

nats-py hands each message to a queue and a task of its subscription, after parsing its headers; a runtime whose whole
work is messages spends a third of its time there. `Client` adds two things and changes nothing else: a subscription
may be `direct` (its callback runs in the read loop, headers unparsed), and a publish may be written in one
synchronous call. Reconnecting, TLS, credentials and the protocol stay nats-py's, but that nothing ends the search for
a server. The hooks it relies on are checked at import (docs/adr/0004).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

import nats.aio.client
import nats.errors
from nats.aio.transport import TcpTransport

log = logging.getLogger(__name__)

_HOOKS = (
    "_process_msg", "_process_pong", "_process_err", "_flush_pending", "_remove_sub", "_connect_to_server",
    "_attempt_reconnect", "is_connected",
)  # fmt: skip
_WEBSOCKETS = ("ws", "wss")
_AGAIN_S = 1.0
_CANCELS, _CANCEL_S = 5, 0.1


def _check_hooks() -> None:
    missing = [name for name in _HOOKS if not hasattr(nats.aio.client.Client, name)]
    if missing:
        raise ImportError(f"nats-py has changed: {', '.join(missing)} are gone; install nats-py>=2.16,<2.17")


_check_hooks()


class Message:
    """A message as it came in: subject, reply, data, and headers that are parsed only when asked for."""

    __slots__ = ("_headers", "data", "head", "reply", "subject")

    def __init__(self, subject: str, reply: str, data: bytes, head: bytes | None) -> None:
        self.subject = subject
        self.reply = reply
        self.data = data
        self.head = head
        self._headers: dict[str, str] | None = None

    @property
    def status(self) -> int:
        """The inline status (100, 404, 408, 409, 503 …) of a server's message, 0 if there is none."""
        head = self.head
        if head is None or head[8:9] != b" ":
            return 0
        code = head[9:12]
        return int(code) if code.isdigit() else 0

    @property
    def description(self) -> str:
        """The text beside the inline status."""
        return self.head[13:].partition(b"\r\n")[0].decode(errors="replace") if self.head else ""

    @property
    def headers(self) -> dict[str, str]:
        """All headers; of a name that occurs twice the last one."""
        if self._headers is None:
            self._headers = _parsed(self.head) if self.head else {}
        return self._headers


def _parsed(head: bytes) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in head.split(b"\r\n")[1:]:
        name, colon, value = line.partition(b":")
        if colon:
            found[name.decode("latin-1").strip()] = value.decode(errors="replace").strip()
    return found


Callback = Callable[[Message], None]


def head_bytes(headers: dict[str, str]) -> bytes:
    """Headers in wire form. Line breaks in a value are folded to spaces: a value can't forge a header."""
    lines = "".join(f"{k}: {v.replace(chr(13), ' ').replace(chr(10), ' ')}\r\n" for k, v in headers.items())
    return f"NATS/1.0\r\n{lines}\r\n".encode(errors="replace")  # a lone surrogate becomes a question mark


class _Transport(TcpTransport):  # type: ignore[misc,unused-ignore]
    """A write to a connection that is gone is dropped, and the next `drain` or `read` says so, on every loop: uvloop
    would raise RuntimeError, which nats-py takes for no loss of a connection, and its search for a server would end."""

    def write(self, payload: bytes) -> None:
        """Queues one piece."""
        self.writelines([payload])

    def writelines(self, payload: list[bytes]) -> None:
        """Queues several."""
        try:
            super().writelines(payload)  # type: ignore[no-untyped-call,unused-ignore]
        except RuntimeError as error:
            log.debug("not written: %s", error)

    def abort(self) -> None:
        """Lets go of the connection at once; what was not sent is lost."""
        if self._io_writer is not None:
            self._io_writer.transport.abort()

    def __bool__(self) -> bool:
        """True: nats-py would put its own in the place of one that is not connected yet."""
        return True


class Client(nats.aio.client.Client):  # type: ignore[misc,unused-ignore]
    """See the module. Private names of nats-py are touched here and nowhere else."""

    def __init__(self) -> None:
        super().__init__()
        self._direct: dict[int, Callback] = {}

    async def open(self, within_s: float, **options: Any) -> None:
        """Connects; the options are those of `connect`. Raises what that raises, TimeoutError."""
        await _bounded(self.connect(**options), within_s)

    async def end(self, within_s: float) -> None:
        """Sends what is queued, if that is possible in half of this time, and closes. Whatever is in the way, a
        cancellation of the caller included, the connection is gone after it."""
        try:
            await _bounded(self._sent_and_closed(within_s / 2), within_s)
        except Exception as error:  # noqa: BLE001  # no failure of a goodbye is one of those who say it
            log.debug("close: %r", error)
        finally:
            if isinstance(self._transport, _Transport):
                self._transport.abort()

    async def _sent_and_closed(self, flush_s: float) -> None:
        try:
            if self.is_connected:
                await _bounded(self.flush(), flush_s)
        except (OSError, nats.errors.Error) as error:
            log.debug("flush: %r", error)
        await self.close()

    async def _process_msg(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes) -> None:
        callback = self._direct.get(sid)
        if callback is None:
            await super()._process_msg(sid, subject, reply, data, headers)
        else:
            message = Message(subject.decode(errors="replace"), reply.decode(errors="replace"), data, headers)
            try:
                callback(message)
            except Exception:  # an exception here would end nats-py's read loop, and with it the connection, in silence
                log.exception("the subscriber failed on a message of %s", message.subject)

    async def _process_pong(self) -> None:
        """The answer to a flush that has given up meanwhile counts as any other: nats-py would raise on its future,
        which ends the read loop in silence, and the connection stays deaf until its own pings are found unanswered."""
        if self._pongs and self._pongs[0].cancelled():
            self._pongs[0] = asyncio.get_running_loop().create_future()
        await super()._process_pong()

    async def _process_err(self, err_msg: str) -> None:
        """What the server complains of, as that credentials have expired, is reported. Whether it ends the connection
        is the server's choice: then another one is looked for, where nats-py would close for good."""
        await self._error_cb(nats.errors.Error(f"nats: {err_msg}"))

    async def _connect_to_server(self, s: Any) -> None:
        if self._transport is None and s.uri.scheme not in _WEBSOCKETS:
            self._transport = _Transport()  # type: ignore[no-untyped-call,unused-ignore]
        await super()._connect_to_server(s)

    async def _attempt_reconnect(self) -> None:
        """Whatever it meets, as an answer that is none of a NATS server, it goes on."""
        while True:
            try:
                await super()._attempt_reconnect()
                return
            except Exception:
                log.exception("reconnecting failed; trying again")
            await asyncio.sleep(_AGAIN_S)

    @property
    def has_begun(self) -> bool:
        """Whether `connect` came as far as using its settings: before that there is nothing to close."""
        return self._flush_queue is not None

    @property
    def server_info(self) -> dict[str, Any]:
        """INFO of the connected server."""
        return dict(self._server_info)

    async def subscribe_direct(self, subject: str, callback: Callback, queue: str = "") -> int:
        """Subscribes; `callback` runs in the read loop and must neither block nor raise. Returns the subscription
        id."""
        sub = await self.subscribe(subject, queue=queue, cb=_unused)
        sid: int = sub._id  # noqa: SLF001  # see the class
        self._direct[sid] = callback
        return sid

    async def unsubscribe_direct(self, sid: int) -> None:
        """Ends the subscription; a message already on its way is dropped."""
        self._direct.pop(sid, None)
        sub = self._subs.get(sid)
        if sub is not None and not self.is_closed and not self.is_draining:
            await sub.unsubscribe()

    async def drain_direct(self, sid: int) -> None:
        """Ends the subscription once what the server had already sent has come in, at most a second later."""
        sub = self._subs.get(sid)
        try:
            if sub is not None and not self.is_closed and not self.is_draining:
                await sub.unsubscribe()
                if self.is_connected:
                    await self.flush(timeout=1)
        finally:
            self._direct.pop(sid, None)

    def write(self, subject: str, reply: str, head: bytes | None, data: bytes) -> None:
        """Queues one publish for the next flush, in the order of the calls. The caller checks connection and size."""
        if head is None:
            command = b"PUB %b %b %d\r\n%b\r\n" % (subject.encode(), reply.encode(), len(data), data)
        else:
            size = len(head)
            command = b"HPUB %b %b %d %d\r\n%b%b\r\n" % (
                subject.encode(), reply.encode(), size, size + len(data), head, data,
            )  # fmt: skip
        self._pending.append(command)
        self._pending_data_size += len(command)
        queue = self._flush_queue
        if queue is not None and queue.empty():
            queue.put_nowait(asyncio.get_running_loop().create_future())


async def _bounded(work: Coroutine[Any, Any, None], limit_s: float) -> None:
    """Awaits for so long at most, also what swallows its cancellation, as nats-py does in places. Raises TimeoutError,
    what the work raises, and ConnectionAbortedError when it was cancelled from inside."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait((task,), timeout=limit_s)
    finally:
        late = not task.done()
        for _ in range(_CANCELS):
            if task.done():
                break
            task.cancel()
            await asyncio.wait((task,), timeout=_CANCEL_S)
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
    if late:
        raise TimeoutError
    if task.cancelled():
        raise ConnectionAbortedError("given up by the client")
    task.result()


async def _unused(_: Any) -> None:
    """The callback nats-py asks for; direct subscriptions never reach it."""
