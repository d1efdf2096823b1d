"""Times in request bodies."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from pydantic import AwareDatetime, BeforeValidator, Field, StrictFloat, StrictInt

LONGEST_S = 316_224_000
"""Ten years, in seconds: the longest delay and interval."""


def _moment(given: Any) -> Any:
    """A text is an ISO time with a zone, never a number in quotes."""
    if not isinstance(given, str):
        return given
    found = datetime.fromisoformat(given)
    if found.tzinfo is None:
        raise ValueError("the time needs a zone: add Z or an offset such as +02:00")
    return found


Delay = Annotated[StrictInt | StrictFloat, Field(ge=0, le=LONGEST_S)]
_Stamp = Annotated[AwareDatetime, Field(strict=True)]
RunAt = Annotated[_Stamp | Delay, BeforeValidator(_moment)]
"""When a run may begin: a time with a zone, or seconds from now."""
Moment = Annotated[_Stamp, BeforeValidator(_moment)]
