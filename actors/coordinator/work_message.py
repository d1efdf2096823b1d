"""Work messages, as they are written: one that is written again within a short time is stored once.

Whoever dispatches may do so any number of times: a client repeats a request, a coordinator a write whose answer got
lost, another one takes over. Each copy would cost a claim, and come before the work of others.
"""

from __future__ import annotations

from typing import NamedTuple

from ...topics.messages import Work, encode
from ...topics.subjects import Subjects


class WorkMessage(NamedTuple):
    """What `Bus.write` and `Bus.store` take."""

    subject: str
    data: bytes
    head: bytes


def work_message(subjects: Subjects, queue: str, work: Work) -> WorkMessage:
    """The message of one dispatch of a run on one queue (`cb.work.{queue}`); the broker knows it again by these."""
    head = f"NATS/1.0\r\nNats-Msg-Id: {queue}.{work.run}.{work.dispatch}\r\n\r\n"
    return WorkMessage(f"{subjects.work}.{queue}", encode(work), head.encode())
