"""`@agent`: how an author declares an agent, its topics and its limits."""

from __future__ import annotations

import inspect
import math
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar, Generic, Literal, TypeVar

from msgspec import Raw

from ..topics import codec
from ..topics.errors import CallboardError, InvalidInput
from ..topics.messages import AgentInfo, ErrorInfo, RetryPolicy
from ..topics.subjects import require_token
from ..topics.versions import require_version
from .limit import Limit, Rate, limits

R = TypeVar("R")
OnMissing = Literal["fail", "new_run"]
"""What becomes of a run whose checkpoint is of another version, with no migration: it fails, and a retry goes on from
there once there is one; or another run starts from its input."""


class Terminal(CallboardError):
    """Raise it in an agent or a step to end the run as failed at once: no further attempt would help."""

    code: ClassVar[str] = "terminal"
    retryable: ClassVar[bool] = False


class Retryable(CallboardError):
    """Raise it in an agent to have the attempt repeated under the agent's retry policy, whatever its lists say."""

    code: ClassVar[str] = "retryable"
    retryable: ClassVar[bool] = True


MOST_ATTEMPTS = 1_000_000
TRANSIENT: tuple[type[BaseException], ...] = (OSError, TimeoutError)
"""What is repeated when the author says nothing: the network, the disk, a limit of time."""


@dataclass(frozen=True, kw_only=True)
class Retry:
    """When and how a failed attempt of a run, or a failed step, is repeated.

    The n-th repetition waits `initial · factor^(n-1)`, at most `maximum`; the last `jitter` (0 to 1) of it is
    random."""

    max_attempts: int = 3
    """The first included. 1 never repeats."""
    initial: timedelta = timedelta(seconds=1)
    factor: float = 2.0
    maximum: timedelta = timedelta(seconds=60)
    jitter: float = 0.1
    on: tuple[type[BaseException], ...] = (Exception,)
    """Errors that are repeated. `Terminal` and a bad input never are, `Retryable` always is."""
    never: tuple[type[BaseException], ...] = ()
    """Errors that are not repeated although `on` names them."""

    def __post_init__(self) -> None:
        if not 1 <= self.max_attempts <= MOST_ATTEMPTS or not isinstance(self.max_attempts, int):
            raise InvalidInput(f"{self}: max_attempts is a whole number of 1 to {MOST_ATTEMPTS}")
        if not 1 <= self.factor < math.inf or not 0 <= self.jitter <= 1:  # "not" refuses nan as well
            raise InvalidInput(f"{self}: factor is at least 1, and finite, jitter is 0 to 1")
        if self.initial < timedelta(0) or self.maximum < timedelta(0):
            raise InvalidInput(f"{self}: delays cannot be negative")

    def covers(self, error: BaseException) -> bool:
        """Whether this error is worth another try."""
        if isinstance(error, (Terminal, codec.EncodeError, codec.DecodeError, *self.never)):
            return False
        if isinstance(error, Retryable):
            return True
        if isinstance(error, CallboardError) and not isinstance(error, self._own()):
            return error.retryable
        return isinstance(error, self.on)

    def pause_s(self, tries: int) -> float:
        """Seconds before the try that follows so many."""
        return self.policy().delay_s(tries, random.random())

    def _own(self) -> tuple[type[BaseException], ...]:
        """Of `on` what means Callboard's own errors, which otherwise say themselves whether a retry helps."""
        return tuple(kind for kind in self.on if issubclass(kind, CallboardError))

    def policy(self) -> RetryPolicy:
        """Its part that the coordinator needs."""
        return RetryPolicy(
            max_attempts=self.max_attempts,
            initial=self.initial.total_seconds(),
            factor=self.factor,
            maximum=self.maximum.total_seconds(),
            jitter=self.jitter,
        )


DEFAULT_RETRY = Retry(on=TRANSIENT)
"""Three attempts for transient errors, none for others."""


@dataclass(frozen=True, eq=False)
class Agent(Generic[R]):
    """A declared agent. Calling it calls its function: tests need no runtime."""

    name: str
    fn: Callable[..., Awaitable[R]]
    topics: tuple[str, ...]
    retries: Retry
    timeout: timedelta | None
    deadline: timedelta | None
    wait_timeout: timedelta | None
    limit: Limit | None
    rate: Rate | None
    version: str
    pin: bool
    on_missing: OnMissing
    description: str
    input_type: Any
    result_type: Any
    takes_input: bool
    state_type: Any = None
    """Of `ctx.state`; None: a dict."""
    reads: Callable[[bytes | Raw], Any] | None = None
    """What becomes of an input as JSON before the function gets it; None: it is read as `input_type`."""
    nodes: tuple[str, ...] | None = None
    """Of a graph: what an edit may give as `as_node`."""

    def __call__(self, *args: Any, **kwargs: Any) -> Awaitable[R]:  # noqa: D102  # the class says it
        return self.fn(*args, **kwargs)

    def read(self, data: bytes | Raw) -> Any:
        """The input that the function is called with. Raises DecodeError."""
        return codec.decode(data, self.input_type) if self.reads is None else self.reads(data)

    def covers(self, error: BaseException) -> bool:
        """Whether the retry policy repeats what failed with this error; with several at once if it does for each."""
        if isinstance(error, BaseExceptionGroup):
            return all(self.covers(one) for one in error.exceptions)
        return self.retries.covers(error)

    def starts_anew(self, error: ErrorInfo | None) -> bool:
        """Whether a run that failed so is followed by one that starts from its input."""
        return self.on_missing == "new_run" and error is not None and error.code == "migration_missing"

    def info(self) -> AgentInfo:
        """What a worker registers."""
        return AgentInfo(
            name=self.name,
            topics=list(self.topics),
            version=self.version,
            pin=self.pin,
            description=self.description,
            retry=self.retries.policy(),
            timeout_s=_seconds(self.timeout),
            deadline_s=_seconds(self.deadline),
            wait_timeout_s=_seconds(self.wait_timeout),
            limits=limits(self.limit, self.rate),
            input_schema=codec.json_schema(self.input_type),
            output_schema=codec.json_schema(self.result_type),
            state_schema=None if self.state_type is None else codec.json_schema(self.state_type),
            nodes=None if self.nodes is None else list(self.nodes),
        )


def _seconds(limit: timedelta | None) -> float | None:
    return limit.total_seconds() if limit else None


def agent(
    name: str,
    *,
    topics: Sequence[str] = (),
    retries: Retry = DEFAULT_RETRY,
    timeout: timedelta | None = None,
    deadline: timedelta | None = None,
    wait_timeout: timedelta | None = None,
    limit: Limit | None = None,
    rate: Rate | None = None,
    version: str = "",
    pin: bool = False,
    on_missing: OnMissing = "fail",
    description: str | None = None,
    state: Any = None,
) -> Callable[[Callable[..., Awaitable[R]]], Agent[R]]:
    """Declares an async function `(ctx, input) -> result` as the agent `name`, subscribed to `topics`.

    Input and result are typed by annotation. `timeout` limits one attempt, `deadline` the whole run from its
    creation, `wait_timeout` each wait for a worker: past the latter two the run ends as timed_out, with all below it.
    `limit` and `rate` hold across all workers. `version` names the version of its code; with `pin`, runs that begin
    under it are carried out by workers of that version only. `description` defaults to the docstring's first line.
    `state` is the type of `ctx.state`, which must be made without arguments and be an object in JSON (default: a dict).
    Raises InvalidSubject for a name, topic or version that cannot be a subject token, InvalidInput for a function that
    cannot be called so."""
    require_token("agent", name)
    if isinstance(topics, str):
        raise InvalidInput(f"topics of agent {name!r} must be a list of names: write topics=[{topics!r}]")
    for topic in topics:
        require_token("topic", topic)
    require_version(version)
    if pin and not version:
        raise InvalidInput(f'agent {name!r} has pin=True and no version to pin its runs to: add version="1"')
    for what, time in (("timeout", timeout), ("deadline", deadline), ("wait_timeout", wait_timeout)):
        if time is not None and time <= timedelta(0):
            raise InvalidInput(f"{what} of agent {name!r} must be positive, not {time}")

    def declare(fn: Callable[..., Awaitable[R]]) -> Agent[R]:
        if not inspect.iscoroutinefunction(fn):
            raise InvalidInput(
                f"agent {name!r} must be an async function: write `async def {getattr(fn, '__name__', '')}`"
            )
        try:
            input_type, result_type = codec.handler_types(fn)
            if state is not None:
                codec.check_type(state)
        except TypeError as error:
            raise InvalidInput(f"agent {name!r}: {error}") from error
        doc = (inspect.getdoc(fn) or "").partition("\n")[0]
        return Agent(
            name=name,
            fn=fn,
            topics=tuple(topics),
            retries=retries,
            timeout=timeout,
            deadline=deadline,
            wait_timeout=wait_timeout,
            limit=limit,
            rate=rate,
            version=version,
            pin=pin,
            on_missing=on_missing,
            description=doc if description is None else description,
            input_type=input_type,
            result_type=result_type,
            takes_input=len(inspect.signature(fn).parameters) > 1,
            state_type=state,
        )

    return declare
