"""Executions in process: questions and answers, history, edits, forks, subgraphs, agents, streams."""

import asyncio
from typing import Annotated, Any, TypedDict

import pytest

from callboard import (
    END,
    START,
    Answer,
    Command,
    Execution,
    Graph,
    GraphError,
    GraphInterrupted,
    InterruptRejected,
    JournalMismatch,
    Send,
    StepFailed,
    Was,
    add,
    agent,
    append,
    interrupt,
    messages,
)
from callboard.actors.graph.errors import InvalidUpdate, UnknownChannel, UnknownNode
from callboard.topics.errors import InterruptAmbiguous, InterruptNotFound, InvalidAnswer, InvalidInput, NotFound


class State(TypedDict, total=False):
    n: int
    log: Annotated[list[str], append]
    total: Annotated[int, add]


async def stopped(execution: Any, *args: Any, **kwargs: Any) -> list[str]:
    """Runs, or resumes, up to the next questions; their ids."""
    with pytest.raises(GraphInterrupted) as caught:
        await (execution.resume if args or kwargs else execution.run)(*args, **kwargs)
    assert caught.value.execution is execution
    return list(execution.interrupts)


# -- questions --------------------------------------------------------------------------------------------------------


async def test_a_node_asks_and_starts_again_with_its_steps_remembered() -> None:
    graph = Graph(State)
    calls: list[str] = []

    def seven() -> int:
        calls.append("step")
        return 7

    @graph.node
    async def ask(state: State, ctx: Any) -> dict[str, Any]:
        calls.append("begin")
        n = await ctx.step(seven)
        first = interrupt({"n": n}, id="first")
        second = interrupt("and?", id="second")
        return {"log": [first, second]}

    graph.chain(START, "ask", END)
    execution = graph.execution()
    assert await stopped(execution) == ["first"]
    assert execution.interrupts["first"].payload == {"n": 7}
    assert await stopped(execution, "yes") == ["second"]
    assert (await execution.resume(answers={"second": "no"}))["log"] == ["yes", "no"]
    assert calls == ["begin", "step", "begin", "begin"]


async def test_sync_nodes_ask_as_well_and_parallel_ones_are_answered_in_any_order() -> None:
    graph = Graph(State)
    calls: list[str] = []
    for name in ("a", "b", "c"):

        def node(state: State, name: str = name) -> dict[str, Any]:
            calls.append(name)
            return {"log": name if name == "c" else f"{name}={interrupt(name)}"}

        graph.node(name, node).edge(START, name).edge(name, END)
    execution = graph.execution()
    assert await stopped(execution) == ["1/a?0", "1/b?0"]
    assert await stopped(execution, answers={"1/b?0": "B"}) == ["1/a?0"]
    assert (await execution.resume("A"))["log"] == ["a=A", "b=B", "c"]
    assert sorted(calls) == ["a", "a", "a", "b", "b", "c"]  # `b` ended when it was answered, and was not run again


async def test_an_answer_must_be_to_an_open_question_and_of_the_type_asked_for() -> None:
    graph = Graph(State)
    graph.node("ask", lambda state: {"n": interrupt("how many?", id="many", returns=int)}, inline=True)
    graph.node("other", lambda state: {"log": interrupt("which?")}, inline=True)
    for name in ("ask", "other"):
        graph.edge(START, name).edge(name, END)
    execution = graph.execution()
    assert await stopped(execution) == ["many", "1/other?0"]
    with pytest.raises(InterruptAmbiguous, match=r"say which question.*'many', '1/other\?0'"):
        await execution.resume(5)
    with pytest.raises(InterruptNotFound, match=r"no question 'few' is open; open: 'many'"):
        await execution.resume(answers={"few": 5})
    with pytest.raises(InvalidAnswer, match=r"answer to 'many' does not fit.*[Ee]xpected `int`"):
        await execution.resume(answers={"1/other?0": "x", "many": "five"})
    assert (await execution.resume(answers={"many": 5, "1/other?0": "x"})) == {"n": 5, "log": ["x"], "total": 0}


async def test_an_answered_question_never_comes_again_and_a_changed_order_is_seen() -> None:
    graph = Graph(State)
    ids = ["one", "two"]

    @graph.node
    async def ask(state: State) -> dict[str, Any]:
        return {"log": [interrupt(id=ids[0]), interrupt(id=ids[1])]}

    graph.chain(START, "ask", END)
    execution = graph.execution()
    await stopped(execution)
    await stopped(execution, 1)
    ids.reverse()
    with pytest.raises(JournalMismatch, match=r"interrupt 'one'.*asks for interrupt 'two'"):
        await execution.run()


async def test_an_answer_may_approve_edit_or_reject_what_was_asked() -> None:
    graph = Graph(State)
    answers: list[Any] = []

    @graph.node
    def ask(state: State) -> None:
        answers.append(interrupt({"text": "draft"}, schema={"type": "object", "required": ["text"]}))

    @graph.node
    def whole(state: State) -> None:
        answers.append(interrupt("publish?", id="whole", returns=Answer, actions=["approve", "reject"]))

    graph.chain(START, "ask", "whole", END)
    for given in (Answer("", "approve"), Answer("", "edit", {"text": "better"})):
        execution = graph.execution()
        await stopped(execution)
        with pytest.raises(InvalidAnswer, match="does not fit"):
            await execution.resume({"txt": "x"})
        await stopped(execution, given)
        with pytest.raises(InvalidAnswer, match="takes approve, reject, not respond"):
            await execution.resume("yes")
        await execution.resume(Answer("", "reject", comment="too long"))
    assert answers[0] == {"text": "draft"}
    assert answers[2] == {"text": "better"}
    assert (answers[1].action, answers[1].comment, answers[1].id) == ("reject", "too long", "whole")
    execution = graph.execution()
    await stopped(execution)
    with pytest.raises(InterruptRejected, match="was rejected by Ann: no"):
        await execution.resume(Answer("", "reject", by="Ann", comment="no"))


async def test_an_id_is_asked_once_in_a_run() -> None:
    graph = Graph(State)
    graph.node("ask", lambda state: [interrupt(id="x"), interrupt(id="x")], inline=True).chain(START, "ask", END)
    execution = graph.execution()
    await stopped(execution)
    with pytest.raises(InvalidInput, match="'x' is asked twice"):
        await execution.resume(1)


async def test_executions_of_one_superstep_that_ask_under_one_id_are_told_apart() -> None:
    graph = Graph(State)
    graph.node("ask", lambda state: {"log": interrupt(id="x")}, inline=True).edge("ask", END)
    graph.branch(START, lambda state: [Send("ask", n) for n in range(3)], ["ask"])
    execution = graph.execution()
    names = ["x", "x@1", "1/ask#2?0"]
    assert await stopped(execution) == names
    assert (await execution.resume(answers={name: name for name in names}))["log"] == names


async def test_a_node_that_comes_by_again_asks_under_an_id_of_that_superstep() -> None:
    graph = Graph(State)
    graph.node("ask", lambda state: {"log": interrupt(id="x")}, inline=True).edge(START, "ask")
    graph.branch("ask", lambda state: END if state["log"][-1] == "end" else "ask", ["ask", END])
    execution = graph.execution()
    assert await stopped(execution) == ["x"]
    assert await stopped(execution, answers={"x": "on"}) == ["x@2"]
    assert await stopped(execution, answers={"x@2": "on"}) == ["x@3"]
    assert await execution.resume("end") == {"log": ["on", "on", "end"], "total": 0}


async def test_a_question_outside_of_a_node_is_an_error() -> None:
    with pytest.raises(GraphError, match=r"await ctx\.interrupt"):
        interrupt("?")


async def test_no_handler_in_a_node_catches_a_question() -> None:
    graph = Graph(State)

    @graph.node
    def careful(state: State) -> dict[str, Any]:
        try:
            return {"log": interrupt("?")}
        except Exception:
            return {"log": "swallowed"}

    graph.chain(START, "careful", END)
    execution = graph.execution()
    await stopped(execution)
    assert (await execution.resume("asked"))["log"] == ["asked"]


async def test_interrupt_before_and_after_stop_between_supersteps() -> None:
    graph = Graph(State)
    graph.node("a", lambda state: {"log": "a"}, inline=True, interrupt_after=True)
    graph.node("b", lambda state: {"log": f"b{state['n']}"}, inline=True, interrupt_before=True)
    graph.chain(START, "a", "b", END)
    execution = graph.execution()
    with pytest.raises(GraphInterrupted):
        await execution.run({"n": 1})
    assert list(execution.interrupts) == ["1/a!after", "2/b!before"]
    assert execution.state()["log"] == ["a"]
    await stopped(execution, answers={"1/a!after": "go on"})
    assert (await execution.resume(None, edit={"n": 2}))["log"] == ["a", "b2"]
    assert [one.source for one in execution.history()] == ["loop", "update", "loop", "input"]


async def test_an_edit_with_the_answer_is_seen_by_the_node_that_asked() -> None:
    graph = Graph(State)
    graph.node("ask", lambda state: {"log": f"{interrupt('ok?')} {state['n']}"}, inline=True).chain(START, "ask", END)
    execution = graph.execution()
    with pytest.raises(GraphInterrupted):
        await execution.run({"n": 1})
    with pytest.raises(InvalidUpdate):
        await execution.resume("yes", edit={"n": "x"})
    assert (await execution.resume("yes", edit={"n": 2}))["log"] == ["yes 2"]


# -- time travel ------------------------------------------------------------------------------------------------------


def counting() -> Graph[State]:
    graph = Graph(State)
    graph.node("a", lambda state: {"n": state["n"] + 1, "log": f"a{state['n']}"}, inline=True)
    graph.node("b", lambda state: {"log": f"b{state['n']}"}, inline=True)
    graph.edge(START, "a").branch("a", lambda state: "a" if state["n"] < 3 else "b", ["a", "b"]).edge("b", END)
    return graph


async def test_history_is_a_chain_of_states() -> None:
    execution = counting().execution()
    await execution.run({"n": 0})
    found = [(one.id, one.parent, one.step, [task.key for task in one.next]) for one in execution.history()]
    assert found == [
        ("c4", "c3", 4, []),
        ("c3", "c2", 3, ["b"]),
        ("c2", "c1", 2, ["a"]),
        ("c1", "c0", 1, ["a"]),
        ("c0", "", 0, ["a"]),
    ]
    assert execution.state("c2") == {"n": 2, "log": ["a0", "a1"], "total": 0}
    with pytest.raises(NotFound, match=r"no checkpoint 'c9'; there are c0, c1"):
        execution.state("c9")


async def test_a_fork_goes_its_own_way_and_leaves_the_original_as_it_is() -> None:
    execution = counting().execution()
    first = await execution.run({"n": 0})
    fork = execution.fork("c2")
    await fork.update_state({"n": 10, "log": "edited"})
    assert (await fork.run())["log"] == ["a0", "a1", "edited", "a10", "b11"]
    assert execution.state() == first
    assert (await execution.replay("c1")) == first


async def test_an_edit_as_a_node_goes_on_along_its_edges() -> None:
    execution = counting().execution()
    await execution.run({"n": 0})
    fork = execution.fork("c1")
    edited = await fork.update_state({"n": 7}, as_node="a")
    assert (edited.step, edited.source, [task.key for task in edited.next]) == (2, "update", ["b"])
    assert (await fork.run())["log"] == ["a0", "b7"]
    with pytest.raises(UnknownNode, match=r"as_node names 'c'"):
        await fork.update_state({}, as_node="c")
    with pytest.raises(InvalidUpdate, match=r"the edit wrote to channel 'n'"):
        await fork.update_state({"n": "x"})


async def test_a_fork_asks_again_what_was_asked_after_it() -> None:
    graph = Graph(State)
    for name in ("a", "b"):
        graph.node(name, lambda state, name=name: {"log": f"{name}{interrupt(id=name)}"}, inline=True)
    graph.chain(START, "a", "b", END)
    execution = graph.execution()
    await stopped(execution)
    await stopped(execution, 1)
    await execution.resume(2)
    fork = execution.fork("c1")
    assert await stopped(fork) == ["b"]
    assert (await fork.resume(3))["log"] == ["a1", "b3"]


async def test_an_execution_may_begin_where_another_ended() -> None:
    graph = counting()
    first = graph.execution()
    await first.run({"n": 2})
    second = graph.execution(after=first)
    assert (await second.run({"n": 1, "log": "again"}))["log"] == ["a2", "b3", "again", "a1", "a2", "b3"]
    assert second.history()[-1].appended == {"log": ["again"]}


async def test_what_was_said_comes_into_the_inbox_once_at_a_boundary() -> None:
    class Chat(TypedDict):
        messages: Annotated[list[dict[str, str]], messages]
        n: int

    graph = Graph(Chat, inbox="messages", hear=lambda text: {"role": "user", "text": text})
    seen = []

    @graph.node
    async def work(state: Chat) -> dict[str, Any]:
        seen.append([message["text"] for message in state["messages"]])
        if state["n"] == 1:
            execution.say("hurry")
        return {"n": state["n"] + 1}

    graph.edge(START, "work").branch("work", lambda state: "work" if state["n"] < 4 else END, ["work", END])
    execution = graph.execution()
    await execution.run({"n": 0})
    assert seen == [[], [], ["hurry"], ["hurry"]]


# -- subgraphs and agents ---------------------------------------------------------------------------------------------


def inner(calls: list[str]) -> Graph[State]:
    graph = Graph(State, name="inner")

    def first(state: State) -> dict[str, Any]:
        calls.append("first")
        return {"log": "first", "n": state["n"] * 2}

    graph.node("first", first).node("ask", lambda state: {"log": interrupt("ok?")}, inline=True)
    return graph.chain(START, "first", "ask", END)


async def test_a_subgraph_keeps_its_own_checkpoints_and_resumes_inside() -> None:
    calls: list[str] = []
    graph = Graph(State)
    graph.node("sub", inner(calls)).node("end", lambda state: {"log": f"end{state['n']}"}, inline=True)
    graph.chain(START, "sub", "end", END)
    execution = graph.execution()
    with pytest.raises(GraphInterrupted):
        await execution.run({"n": 2, "log": ["begun"]})
    assert list(execution.interrupts) == ["1/sub|2/ask?0"]
    assert [one.id for one in execution.history("1/sub")] == ["1/sub|c1", "1/sub|c0"]
    assert (await execution.resume("yes"))["log"] == ["begun", "first", "yes", "end4"]
    assert calls == ["first"]


async def test_states_of_parent_and_subgraph_are_mapped() -> None:
    class Part(TypedDict, total=False):
        question: str
        answers: Annotated[list[str], append]

    part = Graph(Part)
    part.node("a", lambda state: {"answers": [state["question"] + "!", *state["answers"]]}, inline=True)
    part.chain(START, "a", END)
    graph = Graph(State)
    graph.node("made", part, takes=lambda state: {"question": "made"}, gives=lambda part: {"log": part["answers"]})
    graph.branch(START, lambda state: Send("sent", {"question": "sent"}), ["sent"])
    graph.node("sent", part, gives={"log": "answers"}).chain("sent", "made", END)
    assert (await graph.run())["log"] == ["sent!", "made!"]
    graph = Graph(State)
    graph.node("named", part, takes={"answers": "log"}, gives={"log": "answers"}).chain(START, "named", END)
    with pytest.raises(KeyError, match="question"):
        await graph.run({"log": ["x"]})


async def test_a_subgraph_hands_up_changed_and_removed_messages_only() -> None:
    from callboard import Remove

    class Chat(TypedDict):
        messages: Annotated[list[dict[str, str]], messages]

    part = Graph(Chat)
    part.node("a", lambda state: {"messages": [Remove("1"), {"id": "2", "text": "new"}, {"id": "3"}]}, inline=True)
    part.chain(START, "a", END)
    graph = Graph(Chat)
    graph.node("sub", part).chain(START, "sub", END)
    result = await graph.run({"messages": [{"id": "1"}, {"id": "2"}, {"id": "0"}]})
    assert result["messages"] == [{"id": "2", "text": "new"}, {"id": "0"}, {"id": "3"}]


@agent("square")
async def square(ctx: Any, n: int) -> int:
    """Squares."""
    return int(await ctx.step(lambda: n * n, name="square", returns=int))


async def test_an_agent_is_a_node() -> None:
    graph = Graph(State)
    graph.node("one", square, takes="n", gives="n")
    graph.node("two", square, takes=lambda state: state["n"] + 1, gives=lambda found: {"log": str(found)})
    graph.chain(START, "one", "two", END)
    assert await graph.run({"n": 3}) == {"n": 9, "log": ["100"], "total": 0}


async def test_agents_are_fanned_out() -> None:
    graph = Graph(State)
    graph.node("square", square, gives="total").edge("square", END)
    graph.branch(START, lambda state: [Send("square", n) for n in range(4)], ["square"])
    assert (await graph.run())["total"] == 0 + 1 + 4 + 9


async def test_a_graph_is_an_agent_that_others_call_in_process_too() -> None:
    calls: list[str] = []
    part = inner(calls).agent("inner-agent", version="2")
    assert (part.name, part.version, part.description) == ("inner-agent", "2", "Graph of first, ask")
    graph = Graph(State)

    @graph.node
    async def ask(state: State, ctx: Any) -> dict[str, Any]:
        found = await ctx.call(part, {"n": 3})
        return {"log": found["log"], "n": found["n"]}

    graph.chain(START, "ask", END)
    execution = graph.execution()
    await stopped(execution)
    assert (await execution.resume("yes")) == {"n": 6, "log": ["first", "yes"], "total": 0}
    assert calls == ["first"]


async def test_a_step_that_failed_is_data_and_ctx_says_what_needs_a_worker() -> None:
    graph = Graph(State)

    def broken() -> None:
        raise ValueError("no")

    @graph.node
    async def node(state: State, ctx: Any) -> dict[str, Any]:
        with pytest.raises(StepFailed, match="step 'broken' failed: no"):
            await ctx.step(broken)
        with pytest.raises(GraphError, match=r"ctx\.publish needs a worker"):
            await ctx.publish("x", b"")
        return {"log": "went on"}

    graph.chain(START, "node", END)
    assert (await graph.run())["log"] == ["went on"]


async def test_effects_and_artifacts_are_done_once_in_process_too() -> None:
    graph = Graph(State)
    sent: list[tuple[str, str]] = []

    def send(text: str, idempotency_key: str) -> str:
        sent.append((text, idempotency_key))
        return "sent"

    @graph.node
    async def node(state: State, ctx: Any) -> dict[str, Any]:
        await ctx.artifact("letter.txt", "dear all")
        return {"log": [await ctx.effect("send", send, "hello", key="k1"), interrupt("?")]}

    graph.chain(START, "node", END)
    execution = graph.execution()
    await stopped(execution)
    assert (await execution.resume("!"))["log"] == ["sent", "!"]
    assert sent == [("hello", "k1")]
    assert execution.memory.artifacts == {"letter.txt": "dear all"}


async def test_a_renamed_node_and_field_go_on_from_what_was_interrupted() -> None:
    class Old(TypedDict, total=False):
        text: str
        log: Annotated[list[str], append]

    class New(TypedDict, total=False):
        body: Annotated[str, Was("text")]
        log: Annotated[list[str], append]
        more: Annotated[list[str], append]

    old = Graph(Old)
    old.node("ask", lambda state: {"log": interrupt("?", id="q")}, inline=True).chain(START, "ask", END)
    before = old.execution()
    with pytest.raises(GraphInterrupted):
        await before.run({"text": "kept"})

    def question(state: New) -> dict[str, Any]:
        return {"log": f"{interrupt('?', id='q')} {state['body']} {state['more']}", "more": "new"}

    new = Graph(New)
    new.node("question", question, was=["ask"], inline=True).chain(START, "question", END)
    after: Execution[New] = Execution(new.compile(), before.memory)
    assert await stopped(after) == ["q"]
    assert await after.resume("yes") == {"body": "kept", "log": ["yes kept []"], "more": ["new"]}
    assert (after.snapshot().replaced, after.snapshot().appended) == (("body", "more"), {"log": ["yes kept []"]})
    gone = Graph(State)
    gone.node("other", lambda state: None, inline=True).chain(START, "other", END)
    with pytest.raises(UnknownChannel, match="'text'"):
        await Execution(gone.compile(), before.memory.upto(0)).run()


async def test_what_is_said_and_does_not_fit_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    class Chat(TypedDict):
        messages: Annotated[list[dict[str, str]], messages]

    graph = Graph(Chat, inbox="messages")
    graph.node("work", lambda state: None, inline=True).chain(START, "work", END)
    execution = graph.execution()
    execution.say("hurry")
    execution.say(5)
    found = (await execution.run())["messages"]
    assert [(one["role"], one["content"]) for one in found] == [("user", "hurry")]
    assert "a message to the run is left out" in caplog.text


async def test_time_and_chance_are_the_same_when_a_node_starts_again() -> None:
    graph = Graph(State)
    seen: list[Any] = []

    @graph.node
    async def node(state: State, ctx: Any) -> None:
        await ctx.sleep(0.001)
        seen.append((await ctx.now(), await ctx.random(), await ctx.uuid()))
        interrupt("?")

    graph.chain(START, "node", END)
    execution = graph.execution()
    await stopped(execution)
    await execution.resume("!")
    assert seen[0] == seen[1]


# -- watching ---------------------------------------------------------------------------------------------------------


async def test_a_stream_tells_what_happens_as_it_happens() -> None:
    graph = Graph(State)

    @graph.node
    async def a(state: State, ctx: Any) -> dict[str, Any]:
        await ctx.emit("seen", {"n": state["n"]})
        return {"log": "a"}

    graph.node("sub", inner([])).chain(START, "a", "sub", END)
    execution = graph.execution()
    events = [one async for one in execution.stream({"n": 1})]
    assert [(one.kind, one.namespace, one.step) for one in events] == [
        ("superstep", "", 0),
        ("started", "", 1),
        ("node_started", "", 1),
        ("custom", "", 0),
        ("node", "", 1),
        ("superstep", "", 1),
        ("started", "", 2),
        ("node_started", "", 2),
        ("superstep", "2/sub", 0),
        ("started", "2/sub", 1),
        ("node_started", "2/sub", 1),
        ("node", "2/sub", 1),
        ("superstep", "2/sub", 1),
        ("started", "2/sub", 2),
        ("node_started", "2/sub", 2),
        ("interrupted", "", 0),
    ]
    assert list(events[-1].data) == ["2/sub|2/ask?0"]


async def test_a_stream_ends_with_the_result_or_raises_the_error() -> None:
    assert [one.kind async for one in counting().stream({"n": 3})][-1] == "ended"
    graph = Graph(State)
    graph.node("a", lambda state: 1 / 0, inline=True).chain(START, "a", END)
    stream = graph.stream()
    assert [(await anext(stream)).kind for _ in range(3)] == ["superstep", "started", "node_started"]
    with pytest.raises(ZeroDivisionError):
        await anext(stream)


async def test_a_stream_that_is_left_stops_the_execution_which_goes_on_later() -> None:
    graph = Graph(State)

    @graph.node
    async def slow(state: State) -> dict[str, Any]:
        await asyncio.sleep(0 if state["n"] else 60)
        return {"log": "slow"}

    graph.node("first", lambda state: Command({"log": "first"}, goto="slow"), goes=["slow"], inline=True)
    graph.edge(START, "first").edge("slow", END)
    execution = graph.execution()
    stream = execution.stream({"n": 0})
    async for one in stream:
        if one.kind == "superstep" and one.step == 1:
            break
    await stream.aclose()
    await execution.update_state({"n": 1})
    assert (await execution.run())["log"] == ["first", "slow"]
