"""Every subject and stream name, in one place. `Subjects("cb").state(run)` is the only way to spell one."""

from __future__ import annotations

import re

from .errors import InvalidSubject
from .ids import root_of
from .versions import require_version, versioned

INBOX_CONSUMER = "coordinators"
"""The consumer of the INBOX that all coordinators share."""
PARTITIONS = 16
"""Parts into which the keys of every topic and actor fall; part of the wire format."""

_TOKEN = re.compile(r"[^\s.*>/\\@\x00-\x20\x7f\ud800-\udfff]{1,128}\Z")
_SUBJECT = re.compile(r"[^\x00-\x20\x7f\ud800-\udfff]+\Z")
_NAMESPACE = re.compile(r"[A-Za-z0-9_-]{1,32}\Z")


def require_token(kind: str, text: str) -> str:
    """`text` as one subject token. Raises InvalidSubject, which names the `kind` of thing it should be."""
    if not _TOKEN.match(text):
        raise InvalidSubject(
            f"{kind} {text[:80]!r} cannot be part of a subject: use 1 to 128 characters "
            "without spaces, '.', '*', '>', '/', '\\' and '@'",
            kind=kind,
        )
    return text


def require_subject(text: str) -> None:
    """Raises InvalidSubject for what the protocol would read as its next field, or as its next command."""
    if not _SUBJECT.match(text):
        raise InvalidSubject(
            f"{text[:200]!r} cannot be a subject: it has white space or control characters in it, or is empty",
            subject=text[:200],
        )


class Subjects:
    """The subjects and streams of one installation, below its namespace."""

    __slots__ = (
        "actor", "actors", "ask", "blobs", "cmd", "dead", "events", "fires", "inbox", "live", "namespace", "rpc",
        "run", "salt_key", "schedules", "task", "thread", "timer", "topic", "topics", "work", "work_stream", "worker",
    )  # fmt: skip

    def __init__(self, namespace: str = "cb") -> None:
        if not _NAMESPACE.match(namespace):
            raise InvalidSubject(f"namespace {namespace[:40]!r} must be 1 to 32 of A-Z a-z 0-9 _ -", kind="namespace")
        self.namespace = namespace
        self.inbox, self.work_stream = f"{namespace}_INBOX", f"{namespace}_WORK"
        self.events, self.topics = f"{namespace}_EVENTS", f"{namespace}_TOPICS"
        self.dead, self.blobs = f"{namespace}_DEAD", f"{namespace}_BLOBS"
        self.task, self.cmd, self.timer = f"{namespace}.task", f"{namespace}.cmd", f"{namespace}.timer"
        self.work, self.run, self.thread = f"{namespace}.work", f"{namespace}.run", f"{namespace}.thread"
        self.topic, self.rpc, self.worker = f"{namespace}.topic", f"{namespace}.rpc", f"{namespace}.worker"
        self.actor, self.actors = f"{namespace}.actor", f"{namespace}_ACTORS"
        self.ask, self.live = f"{namespace}.ask", f"{namespace}.live"
        self.schedules, self.fires = f"{namespace}.schedule", f"{namespace}.task.@schedule"
        self.salt_key = "callboard.salt"

    def event(self, run: str, kind: str) -> str:
        """`cb.run.{root}.{run}.{kind}`: one kind of event in the log of a run."""
        return f"{self.run}.{root_of(run)}.{run}.{kind}"

    def state(self, run: str) -> str:
        """Where the run's record is written; its last message is the run."""
        return f"{self.run}.{root_of(run)}.{run}.state"

    def log(self, run: str) -> str:
        """The filter of the whole log of one run."""
        return f"{self.run}.{root_of(run)}.{run}.*"

    def tree(self, root: str) -> str:
        """The filter of the logs of a root and all its descendants."""
        return f"{self.run}.{root_of(root)}.>"

    def command(self, run: str, verb: str) -> str:
        """`cb.cmd.{run}.{verb}`: a durable command to the coordinator."""
        return f"{self.cmd}.{run}.{verb}"

    def dead_letter(self, kind: str) -> str:
        """`cb.dead.{kind}`: where a message is set aside (kinds: task, command, work, topic, webhook)."""
        return f"{self.namespace}.dead.{kind}"

    def topic_partition(self, topic: str, partition: int) -> str:
        """`cb.topic.{topic}.{partition}.*`: the filter of one partition of a topic, as it is stored."""
        return f"{self.topic}.{topic}.{partition}.*"

    def ownership(self, actor: str, partition: int) -> str:
        """`cb.actor.{actor}.{partition}`: which host owns that part of an actor's keys, and how far it has come."""
        return f"{self.actor}.{actor}.{partition}"

    def agent(self, name: str) -> str:
        """`cb.agent.{name}`: the registration of an agent that new runs follow."""
        return f"{self.namespace}.agent.{require_token('agent', name)}"

    def agent_version(self, name: str, version: str) -> str:
        """`cb.agent.{name}@{version}`: the last registration of one version of an agent."""
        return f"{self.namespace}.agent.{versioned(require_token('agent', name), require_version(version))}"

    def gate(self, agent: str) -> str:
        """`cb.gate.{agent}`: which attempts of an agent with limits may be under way."""
        return f"{self.namespace}.gate.{require_token('agent', agent)}"

    def schedule(self, name: str) -> str:
        """`cb.schedule.{name}`: the last definition of a schedule."""
        return f"{self.schedules}.{require_token('schedule', name)}"

    def schedule_timer(self, name: str, due: str = "*") -> str:
        """`cb.timer.@schedule.{name}.{due}`: the timer of one due time (Unix milliseconds), or of all."""
        return f"{self.timer}.@schedule.{require_token('schedule', name)}.{due}"

    def attention(self, kind: str, which: str) -> str:
        """`cb.attention.run.{run}`, `cb.attention.queue.{queue}`: whether it waits for a person."""
        return f"{self.namespace}.attention.{kind}.{which}"

    def label(self, run: str, name: str) -> str:
        """`cb.label.{run}.{name}`: the checkpoint of a run that is kept under a name."""
        return f"{self.namespace}.label.{run}.{name}"

    def webhook(self, name: str) -> str:
        """`cb.webhook.{name}`: who is told over HTTP, and of what."""
        return f"{self.namespace}.webhook.{require_token('webhook', name)}"

    def hook(self, name: str) -> str:
        """`cb.hook.{name}`: the events on their way to one webhook."""
        return f"{self.namespace}.hook.{require_token('webhook', name)}"

    def live_of(self, subject: str) -> str:
        """The core subject on which the broker republishes what was stored on `subject`."""
        return f"{self.live}{subject[len(self.namespace) :]}"
