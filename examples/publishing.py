"""A graph with a person in it: an article is drafted, checked, and published when somebody says so, hours later.

With `callboard dev examples/publishing.py` running:

    callboard publish articles '{"topic": "hats"}'                     # prints the id of the run
    callboard interrupts ls                                            # what it asks; no process holds it meanwhile
    callboard resume RUN --value '{"verdict": "revise", "remark": "More about berets."}'
    callboard resume RUN --value '{"verdict": "publish"}'
    callboard artifacts RUN article.md
"""

from dataclasses import dataclass, field
from typing import Annotated, Literal

from callboard import END, START, Command, Context, Graph, append, interrupt


@dataclass
class Article:
    """The state. Each field is a channel; remarks come together, the others take the last value."""

    topic: str = ""
    draft: str = ""
    remarks: Annotated[list[str], append] = field(default_factory=list)
    rounds: int = 0
    published: bool = False


@dataclass(frozen=True)
class Decision:
    """What a person answers."""

    verdict: Literal["publish", "revise", "drop"]
    remark: str = ""


graph = Graph(Article, name="publishing")


def compose(topic: str, remarks: list[str]) -> str:
    """Return the text. A model would be asked here."""
    return "\n\n".join([f"# All about {topic}", f"There is much to say about {topic}.", *remarks])


@graph.node
async def draft(state: Article, ctx: Context) -> dict[str, object]:
    """Write, or write anew with what was remarked."""
    text = await ctx.step(compose, state.topic, state.remarks)
    return {"draft": text, "rounds": state.rounds + 1}


@graph.node
def decide(state: Article) -> Command[Literal["draft", "publish", "__end__"]]:
    """Ask a person. The node starts again from here when the answer has come."""
    decision = interrupt({"draft": state.draft}, id=f"round-{state.rounds}", returns=Decision, to="editor")
    if decision.verdict == "revise":
        return Command({"remarks": decision.remark}, goto="draft")
    return Command(goto="publish" if decision.verdict == "publish" else END)


@graph.node
async def publish(state: Article, ctx: Context) -> dict[str, object]:
    """Leave the article where readers find it."""
    await ctx.artifact("article.md", state.draft, media_type="text/markdown")
    return {"published": True}


graph.chain(START, "draft", "decide").edge("publish", END)

publishing = graph.agent("publishing", topics=["articles"], version="1")
