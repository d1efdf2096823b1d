"""Arguments and options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="JSON on standard output, one value a line.")]
Run = Annotated[str, typer.Argument(metavar="RUN", help="The run's id.")]
Value = Annotated[str, typer.Argument(metavar="JSON", help="The input as JSON; - reads it from standard input.")]
Key = Annotated[
    str | None, typer.Option("--key", metavar="KEY", help="Idempotency key: the same key and input give the same run.")
]
RunIdOption = Annotated[str | None, typer.Option("--id", metavar="RUN", help="The id that the run shall have.")]
ThreadOption = Annotated[str | None, typer.Option("--thread", metavar="THREAD", help="The thread it belongs to.")]
PolicyOption = Annotated[
    str | None,
    typer.Option(
        "--policy",
        metavar="POLICY",
        help="If the thread is busy: enqueue (default), reject, interrupt, rollback, fork, optimistic.",
    ),
]
Metadata = Annotated[
    list[str] | None,
    typer.Option(
        "--metadata", metavar="NAME=VALUE", help="Metadata; repeatable. VALUE is JSON if it can be, else text."
    ),
]
RunAt = Annotated[
    str | None,
    typer.Option("--at", metavar="WHEN", help="Begin then: an ISO time (UTC without a zone), or 30s, 5m, 2h from now."),
]
Deadline = Annotated[
    str | None, typer.Option("--deadline", metavar="TIME", help="End it as timed_out if it takes longer, as 30s or 5m.")
]
WaitTimeout = Annotated[
    str | None,
    typer.Option("--wait-timeout", metavar="TIME", help="End it as timed_out if no worker takes it within this time."),
]
PriorityOption = Annotated[
    str | None, typer.Option("--priority", metavar="CLASS", help="At its agent's limits: high, normal (default), low.")
]
