"""The agents of a chaos run that ask, listen, and keep a state: functions and graphs. Steps and nodes leave their lines
in EFFECTS_FILE, as those in `agents` do."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any, Literal, TypedDict

from callboard import END, START, Command, Context, Graph, InterruptRejected, Send, agent, append, interrupt
from callboard.actors.graph import add, merge

from .agents import note, task, work
from .models import CHILD_STEPS, EXPIRES_S, NOBODY, REJECTED, notes_in

INNER = {"steps": CHILD_STEPS, "seconds": 0.05}
"""What the child in each round is asked for."""


def expires(number: int) -> bool:
    """Whether this question has an end."""
    return number % 2 == 0


def _ending(number: int) -> dict[str, Any]:
    return {"expires": timedelta(seconds=EXPIRES_S), "default": NOBODY} if expires(number) else {}


# -- functions --------------------------------------------------------------------------------------------------------


@agent("asker")
async def asker(ctx: Context, asked: dict[str, Any]) -> dict[str, str]:
    """Asks so many questions at once, itself or by a child."""
    await ctx.step(work, ctx.run.id, "before", ctx.run.attempt, 0.01, name="before")
    if asked["below"]:
        found: dict[str, str] = await ctx.call("asker", asked | {"below": False})
        return found
    answers = await ctx.gather(*(_question(ctx, number) for number in range(asked["questions"])))
    return {f"q{number}": answer for number, answer in enumerate(answers)}


async def _question(ctx: Context, number: int) -> str:
    name = f"q{number}"
    answer = await _asked(ctx, f"p{number}", name, number)
    await ctx.step(work, ctx.run.id, f"after-{name}", ctx.run.attempt, 0.01, name=f"after-{name}")
    return answer


async def _asked(ctx: Context, payload: str, name: str, number: int) -> str:
    try:
        answer: str = await ctx.interrupt(payload, id=name, returns=str, **_ending(number))
    except InterruptRejected:
        return REJECTED
    return answer


@agent("looper")
async def looper(ctx: Context, asked: dict[str, Any]) -> dict[str, Any]:
    """So many turns of one step, a checkpoint after each. Every fourth asks."""
    state = ctx.state
    while (turn := state.get("turn", 0)) < asked["turns"]:
        word = await ctx.step(work, ctx.run.id, str(turn), ctx.run.attempt, 0.02, name=str(turn))
        if turn % 4 == 3:
            name = f"q{turn}"
            answer = await _asked(ctx, f"p{turn}", name, turn // 4)
            state["answers"] = state.get("answers", {}) | {name: answer}
        state["words"] = [*state.get("words", []), word]
        state["turn"] = turn + 1
        await ctx.checkpoint()
    return {"words": state.get("words", []), "answers": state.get("answers", {}), "notes": notes_in(state)}


@agent("listener")
async def listener(ctx: Context, asked: dict[str, Any]) -> list[str]:
    """Listens until it has heard so many messages."""
    heard: list[str] = []
    while len(set(heard)) < asked["words"]:
        heard.append((await ctx.hear()).content)
        name = f"after-{len(heard)}"
        await ctx.step(work, ctx.run.id, name, ctx.run.attempt, 0.01, name=name)
    return [*heard, *(word.content for word in await ctx.heard())]


def crunch(run: str, step: str, attempt: int) -> str:
    """What is carried out in a process of its own."""
    note("begin", run, step, attempt)
    note("end", run, step, attempt)
    return step


@agent("cruncher")
async def cruncher(ctx: Context, asked: dict[str, Any]) -> list[str]:
    """So many steps, each in a process of its own."""
    return [
        await ctx.step(crunch, ctx.run.id, str(index), ctx.run.attempt, name=str(index), isolate="process")
        for index in range(asked["steps"])
    ]


# -- a graph ----------------------------------------------------------------------------------------------------------


def _began(ctx: Context, node: str) -> None:
    note("node", ctx.run.id, node, ctx.run.attempt)


async def _worked(ctx: Context, name: str) -> str:
    return await ctx.step(work, ctx.run.id, name, ctx.run.attempt, 0.02, name=name)


def _answer(payload: str, name: str, **ending: Any) -> str:
    try:
        answer: str = interrupt(payload, id=name, returns=str, **ending)
    except InterruptRejected:
        return REJECTED
    return answer


class Inner(TypedDict, total=False):
    """The state of the subgraph."""

    round: int
    said: Annotated[list[str], append]
    notes: Annotated[dict[str, str], merge]
    answer: str


inner = Graph(Inner, name="inner")


def _inside(state: Inner, node: str) -> str:
    return f"{4 * state['round'] + 3}/inner|{node}"


@inner.node
async def first(state: Inner, ctx: Context) -> dict[str, Any]:
    """One step."""
    _began(ctx, _inside(state, "first@1"))
    return {"said": await _worked(ctx, f"first{state['round']}")}


@inner.node
async def question(state: Inner, ctx: Context) -> dict[str, Any]:
    """A step, and a question."""
    said = await _worked(ctx, f"question{state['round']}")
    return {"said": said, "answer": _answer(said, f"inner-{state['round']}")}


@inner.node
async def last(state: Inner, ctx: Context) -> dict[str, Any]:
    """One more step."""
    _began(ctx, _inside(state, "last@3"))
    return {"said": await _worked(ctx, f"last{state['round']}")}


inner.chain(START, "first", "question", "last", END)


class Rounds(TypedDict, total=False):
    """The state of the graph."""

    rounds: int
    width: int
    round: int
    words: Annotated[list[str], append]
    total: Annotated[int, add]
    answers: Annotated[dict[str, str], merge]
    notes: Annotated[dict[str, str], merge]


rounds = Graph(Rounds, name="rounds")
"""So many rounds of four supersteps: a plan, a fan-out, a subgraph beside a child and a question, a decision."""


@rounds.node
async def plan(state: Rounds, ctx: Context) -> dict[str, Any]:
    """One step."""
    _began(ctx, f"plan@{4 * state['round'] + 1}")
    return {"words": await _worked(ctx, f"plan{state['round']}")}


@rounds.node
async def item(asked: dict[str, int], ctx: Context) -> dict[str, Any]:
    """One of several, each with an input of its own."""
    number, turn = asked["number"], asked["round"]
    _began(ctx, f"item#{number}@{4 * turn + 2}")
    return {"words": await _worked(ctx, f"item{turn}.{number}"), "total": number + 1}


rounds.node(
    "inner",
    inner,
    takes=lambda state: {"round": state["round"]},
    gives=lambda part: {
        "words": part["said"],
        "answers": {f"inner-{part['round']}": part["answer"]},
        "notes": part.get("notes", {}),
    },
)
rounds.node("child", task, takes=lambda state: INNER, gives=lambda result: {"words": [f"child {len(result)}"]})


@rounds.node
async def ask(state: Rounds, ctx: Context) -> dict[str, Any]:
    """A step, and a question beside those of the subgraph."""
    turn = state["round"]
    word = await _worked(ctx, f"ask{turn}")
    answer = _answer(word, f"ask-{turn}", **_ending(turn))
    return {"words": word, "answers": {f"ask-{turn}": answer}}


@rounds.node
async def decide(state: Rounds, ctx: Context) -> Command[Literal["plan", "__end__"]]:
    """Once more, or not."""
    turn = state["round"]
    _began(ctx, f"decide@{4 * turn + 4}")
    more = turn + 1 < state["rounds"]
    return Command({"round": turn + 1, "words": await _worked(ctx, f"decide{turn}")}, goto="plan" if more else END)


rounds.edge(START, "plan")
rounds.branch(
    "plan",
    lambda state: [Send("item", {"number": number, "round": state["round"]}) for number in range(state["width"])],
    ["item"],
)
for _node in ("inner", "child", "ask"):
    rounds.edge("item", _node)
rounds.join(["inner", "child", "ask"], "decide")

thinker = rounds.agent("rounds")
swift = rounds.agent("rounds-async", durability="async")
late = rounds.agent("rounds-exit", durability="exit")


class Steered(TypedDict, total=False):
    """The state of a graph that is told things."""

    need: int
    turn: int
    chat: Annotated[list[str], append]


steered = Graph(Steered, name="steered", inbox="chat")


@steered.node
async def listen(state: Steered, ctx: Context) -> dict[str, Any]:
    """A turn, in which something may be said. Every third sleeps so long that no worker holds it."""
    turn = state.get("turn", 0)
    await ctx.sleep(0.3 if turn % 3 else 2.2)
    await _worked(ctx, f"listen{turn}")
    return {"turn": turn + 1}


def _heard_all(state: Steered) -> Literal["listen", "__end__"]:
    return "__end__" if len(set(state.get("chat", []))) >= state["need"] else "listen"


steered.edge(START, "listen").branch("listen", _heard_all)

follower = steered.agent("steered")
