"""The threads in which the sync functions of steps run.

A thread cannot be stopped. When the caller of a function goes (canceled, or its time is over) the function goes on; its
result is dropped. Such a thread is abandoned: it is listed until its function has ended, and does not count, so that
however many of them hang, as many others work as before.
"""

from __future__ import annotations

import functools
import logging
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ...topics.messages import AbandonedStep
from ...topics.units import now

log = logging.getLogger(__name__)
T = TypeVar("T")


@dataclass(slots=True, eq=False)
class _Task:
    call: Callable[[], Any]
    future: Future[Any] = field(default_factory=Future)
    began: float = 0.0

    def run(self) -> None:
        self.began = time.monotonic()
        if not self.future.set_running_or_notify_cancel():
            return
        try:
            result = self.call()
        except BaseException as error:  # noqa: BLE001  # it is raised where it is waited for
            self.future.set_exception(error)
        else:
            self.future.set_result(result)


class _Watched(Future[T]):
    """Tells when whoever waits for it goes."""

    gone: Callable[[], Any] | None = None

    def cancel(self) -> bool:
        """Cancels what has not begun."""
        canceled = super().cancel()
        if not canceled and self.gone is not None:
            self.gone()
        return canceled


class StepThreads(Executor):
    """At most `limit` threads at work at once, besides the abandoned ones. They keep no process from ending."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._queue: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._lock = threading.Lock()
        self._threads = 0
        self._left: dict[_Task, AbandonedStep] = {}
        self._ended = False

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Has a function called that is no step: one that is abandoned goes by its own name."""
        future: _Watched[T] = _Watched()
        task = _Task(functools.partial(fn, *args, **kwargs), future)
        inner = fn.args[0] if isinstance(fn, functools.partial) and fn.args else fn
        future.gone = lambda: self.abandon(task, "", getattr(inner, "__name__", "function"))
        self._put(task)
        return future

    def begin(self, call: Callable[[], Any]) -> _Task:
        """Has it called; `future` of what this gives has its result. Raises RuntimeError after `shutdown`."""
        task = _Task(call)
        self._put(task)
        return task

    def _put(self, task: _Task) -> None:
        with self._lock:
            if self._ended:
                raise RuntimeError("this worker has stopped: it begins no steps")
            self._queue.put(task)
            if not self._idle.acquire(blocking=False):
                self._grow()

    def _grow(self) -> None:
        if self._threads - len(self._left) < self._limit:
            self._threads += 1
            threading.Thread(target=self._work, name="callboard-step", daemon=True).start()

    def _work(self) -> None:
        while True:
            try:
                task = self._queue.get_nowait()
            except queue.Empty:
                self._idle.release()
                task = self._queue.get()
            if task is None:
                return
            task.run()
            if self._has_ended(task):
                return
            del task  # while this thread waits for the next one, it keeps nothing of a step

    def _has_ended(self, task: _Task) -> bool:
        """Whether the thread ends too: another one has taken its place."""
        if not self._left and self._threads <= self._limit:  # it is done by now, so that nobody can abandon it any more
            return False
        with self._lock:
            left = self._left.pop(task, None)
            surplus = self._threads - len(self._left) > self._limit
            self._threads -= surplus
        if left is not None:
            took = time.monotonic() - task.began
            log.info("run %s: step %r, abandoned in its thread, has ended after %.1f s", left.run, left.step, took)
        return surplus

    def abandon(self, task: _Task, run: str, step: str) -> AbandonedStep | None:
        """Nobody waits for it any more. What is told of it, if it goes on; None if it has not begun, or has ended."""
        if Future.cancel(task.future) or task.future.done():
            return None
        took = time.monotonic() - task.began
        left = AbandonedStep(run=run, step=step, at=now(), after_s=round(took, 3))
        with self._lock:
            if task.future.done():
                return None
            known = task in self._left
            self._left[task] = left
            if not self._queue.empty():
                self._grow()
        if known:
            return left
        log.warning(
            "run %s: step %r is abandoned after %.1f s: its function goes on in its thread, its result is dropped",
            run, step, took,
        )  # fmt: skip
        return left

    @property
    def abandoned(self) -> list[AbandonedStep]:
        """Those whose functions have not ended."""
        with self._lock:
            return list(self._left.values())

    def shutdown(self, wait: bool = False, *, cancel_futures: bool = True) -> None:
        """Begins nothing more. What waits for a thread is cancelled; what runs is left."""
        with self._lock:
            self._ended = True
            threads = self._threads
        while True:
            try:
                task = self._queue.get_nowait()
            except queue.Empty:
                break
            if task is not None:
                task.future.cancel()
        for _ in range(threads):
            self._queue.put(None)
