"""Answers in process: held against what was asked, as the coordinator does it for runs on workers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec

from ...topics import codec
from ...topics.errors import InvalidAnswer
from ...topics.messages import ASKED
from ..answer import Answer
from .ground import Question


def accepted_answer(question: Question, name: str, given: Any) -> Answer:
    """The answer as the node will get it, under the question's id: its value as plain JSON. Raises InvalidAnswer."""
    answer = given if isinstance(given, Answer) else Answer(name, "respond", given)
    allowed = question.options.get("actions") or ASKED
    if answer.action not in allowed:
        raise InvalidAnswer(f"question {name!r} takes {', '.join(allowed)}, not {answer.action}", interrupt=name)
    data = codec.encode(question.payload if answer.action == "approve" else answer.value)
    if answer.action != "reject":
        _require_fit(question, name, data)
    return replace(answer, id=name, value=codec.decode(data))


def _require_fit(question: Question, name: str, data: bytes) -> None:
    returns, schema = question.options.get("returns"), question.options.get("schema")
    faults = codec.faults(msgspec.json.encode(schema), data) if schema is not None else []
    if schema is None and returns is not None and returns is not Answer:
        try:
            codec.decode(data, returns)
        except codec.DecodeError as error:
            faults = [error.message]
    if faults:
        raise InvalidAnswer(f"the answer to {name!r} does not fit: {faults[0]}", interrupt=name, faults=faults)
