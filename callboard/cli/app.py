"""The command line as a whole: global options, the commands, and how errors leave."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from ..topics.errors import CallboardError, InvalidInput
from .console import note
from .environment import Globals
from .exits import BROKEN_PIPE, INTERRUPTED, exit_code
from .wording import clean

_VALUED = ("--nats-url", "--namespace")
_COUNTED = ("--verbose", "-v", "-vv")


class RootGroup(TyperGroup):
    """Takes the global options at any place of the line, and turns errors into one line and an exit code."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Moves the global options to the front, then parses as usual. Refuses what is not UTF-8: nothing that takes a
        word of the line could pass it on."""
        for word in args:
            if not _is_utf8(word):
                raise typer.BadParameter(f"{clean(word)[:80]!r} is not UTF-8: give the whole line in UTF-8", ctx)
        return super().parse_args(ctx, hoisted(args))

    def invoke(self, ctx: Any) -> Any:
        """Runs the command."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except CallboardError as error:
            report(error)
            raise typer.Exit(exit_code(error)) from None
        except (KeyboardInterrupt, EOFError):
            raise typer.Exit(INTERRUPTED) from None
        except BrokenPipeError:
            # What is buffered can go nowhere; without this the interpreter would try, and complain, at its end.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(BROKEN_PIPE) from None
        except OSError as error:
            if not isinstance(error.filename, str | bytes | os.PathLike):
                raise
            unusable = InvalidInput(f"{os.fsdecode(error.filename)[:200]}: {error.strerror or error}")
            report(unusable)
            raise typer.Exit(exit_code(unusable)) from None
        return result


def _is_utf8(word: str) -> bool:
    try:
        word.encode()
    except UnicodeEncodeError:
        return False
    return True


def hoisted(args: Sequence[str]) -> list[str]:
    """The arguments with the global options first; what follows `--` stays as it is."""
    front: list[str] = []
    rest: list[str] = []
    words = iter(args)
    for word in words:
        if word == "--":
            rest += [word, *words]
        elif word in _VALUED:
            front += [word, *([value] if (value := next(words, None)) is not None else [])]
        elif word in _COUNTED or word.startswith(tuple(f"{name}=" for name in _VALUED)):
            front.append(word)
        else:
            rest.append(word)
    return front + rest


def report(error: CallboardError) -> None:
    """The error on standard error: what was wrong and what to do, with its code; an author's traceback before it."""
    detail = error.facts.get("detail")
    if detail:
        note(str(detail).rstrip())
    note(f"callboard: {clean(error.message)} [{error.code}]")


app = typer.Typer(
    cls=RootGroup,
    name="callboard",
    help="Agents as actors on NATS JetStream: start the roles, give them tasks, watch and mend.",
    epilog="The options above may stand anywhere on the line. Exit codes: docs/cli.md.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)


@app.callback()
def options(
    ctx: typer.Context,
    nats_url: Annotated[
        str | None, typer.Option("--nats-url", metavar="URL", help="NATS servers, separated by commas. [env: NATS_URL]")
    ] = None,
    namespace: Annotated[
        str | None,
        typer.Option("--namespace", metavar="NAME", help="First token of every subject. [env: CALLBOARD_NAMESPACE]"),
    ] = None,
    verbose: Annotated[
        int, typer.Option("--verbose", "-v", count=True, help="More in the log; -vv for libraries too.")
    ] = 0,
) -> None:
    """Global options."""
    ctx.obj = Globals(nats_url, namespace, verbose)


def _register() -> None:
    from . import (
        agents,
        answers,
        artifacts,
        attention,
        check,
        checkpoints,
        deadletters,
        dev,
        doctor,
        effects,
        fork,
        interrupts,
        publish,
        replay,
        roles,
        runs,
        schedules,
        state,
        tail,
        webhooks,
    )
    from . import version as versions

    giving = (publish, fork, runs, answers, interrupts, effects, state, checkpoints, tail, replay, schedules)
    looking = (agents, artifacts, deadletters, doctor, check)
    for module in (dev, roles, *giving, attention, webhooks, *looking, versions):
        module.register(app)


_register()
