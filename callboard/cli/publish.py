"""`callboard publish` and `callboard run`: giving work."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from .options import (
    Deadline,
    Json,
    Key,
    Metadata,
    PolicyOption,
    PriorityOption,
    RunAt,
    RunIdOption,
    ThreadOption,
    Value,
    WaitTimeout,
)

if TYPE_CHECKING:
    from ..topics.messages import RunRecord, SubmitReply
    from .console import Output
    from .session import Session


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    app.command("publish", short_help="Publish a task to a topic.")(publish)
    app.command("run", short_help="Start a run of an agent.")(run)


def publish(
    ctx: typer.Context,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic that agents subscribe to.")],
    value: Value,
    run_id: RunIdOption = None,
    thread: ThreadOption = None,
    policy: PolicyOption = None,
    key: Key = None,
    metadata: Metadata = None,
    at: RunAt = None,
    deadline: Deadline = None,
    wait_timeout: WaitTimeout = None,
    priority: PriorityOption = None,
    json: Json = False,
) -> None:
    """Publish a task to a topic; it is kept until a coordinator is there. Prints the id that its run will have.

    With --key the id follows from the key, and the place in the queue is printed instead."""
    from ..topics.ids import new_run_id
    from . import values
    from .console import Output, note
    from .session import run as run_session
    from .tracing import command_trace

    data, labels = values.json_input(value), values.metadata(metadata)
    run_at, turn = None if at is None else values.moment(at), values.policy(policy)
    terms = values.terms(deadline, wait_timeout, priority)
    output = Output(json)
    name = new_run_id() if run_id is None and key is None else run_id

    async def work(session: Session) -> None:
        sequence = await session.submitter.publish(
            topic, data, run=name, thread=thread, policy=turn, key=key, metadata=labels, trace=traceparent,
            run_at=run_at, deadline_s=terms.deadline_s, wait_timeout_s=terms.wait_timeout_s, priority=terms.priority,
        )  # fmt: skip
        if output.json:
            output.record({"topic": topic, "sequence": sequence, "run": name})
        elif name is None:
            note(f"published to {topic} as message {sequence}; its run's id follows from the key")
        else:
            output.line(name)

    with command_trace(f"callboard publish {topic}") as traceparent:
        run_session(ctx, work)


def run(
    ctx: typer.Context,
    agent: Annotated[str, typer.Argument(metavar="AGENT", help="The agent that shall carry it out.")],
    value: Value = "null",
    wait: Annotated[bool, typer.Option("--wait", "-w", help="Wait for the end; print the result, not the id.")] = False,
    timeout: Annotated[
        str | None, typer.Option("--timeout", metavar="TIME", help="With --wait: how long at most, as 30s or 5m.")
    ] = None,
    run_id: RunIdOption = None,
    thread: ThreadOption = None,
    policy: PolicyOption = None,
    key: Key = None,
    metadata: Metadata = None,
    at: RunAt = None,
    deadline: Deadline = None,
    wait_timeout: WaitTimeout = None,
    priority: PriorityOption = None,
    json: Json = False,
) -> None:
    """Start a run of an agent and print its id once it is durable.

    With --wait the result goes to standard output, and the exit code tells how it ended: 0 completed, 1 otherwise,
    6 not ended in time (it goes on)."""
    from ..store.submit import require_taken
    from ..topics.messages import TaskRequest
    from . import values
    from .console import Output, note
    from .session import run as run_session
    from .tracing import command_trace

    data, labels = values.json_input(value), values.metadata(metadata)
    limit_s = None if timeout is None else values.span(timeout)
    run_at, turn = None if at is None else values.moment(at), values.policy(policy)
    terms = values.terms(deadline, wait_timeout, priority)
    output = Output(json)
    request = TaskRequest(
        agent=agent, run=run_id, thread=thread, policy=turn, key=key, metadata=labels, run_at=run_at,
        deadline_s=terms.deadline_s, wait_timeout_s=terms.wait_timeout_s, priority=terms.priority or "normal",
    )  # fmt: skip

    async def work(session: Session) -> int | None:
        reply = await session.submitter.submit(msgspec.structs.replace(request, trace=traceparent), data)
        assert reply.run is not None
        require_taken(reply)
        if not wait:
            if output.json:
                output.record(as_json(reply))
            else:
                output.line(reply.run)
                tell_turn(reply)
            return None
        try:
            note(f"run {reply.run}")
            record = await _awaited(session, reply.run, limit_s)
        except BaseException:
            note(f"the run goes on: callboard tail {reply.run}")
            raise
        return await _outcome(session, output, record)

    with command_trace(f"callboard run {agent}") as traceparent:
        run_session(ctx, work)


def as_json(reply: SubmitReply) -> dict[str, Any]:
    """What the answer to a request tells."""
    told: dict[str, Any] = {"run": reply.run, "status": reply.status, "duplicate": reply.duplicate}
    return told if reply.turn is None else told | {"thread": reply.thread, "turn": reply.turn}


def tell_turn(reply: SubmitReply) -> None:
    """Says what the policy has led to, when another run was at work in the thread, and of a fork where it works."""
    from .console import note

    turn = reply.turn
    if turn is None or (turn.met is None and turn.origin is None):
        return
    told = {
        "queued": f"waits for run {turn.met} in thread {reply.thread}",
        "interrupted": f"takes the place of run {turn.met} in thread {reply.thread}, which is interrupted",
        "rolled_back": f"takes the place of run {turn.met} in thread {reply.thread}, which is rolled back",
        "forked": f"works in thread {reply.thread}, forked from {turn.origin}",
        "alongside": f"works beside run {turn.met} in thread {reply.thread}",
    }.get(turn.did)
    if told:
        note(told)


async def _awaited(session: Session, run: str, limit_s: float | None) -> RunRecord:
    """Waits for the end; says before what the run itself waits for, if it is known."""
    from .console import note

    loaded = await session.log.load(run)
    if loaded is not None and loaded.record.reason and not loaded.record.terminal:
        note(f"it is {loaded.record.status}: {loaded.record.reason}")
    return await session.submitter.wait(run, limit_s)


async def _outcome(session: Session, output: Output, record: RunRecord) -> int:
    """Prints how a run ended, and gives the exit code."""
    from ..store.errors import naming
    from ..topics.messages import Status
    from .console import note
    from .exits import FAILED, OK, UNFINISHED

    with naming("the result", record.id):
        result = None if record.result is None else await session.blobs.value(record.result)
    if output.json:
        raw = None if result is None else msgspec.Raw(result)
        output.record({"run": record.id, "status": record.status, "result": raw, "error": record.error})
    if not record.terminal:
        why = f" ({record.reason})" if record.reason else ""
        note(f"run {record.id} is {record.status}{why} and goes on: callboard tail {record.id}")
        return UNFINISHED
    if record.status is Status.COMPLETED:
        if not output.json:
            output.line((result or b"null").decode())
        return OK
    why = (
        f": {record.error.code}: {record.error.message}" if record.error else f": {record.reason or 'no reason given'}"
    )
    note(f"run {record.id} ended {record.status}{why}")
    return FAILED
