"""`@migrate`: functions that bring the state of an older version into the form of a newer one.

    @migrate(State, from_version=1, to_version=2)        # Graph(State, schema_version=2)
    def split_name(state: dict[str, Any]) -> None:
        state["first"], _, state["last"] = state.pop("name").partition(" ")

    @migrate("writer", from_version="1", to_version="2")  # @agent("writer", version="2")
    def rename(state: dict[str, Any]) -> dict[str, Any]:
        return {"text": state["draft"]}

A checkpoint says with which version of its agent, and which version of its state's schema, it was written. Whoever
loads it has the steps from those to today's carried out, once, on the plain values of its channels. The steps of a
schema come first, then those of the agent. Nothing is written by that: the next checkpoint is of today's version.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from ..topics import codec
from ..topics.errors import CallboardError, InvalidInput
from .agent import Agent

Values = dict[str, Any]
"""The values of a state's channels as plain JSON, by channel."""
F = TypeVar("F", bound=Callable[[Values], "Values | None"])


class MigrationMissing(CallboardError):
    """A checkpoint is of another version than the code, and no migration leads from there to here. A retry after one
    was deployed goes on from the checkpoint. Facts: `of`, `found`, `wanted`."""

    code = "migration_missing"


class MigrationFailed(CallboardError):
    """A migration raised, or gave what is no state. Facts: `of`, `found`, `wanted`."""

    code = "migration_failed"


@dataclass(frozen=True)
class Migration:
    """One step of a chain."""

    of: str
    """Whose state it is, for people."""
    found: str
    wanted: str
    fn: Callable[[Values], Values | None]

    def carried_out(self, values: Values) -> Values:
        """The state after it. Raises MigrationFailed."""
        given = copy.deepcopy(values)
        try:
            made = self.fn(given)
        except Exception as error:
            raise self.failed(f"raised {type(error).__name__}: {error}") from error
        return self._checked(given if made is None else made)

    def _checked(self, made: object) -> Values:
        if not isinstance(made, dict) or not all(isinstance(name, str) for name in made):
            raise self.failed("did not give a dict of values by channel")
        return made

    def failed(self, what: str) -> MigrationFailed:
        """The error that names it."""
        name = getattr(self.fn, "__qualname__", repr(self.fn))
        return MigrationFailed(
            f"migration {name} of {self.of} from version {self.found!r} to {self.wanted!r} {what}",
            of=self.of, found=self.found, wanted=self.wanted,
        )  # fmt: skip


class Migrations:
    """Chains of steps, by whose state they are for: the name of an agent, or a state's class."""

    def __init__(self) -> None:
        self._steps: dict[Any, dict[str, list[Migration]]] = {}

    def add(self, key: Any, step: Migration) -> None:
        """Takes a step in. Raises InvalidInput for one that leads nowhere, and a second one between two versions."""
        if step.found == step.wanted:
            raise InvalidInput(f"a migration of {step.of} leads from version {step.found!r} to itself")
        steps = self._steps.setdefault(key, {}).setdefault(step.found, [])
        for at, known in enumerate(steps):
            if known.wanted == step.wanted:
                if not _same(known.fn, step.fn):
                    raise InvalidInput(
                        f"two migrations of {step.of} lead from version {step.found!r} to {step.wanted!r}: "
                        f"{_where(known.fn)} and {_where(step.fn)}"
                    )
                steps[at] = step  # its module was imported again
                return
        steps.append(step)

    def knows(self, key: Any) -> bool:
        """Whether there is any step for this state."""
        return key in self._steps

    def plan(self, key: Any, found: str, wanted: str) -> list[Migration] | None:
        """The shortest chain from one version to another; None when there is none. Of two of the same length the one
        that was declared first."""
        steps = self._steps.get(key, {})
        chains: deque[list[Migration]] = deque([[]])
        seen = {found}
        while chains:
            chain = chains.popleft()
            at = chain[-1].wanted if chain else found
            if at == wanted:
                return chain
            for step in steps.get(at, ()):
                if step.wanted not in seen:
                    seen.add(step.wanted)
                    chains.append([*chain, step])
        return None


REGISTERED = Migrations()
"""Those of this process."""


def migrate(of: Agent[Any] | str | type, /, *, from_version: str | int, to_version: str | int) -> Callable[[F], F]:
    """Registers a function for states of that version, and gives it back unchanged: of an agent (or its name) a version
    of it, "" for none; of the class of a graph's state a `schema_version`.

    It is given the values by channel as plain JSON and changes them, or returns others. It may be called again for the
    same state, in another attempt, so it asks for nothing but its argument. Raises InvalidInput when there is one for
    these two versions already."""
    key = of.name if isinstance(of, Agent) else of
    what = f"agent {key!r}" if isinstance(key, str) else f"state {codec.type_name(key)}"

    def register(fn: F) -> F:
        REGISTERED.add(key, Migration(what, str(from_version), str(to_version), fn))
        return fn

    return register


@dataclass(frozen=True, kw_only=True)
class Ages:
    """With which versions a state was written, and which ones the code has now."""

    agent: str
    found: str
    """The agent's version then."""
    wanted: str
    schema: Any = None
    """The class of the state; None: it has no version of its own."""
    schema_found: str = ""
    schema_wanted: str = ""


def planned(ages: Ages, registered: Migrations = REGISTERED) -> list[Migration]:
    """The steps that lead from then to now; none where nothing has changed that needs one.

    A schema of another version needs a chain. Another version of the agent needs one as soon as the agent has any
    migration; one that has none takes the state as it is. Raises MigrationMissing, which says what to write."""
    steps: list[Migration] = []
    if ages.schema is not None and ages.schema_found != ages.schema_wanted:
        what = f"state {codec.type_name(ages.schema)}"
        steps += _chain(registered, ages.schema, what, ages.schema_found, ages.schema_wanted)
    if ages.found != ages.wanted and registered.knows(ages.agent):
        steps += _chain(registered, ages.agent, f"agent {ages.agent!r}", ages.found, ages.wanted)
    return steps


def _chain(registered: Migrations, key: Any, what: str, found: str, wanted: str) -> Sequence[Migration]:
    chain = registered.plan(key, found, wanted)
    if chain is None:
        raise missing(key, what, found, wanted)
    return chain


def unfitting(agent: str, found: str, wanted: str, error: CallboardError) -> MigrationMissing:
    """The error of a state that was taken as it is, and does not fit the code."""
    return MigrationMissing(
        f"the checkpoint, of version {found!r} of agent {agent!r}, does not fit the code of this worker, which has "
        f"version {wanted!r}: {error.message}. Or write a migration, deploy it, and retry the run",
        of=f"agent {agent!r}", found=found, wanted=wanted,
    )  # fmt: skip


def missing(key: Any, what: str, found: str, wanted: str) -> MigrationMissing:
    """The error of a state that cannot be brought into today's form."""
    of = f'"{key}"' if isinstance(key, str) else codec.type_name(key)
    numbers = f"{found!r}, to_version={wanted!r}" if isinstance(key, str) else f"{found}, to_version={wanted}"
    return MigrationMissing(
        f"the checkpoint has {what} of version {found!r}, this worker has version {wanted!r}, and no migration leads "
        f"from one to the other: write @migrate({of}, from_version={numbers}), deploy it, and retry the run",
        of=what, found=found, wanted=wanted,
    )  # fmt: skip


def migrated(values: Values, steps: Sequence[Migration]) -> Values:
    """The state after all steps. Raises MigrationFailed."""
    for step in steps:
        values = step.carried_out(values)
    return values


def migrated_raws(raws: Mapping[str, bytes], steps: Sequence[Migration]) -> dict[str, bytes]:
    """The same for values that are JSON. Raises MigrationFailed."""
    if not steps:
        return dict(raws)
    values = migrated({name: msgspec.json.decode(raw) for name, raw in raws.items()}, steps)
    try:
        return {name: codec.encode(value) for name, value in values.items()}
    except codec.EncodeError as error:
        raise steps[-1].failed(f"gave what cannot be carried: {error}") from error


def _same(one: Callable[..., Any], other: Callable[..., Any]) -> bool:
    """Whether both come from one definition: a module may be imported again, also under another name."""
    codes = [getattr(fn, "__code__", None) for fn in (one, other)]
    places = [(code.co_filename, code.co_firstlineno) if code else None for code in codes]
    return _where(one) == _where(other) or (places[0] is not None and places[0] == places[1])


def _where(fn: Callable[..., Any]) -> str:
    return f"{getattr(fn, '__module__', '?')}.{getattr(fn, '__qualname__', fn)}"
