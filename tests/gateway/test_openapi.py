"""The OpenAPI document against the running gateway: what it says holds for generated requests, good and bad."""

from __future__ import annotations

import contextlib
import time
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.core.result import Ok
from schemathesis.specs.openapi import checks
from schemathesis.specs.openapi.adapter import parameters

from .serving import Gateway

FULL_S = 12.0
"""How long all operations may take together where they are played at length."""
EMPTY = {"openapi": "3.1.0", "info": {"title": "", "version": ""}, "paths": {}}
# Here, and not within a test or an example: Python 3.11 cannot always compile a module that deep in the stack.
LOADED = [parameters, list(schemathesis.openapi.from_dict(EMPTY).get_all_operations())]
# They wait (for an event, for an end, for an answer of the workers), so each example could cost its time-out.
SLOW = {"/runs/{run}/events", "/runs/{run}/wait", "/agents"}
# A thread or run with the same id and other content is refused, which no schema can say.
EXCLUDED = [checks.positive_data_acceptance, checks.use_after_free, checks.ensure_resource_availability]


MODES = pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])


@pytest.mark.slow
@pytest.mark.timeout(150)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@MODES
def test_generated_requests(served: Gateway, mode: GenerationMode) -> None:
    """A few of each operation: right ones of one half, wrong ones of the other."""
    _play(served, mode, examples=3, budget_s=FULL_S / 2, half=mode is GenerationMode.NEGATIVE)


@pytest.mark.proof
@pytest.mark.timeout(400)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@MODES
def test_many_generated_requests(served: Gateway, mode: GenerationMode) -> None:
    _play(served, mode, examples=20, budget_s=FULL_S)


def _play(served: Gateway, mode: GenerationMode, examples: int, budget_s: float, half: bool | None = None) -> None:
    schema = schemathesis.openapi.from_url(f"{served.url}/openapi.json")
    operations: list[Any] = [found.ok() for found in schema.get_all_operations() if isinstance(found, Ok)]
    assert len(operations) > 20
    if half is not None:
        operations = operations[half::2]
    if mode is GenerationMode.NEGATIVE:
        operations = [operation for operation in operations if _can_be_wrong(operation)]
    began = time.monotonic()
    for done, operation in enumerate(operations):
        left = budget_s - (time.monotonic() - began)
        deadline = time.monotonic() + max(0.3, left / (len(operations) - done))
        _try(operation, mode, deadline, min(examples, 2) if operation.path in SLOW else examples)
    assert httpx.get(f"{served.url}/readyz").status_code == 200


def _can_be_wrong(operation: Any) -> bool:
    """Whether anything is asked for besides words of the path, of which each is right: generating a wrong one for
    those is tried for seconds, in vain."""
    words = [one.definition["schema"] for one in operation.path_parameters]
    bound = any(schema.keys() - {"title"} != {"type"} or schema["type"] != "string" for schema in words)
    return bound or bool(list(operation.body) or list(operation.query) or list(operation.headers))


def _try(operation: Any, mode: GenerationMode, deadline: float, examples: int) -> None:
    @settings(
        max_examples=examples, deadline=None, database=None, derandomize=True, phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(case=operation.as_strategy(generation_mode=mode))
    def each(case: schemathesis.Case[Any]) -> None:
        waits = str((case.query or {}).get("min_sequence", 0)).strip("0") != ""  # for what does not come: a 503
        if time.monotonic() < deadline and not waits:
            case.call_and_validate(excluded_checks=EXCLUDED, timeout=30)

    with contextlib.suppress(Unsatisfiable):  # nothing about this operation can be wrong
        each()
