"""A walk through time: the history of a graph, an edit of the past, and a fork that goes another way.

`python examples/time_travel.py` runs it in this process, without a broker, and prints what it sees. On workers the same
is done with `callboard fork RUN CHECKPOINT`, over HTTP, or from code.
"""

import asyncio
from typing import Annotated, Literal, TypedDict

from callboard import END, START, Execution, Graph, GraphInterrupted, append, interrupt


class Trip(TypedDict, total=False):
    """The state of a trip that is being planned."""

    place: str
    nights: int
    plan: Annotated[list[str], append]


graph = Graph(Trip, name="trip")


@graph.node
async def travel(state: Trip) -> dict[str, object]:
    """The first day."""
    return {"plan": f"travel to {state['place']}"}


@graph.node
async def stay(state: Trip) -> dict[str, object]:
    """One night more."""
    return {"nights": state["nights"] - 1, "plan": f"a night in {state['place']}"}


@graph.node
async def leave(_: Trip) -> dict[str, object]:
    """Ask before the end."""
    word = interrupt("How do you travel home?", returns=str)
    return {"plan": f"home by {word}"}


def more(state: Trip) -> Literal["stay", "leave"]:
    """Whether nights are left."""
    return "stay" if state["nights"] > 0 else "leave"


graph.edge(START, "travel").branch("travel", more).branch("stay", more).edge("leave", END)


async def to_the_question(execution: Execution[Trip], start: Trip | None = None) -> None:
    """Run until somebody has to answer."""
    try:
        await execution.run(start)
    except GraphInterrupted as stopped:
        print("asked:", *(question.payload for question in stopped.execution.interrupts.values()))


async def walk() -> None:
    """The walk."""
    trip: Execution[Trip] = graph.execution()
    await to_the_question(trip, {"place": "Ghent", "nights": 2})
    print("first:", "; ".join((await trip.resume("train"))["plan"]))

    print("history, newest first:")
    for one in trip.history():
        print(f"  {one.id} after {', '.join(one.ran) or one.source}: {len(trip.state(one.id)['plan'])} entries")

    print("what changed in c2:", trip.snapshot("c2").replaced, dict(trip.snapshot("c2").appended))

    fork = trip.fork("c1")  # after `travel`, before the nights
    await fork.update_state({"place": "Bruges", "nights": 1})
    await to_the_question(fork)  # what comes after the fork is done again, and asked again
    print("fork:", "; ".join((await fork.resume("bicycle"))["plan"]))

    shorter = trip.fork("c1")
    await shorter.update_state({"nights": 0}, as_node="stay")  # as if `stay` had ended so: its branch decides
    await to_the_question(shorter)
    print("shorter:", "; ".join((await shorter.resume("car"))["plan"]))

    print("the original still says:", trip.state()["plan"][-1])


if __name__ == "__main__":
    asyncio.run(walk())
