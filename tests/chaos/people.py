"""People who answer what runs ask and say things to them, by every way there is: once, twice, late, or not at all."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter, defaultdict
from contextlib import suppress
from typing import Any, NamedTuple

import httpx
import msgspec

from callboard.store.blobs import Blobs
from callboard.store.errors import error_of
from callboard.store.interrupts import Open, open_below
from callboard.store.log import EventLog
from callboard.store.submit import Submitter
from callboard.topics.bus import Bus
from callboard.topics.errors import CallboardError, IllegalTransition
from callboard.topics.ids import new_token
from callboard.topics.messages import Answer, AnswerAction, Command, CommandReply, Payload, encode
from callboard.topics.rpc import ask
from tests.chaos.history import value_of
from tests.chaos.models import REJECTED, answer_of, edit, noted, words
from tests.chaos.stage import Stage

log = logging.getLogger(__name__)

_LOOK_S = 0.5
_PAUSE_S = 0.3
_HTTP = "http"
_WAYS = ("rpc", _HTTP, "subject")
_ACTIONS: tuple[AnswerAction, ...] = ("respond", "approve", "edit", "reject")
_ACTION_WEIGHTS = (5, 2, 2, 1)


class Key(NamedTuple):
    """A question: the run that asks, and its id."""

    run: str
    id: str


class Word(NamedTuple):
    """An answer: what comes of it in the result, and how it is given."""

    value: str
    action: AnswerAction = "respond"
    update: dict[str, Any] | None = None

    def body(self, id_: str) -> dict[str, Any]:
        """As it is sent over HTTP."""
        given = {"value": self.value} if self.action in ("respond", "edit") else {}
        return {"id": id_, "action": self.action} | given | ({"update": self.update} if self.update else {})

    def answer(self, id_: str) -> Answer:
        """As it is sent otherwise."""
        given = _payload(self.value) if self.action in ("respond", "edit") else None
        return Answer(id=id_, action=self.action, value=given, update=_payload(self.update) if self.update else None)


class Sent(NamedTuple):
    """What came of an answer that was sent."""

    value: str
    outcome: str
    """`sent`, without an answer as yet; `accepted` by a coordinator; `stored`, for a coordinator to come; else the code
    of the refusal."""


class People:
    """`await open()`, `follow(run)` each run that asks, `tell(run, …)` each that listens, `await close()` at the end.

    They go on until the runs have ended: what nobody answers does not end."""

    def __init__(self, stage: Stage, seed: int) -> None:
        self._stage, self._seed = stage, seed
        self.sent: dict[Key, list[Sent]] = defaultdict(list)
        self.said: set[str] = set()
        """Messages that were acknowledged, by their key."""
        self.done: Counter[str] = Counter()
        self.broken: list[str] = []
        """Answers of the installation that must not be."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._count = 0

    async def open(self) -> None:
        """Connects, by way of the proxies."""
        self._bus = await Bus.connect(self._stage.proxied, name="chaos-people")
        self._http = httpx.AsyncClient(timeout=10)
        self._log, self._submitter = EventLog(self._bus), Submitter(self._bus, Blobs(self._bus))

    async def close(self) -> None:
        """Ends what still goes on."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._http.aclose()
        await self._bus.close()

    def follow(self, run: str) -> None:
        """Somebody answers what this run, and what is below it, asks."""
        self._start(self._follow(run, self._chance()), f"follows {run}")

    def tell(self, run: str, count: int) -> None:
        """Somebody says so many things to this run."""
        rng = self._chance()
        for text in words(count):
            self._start(self._say(run, text, random.Random(rng.random())), f"tells {run} {text}")

    def _chance(self) -> random.Random:
        self._count += 1
        return random.Random(f"people {self._seed} {self._count}")

    def _start(self, work: Any, name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("%s", task.get_name(), exc_info=task.exception())
            self.broken.append(f"somebody who {task.get_name()} gave up: {task.exception()!r}")

    # -- answers ------------------------------------------------------------------------------------------------

    async def _follow(self, run: str, rng: random.Random) -> None:
        seen: set[Key] = set()
        while True:
            with suppress(CallboardError):
                for one in await open_below(self._bus, run):
                    key = Key(one.record.id, one.interrupt.id)
                    if key not in seen:
                        seen.add(key)
                        target = run if rng.random() < 0.5 else key.run
                        self._start(self._answer(target, one, random.Random(rng.random())), f"answers {key}")
                if (await self._log.require(run)).record.terminal:
                    break
            await asyncio.sleep(_LOOK_S)
        for key in sorted(seen):
            if rng.random() < 0.3:
                self.done["answers to runs that have ended"] += 1
                await self._send(key.run, key, Word(self._value()), rng.choice(_WAYS))

    async def _answer(self, target: str, open_: Open, rng: random.Random) -> None:
        key = Key(open_.record.id, open_.interrupt.id)
        if open_.interrupt.expires_at is not None and rng.random() < 0.4:
            self.done["questions left to expire"] += 1
            return
        await asyncio.sleep(rng.uniform(0.0, 4.0) if rng.random() < 0.3 else rng.uniform(0.0, 1.0))
        self.done["questions answered"] += 1
        values = [self._word(open_, rng), self._word(open_, rng)]
        ways = [rng.choice(_WAYS), rng.choice(_WAYS)]
        match rng.choice(("once", "same", "after", "race")):
            case "once":
                await self._send(target, key, values[0], ways[0])
            case "same":
                self.done["answers sent twice"] += 1
                await asyncio.gather(*(self._send(target, key, values[0], way) for way in ways))
            case "after":
                self.done["second answers"] += 1
                await self._send(target, key, values[0], ways[0])
                await self._send(key.run, key, values[1], ways[1])
            case "race":
                self.done["answers that raced"] += 1
                pairs = zip(values, ways, strict=True)
                await asyncio.gather(*(self._send(target, key, value, way) for value, way in pairs))

    def _value(self, *, edits: bool = False) -> str:
        self._count += 1
        return answer_of(self._count, edits=edits)

    def _word(self, open_: Open, rng: random.Random) -> Word:
        """An answer of some kind; many bring an edit of the run's state with them."""
        agent, id_ = open_.record.agent, open_.interrupt.id
        action = rng.choices(_ACTIONS, _ACTION_WEIGHTS)[0]
        self.done[f"answers that {action}"] += 1
        if action == "approve":
            return Word(value_of(open_.interrupt.payload), action)
        if action == "reject":
            return Word(REJECTED, action)
        value = self._value(edits=rng.random() < 0.4 and edit(agent, id_, "") is not None)
        noted_ = noted({id_: value})
        self.done["answers with an edit"] += len(noted_)
        return Word(value, action, edit(agent, id_, value) if noted_ else None)

    async def _send(self, target: str, key: Key, word: Word, way: str) -> None:
        """Sends an answer until something comes back."""
        value = word.value
        command = Command(run=target, verb="resume", answers=[word.answer(key.id)], key=new_token())
        self.done[f"answers by {way}"] += 1
        sent, at = self.sent[key], len(self.sent[key])
        sent.append(Sent(value, "sent"))
        while True:
            with suppress(httpx.HTTPError, _Again):
                sent[at] = Sent(value, await self._sent(target, command, word.body(key.id), way))
                return
            await asyncio.sleep(_PAUSE_S)

    async def _sent(self, target: str, command: Command, body: dict[str, Any], way: str) -> str:
        if way == _HTTP:
            return await self._posted(f"/runs/{target}/resume", body)
        try:
            if way == "subject":
                await self._bus.store(self._bus.subjects.command(target, command.verb), encode(command))
                return "stored"
            reply = msgspec.json.decode((await ask(self._bus, "command", encode(command), 5.0)).data, type=CommandReply)
            if reply.error is not None:
                raise error_of(reply.error)
        except CallboardError as error:
            if error.retryable:
                raise _Again from error
            return error.code
        return "accepted"

    async def _posted(self, path: str, body: dict[str, Any]) -> str:
        """`stored`: a gateway that reaches no coordinator leaves the command for one to come, and says yes."""
        self._count += 1
        url = self._stage.gateways[self._count % len(self._stage.gateways)]
        answer = await self._http.post(f"{url}{path}", json=body)
        if answer.status_code == 202:
            return "stored"
        if answer.status_code >= 500:
            raise _Again
        return str(answer.json().get("code", answer.status_code))

    # -- messages -----------------------------------------------------------------------------------------------

    async def _say(self, run: str, text: str, rng: random.Random) -> None:
        """Sometimes twice, under one key: the run does not end before it has heard it, so none is refused."""
        await asyncio.sleep(rng.uniform(0.0, 3.0))
        key = f"{run}-{text}"
        ways = rng.choices(_WAYS, k=2 if rng.random() < 0.3 else 1)
        self.done["messages said"] += 1
        self.done["messages said twice"] += len(ways) - 1
        outcomes = await asyncio.gather(*(self._spoken(run, text, key, way) for way in ways))
        self.said.add(key)
        if set(outcomes) != {"said"}:
            self.broken.append(f"{text} was said to run {run} under one key with different outcomes: {outcomes}")

    async def _spoken(self, run: str, text: str, key: str, way: str) -> str:
        content = _payload(text)
        while True:
            with suppress(httpx.HTTPError, _Again):
                if way == _HTTP:
                    outcome = await self._posted(f"/runs/{run}/say", {"content": text, "key": key})
                    return "said" if outcome == "stored" else outcome
                try:
                    if way == "rpc":
                        await self._submitter.say(run, content, key=key)
                    else:
                        command = Command(run=run, verb="say", value=content, key=key)
                        await self._bus.store(self._bus.subjects.command(run, "say"), encode(command))
                    return "said"
                except IllegalTransition as error:
                    return error.code
                except CallboardError as error:
                    if not error.retryable:
                        raise
            await asyncio.sleep(_PAUSE_S)


def _payload(value: object) -> Payload:
    return Payload(json=msgspec.Raw(msgspec.json.encode(value)))


class _Again(Exception):
    """Worth another try."""
