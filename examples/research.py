"""A research graph: questions are fanned out, each is answered in parallel, and a report joins what was found.

With `callboard dev examples/research.py` running: `callboard run research '{"topic": "hats"}' --wait`.
"""

from typing import Annotated, TypedDict

from callboard import END, START, Context, Graph, Send, add, agent, append, merge

LIBRARY = {
    "history": "Hats were worn before shoes were.",
    "making": "Felt is made of wool, steam and patience.",
    "etiquette": "Indoors, a hat is held, not worn.",
}


class Finding(TypedDict):
    """What one source says."""

    aspect: str
    text: str


class Research(TypedDict, total=False):
    """The state: parallel nodes write to all of these without disturbing each other."""

    topic: str
    aspects: list[str]
    findings: Annotated[list[Finding], append]
    words: Annotated[int, add]
    checks: Annotated[dict[str, bool], merge]
    report: str


@agent("librarian")
async def librarian(ctx: Context, aspect: str) -> Finding:
    """Looks one aspect up: a child run, carried out by whichever process serves it."""
    return await ctx.step(look_up, aspect)


def look_up(aspect: str) -> Finding:
    """Return what the library has."""
    return {"aspect": aspect, "text": LIBRARY.get(aspect, "Nothing is known.")}


graph = Graph(Research, name="research")


@graph.node
async def plan(_: Research) -> dict[str, object]:
    """Decide what is to be found out."""
    return {"aspects": sorted(LIBRARY)}


def fan_out(state: Research) -> list[Send]:
    """One lookup for each aspect; all of them run at once."""
    return [Send("look", aspect) for aspect in state["aspects"]]


def found(finding: Finding) -> dict[str, object]:
    """What a lookup adds to the state."""
    return {"findings": finding, "words": len(finding["text"].split())}


@graph.node
async def check(state: Research) -> dict[str, object]:
    """Another branch, beside the lookups: is the topic one that we know?"""
    return {"checks": {"known": state["topic"] == "hats"}}


@graph.node
async def report(state: Research) -> dict[str, object]:
    """Join both branches. The findings stand in the order in which they were asked for, whatever came first."""
    lines = [f"- {finding['aspect']}: {finding['text']}" for finding in state["findings"]]
    head = f"# {state['topic'].capitalize()}" + ("" if state["checks"]["known"] else " (a new field)")
    return {"report": "\n".join([head, *lines, f"{state['words']} words."])}


graph.node("look", librarian, gives=found)
graph.chain(START, "plan", "check").branch("plan", fan_out, ["look"])
graph.join(["look", "check"], "report").edge("report", END)

research = graph.agent("research", topics=["research"])

if __name__ == "__main__":  # `python examples/research.py` runs the same graph in this process, without a broker
    print(graph.run_sync({"topic": "hats"})["report"])
