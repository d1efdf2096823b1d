"""The bodies of every message, as msgspec structs in JSON. Unknown fields are ignored, so that versions can mix.

`Raw` fields hold JSON that travels unread: the coordinator never decodes a user's data.
"""

from .attention import Notice, Parked, Webhook
from .checkpoint import Cell, Checkpoint, Label, Source
from .entries import Artifact, Event, Step
from .fork import Fork, Tip
from .gate import KEYLESS, Gate, Holder
from .interrupts import ASKED, Answer, AnswerAction, Answered, Asked, Escalated, Escalation, Interrupt, Word
from .limits import Limits, Priority
from .presence import AbandonedStep, AgentInfo, WorkerInfo
from .records import DeadLetter, ThreadMessage, ThreadRecord
from .requests import Alive, Command, CommandReply, SubmitReply, TaskRequest
from .run import ASKING, TERMINAL, CancelOrder, RetryPolicy, Ruling, RunRecord, Status, UnknownEffect
from .turn import POLICIES, Deed, Entry, Origin, Policy, ThreadHead, Turn
from .values import NOTHING, VERSION, BlobRef, ErrorInfo, Payload, encode
from .work import (
    SUSPECT_LOSSES,
    ChildrenReply,
    ChildrenRequest,
    ChildRequest,
    ChildState,
    Claim,
    ClaimReply,
    ClaimRequest,
    Grant,
    Outcome,
    OutcomeReply,
    OutcomeRequest,
    OutcomeVerdict,
    Work,
)

__all__ = [
    "ASKED",
    "ASKING",
    "KEYLESS",
    "NOTHING",
    "POLICIES",
    "SUSPECT_LOSSES",
    "TERMINAL",
    "VERSION",
    "AbandonedStep",
    "AgentInfo",
    "Alive",
    "Answer",
    "AnswerAction",
    "Answered",
    "Artifact",
    "Asked",
    "BlobRef",
    "CancelOrder",
    "Cell",
    "Checkpoint",
    "ChildRequest",
    "ChildState",
    "ChildrenReply",
    "ChildrenRequest",
    "Claim",
    "ClaimReply",
    "ClaimRequest",
    "Command",
    "CommandReply",
    "DeadLetter",
    "Deed",
    "Entry",
    "ErrorInfo",
    "Escalated",
    "Escalation",
    "Event",
    "Fork",
    "Gate",
    "Grant",
    "Holder",
    "Interrupt",
    "Label",
    "Limits",
    "Notice",
    "Origin",
    "Outcome",
    "OutcomeReply",
    "OutcomeRequest",
    "OutcomeVerdict",
    "Parked",
    "Payload",
    "Policy",
    "Priority",
    "RetryPolicy",
    "Ruling",
    "RunRecord",
    "Source",
    "Status",
    "Step",
    "SubmitReply",
    "TaskRequest",
    "ThreadHead",
    "ThreadMessage",
    "ThreadRecord",
    "Tip",
    "Turn",
    "UnknownEffect",
    "Webhook",
    "Word",
    "Work",
    "WorkerInfo",
    "encode",
]
