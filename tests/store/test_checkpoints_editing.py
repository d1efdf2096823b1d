"""Edits of states from outside, and values that are encrypted at rest."""

from __future__ import annotations

from typing import Any

import pytest
from cryptography.fernet import Fernet
from pydantic import SecretStr

from callboard.store.agents import AgentRegistry
from callboard.store.errors import CheckpointKeyMissing, CheckpointMissing, UnknownNode
from callboard.topics import reads
from callboard.topics.bus import Bus
from callboard.topics.errors import IllegalTransition, InvalidInput, NotFound
from callboard.topics.ids import new_run_id
from callboard.topics.messages import AgentInfo, Status
from tests.store.chains import Chain, agrees

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"n": {"type": "integer"}, "items": {"type": "array", "items": {"type": "string"}}},
    "required": ["n"],
}


async def parked(bus: Bus, status: Status = Status.INPUT_REQUIRED) -> Chain:
    """A run with two checkpoints."""
    chain = await Chain(bus).begin()
    await chain.save({"n": 1, "items": ["a"]}, next=["work"], ran=["begin"])
    await chain.save(
        {"n": 2, "items": ["a", "b"]}, plan={"joins": {"x": ["y"]}}, next=["work"], ran=["work"], fingerprint="f"
    )
    await chain.state(status)
    return chain


# --- edits ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [Status.INPUT_REQUIRED, Status.AUTH_REQUIRED, Status.WAITING, Status.QUEUED])
async def test_a_parked_run_is_edited_as_the_child_of_its_newest_checkpoint(bus: Bus, status: Status) -> None:
    chain = await parked(bus, status)
    before = await chain.newest()
    saved = await chain.store.update_state(chain.run, {"n": 7}, as_node="work")
    state = await chain.store.load(chain.run)
    assert state is not None
    assert state.saved == saved
    assert state.values == {"n": 7, "items": ["a", "b"]}
    made = saved.checkpoint
    assert (made.source, made.step, made.as_node, made.next) == ("update", 2, "work", ["work"])
    assert (saved.parent, saved.since, list(made.put)) == (before.id, before.sequence, ["n"])
    assert state.plan == b'{"joins":{"x":["y"]}}'
    again = await chain.store.update_state(chain.run, {"items": ["c"]})
    assert (again.parent, again.since) == (saved.id, before.sequence), "what was journaled still counts"
    await agrees(chain)


@pytest.mark.parametrize("status", [Status.RUNNING, Status.COMPLETED, Status.FAILED, Status.CANCEL_REQUESTED])
async def test_a_run_that_is_carried_out_or_has_ended_is_not_edited(bus: Bus, status: Status) -> None:
    chain = await parked(bus, status)
    with pytest.raises(IllegalTransition, match="Fork it"):
        await chain.store.update_state(chain.run, {"n": 7})
    assert len(await chain.store.history(chain.run)) == 2


async def test_an_edit_that_comes_too_late_is_refused_by_the_broker(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker takes the run up after the look and before the write."""
    from callboard.store.checkpoints.editing import Editing

    chain = await parked(bus)
    check = Editing._check

    async def checked(self: Editing, *arguments: Any) -> None:
        await chain.state(Status.RUNNING)
        await check(self, *arguments)

    monkeypatch.setattr(Editing, "_check", checked)
    with pytest.raises(IllegalTransition, match="gone on meanwhile"):
        await chain.store.update_state(chain.run, {"n": 7})
    state = await chain.store.load(chain.run)
    assert state is not None
    assert state.values["n"] == 2


async def test_a_state_that_does_not_fit_the_schema_is_not_saved(bus: Bus) -> None:
    await AgentRegistry(bus).register(AgentInfo(name="a", state_schema=SCHEMA))
    chain = await parked(bus)
    with pytest.raises(InvalidInput, match="does not fit the schema of agent 'a'"):
        await chain.store.update_state(chain.run, {"n": "seven"})
    with pytest.raises(InvalidInput, match="has no 'm': it has n, items"):
        await chain.store.update_state(chain.run, {"m": 1})
    assert len(await chain.store.history(chain.run)) == 2
    await chain.store.update_state(chain.run, {"n": 7})


async def test_an_edit_comes_from_a_node_that_there_is(bus: Bus) -> None:
    chain = await parked(bus)
    await chain.store.update_state(chain.run, {"n": 3}, as_node="anything")  # nobody says which nodes there are
    await AgentRegistry(bus).register(AgentInfo(name="a", nodes=["__start__", "work", "was"]))
    with pytest.raises(UnknownNode, match="'wrok', which agent 'a' does not have; did you mean 'work'") as caught:
        await chain.store.update_state(chain.run, {"n": 4}, as_node="wrok")
    assert (caught.value.code, caught.value.node) == ("unknown_node", "wrok")
    for node in ("work", "was", "__start__"):
        await chain.store.update_state(chain.run, {"n": 5}, as_node=node)
    await AgentRegistry(bus).register(AgentInfo(name="a", version="2", nodes=["work"]))
    chain.more = {"version": "1", "pin": True}
    await AgentRegistry(bus).register(AgentInfo(name="a", version="1", nodes=["old"]))
    await chain.state(Status.QUEUED)
    await chain.store.update_state(chain.run, {"n": 6}, as_node="old")  # the nodes of the version it is pinned to
    with pytest.raises(UnknownNode):
        await chain.store.update_state(chain.run, {"n": 6}, as_node="work")


async def test_the_state_of_a_code_agent_is_not_edited_as_a_node(bus: Bus) -> None:
    chain = await Chain(bus).begin()
    await chain.save({"n": 1}, source="code")
    await chain.state(Status.WAITING)
    with pytest.raises(InvalidInput, match="agent 'a' is no graph"):
        await chain.store.update_state(chain.run, {"n": 2}, as_node="work")
    await chain.store.update_state(chain.run, {"n": 2})


async def test_items_are_appended_and_channels_taken_away(bus: Bus) -> None:
    chain = await Chain(bus).begin()
    items = ["some text of a certain length"] * 20
    await chain.save({"n": 1, "items": items})
    await chain.state(Status.INPUT_REQUIRED)
    saved = await chain.store.update_state(chain.run, {"new": 1}, append={"items": ["c"], "more": [1]}, remove=["n"])
    state = await chain.again()
    assert state.values == {"items": [*items, "c"], "new": 1, "more": [1]}
    assert len(bytes(saved.checkpoint.put["items"].json)) == 5, "what was appended alone is stored"  # type: ignore[arg-type]
    await agrees(chain)


@pytest.mark.parametrize(
    "wrong",
    [
        {"values": {}}, {"values": {}, "append": {"n": [1]}}, {"values": {}, "remove": ["none"]},
        {"values": {"n": 1}, "remove": ["n"]}, {"values": {"items": []}, "append": {"items": []}},
    ],
)  # fmt: skip
async def test_edits_that_cannot_be_meant_are_refused(bus: Bus, wrong: dict[str, Any]) -> None:
    chain = await parked(bus)
    with pytest.raises(InvalidInput):
        await chain.store.update_state(chain.run, **wrong)
    assert len(await chain.store.history(chain.run)) == 2


async def test_there_is_nothing_to_edit(bus: Bus) -> None:
    chain = await Chain(bus).begin(Status.QUEUED)
    with pytest.raises(CheckpointMissing, match="no state yet"):
        await chain.store.update_state(chain.run, {"n": 7})
    with pytest.raises(NotFound):
        await chain.store.update_state(new_run_id(), {"n": 7})


# --- encryption ----------------------------------------------------------------------------------------------------

OLD, NEW = Fernet.generate_key().decode(), Fernet.generate_key().decode()


def keyed(bus: Bus, *keys: str) -> Bus:
    """The connection, as a process with these keys has it."""
    secret = SecretStr(", ".join(keys)) if keys else None
    bus.settings = bus.settings.model_copy(update={"checkpoint_keys": secret})
    return bus


async def everything(bus: Bus) -> bytes:
    """All bytes in the log and in the object store."""
    found = b""
    for stream, subject in ((bus.subjects.events, f"{bus.subjects.run}.>"), (f"OBJ_{bus.subjects.blobs}", "$O.>")):
        async for page in reads.read(bus, stream, subject):
            found += b"".join(stored.data for stored in page)
    return found


async def test_values_are_encrypted_in_the_log_and_in_the_object_store(bus: Bus) -> None:
    chain = await Chain(keyed(bus, OLD)).begin()
    values = {"small": "a whisper", "items": [f"whisper {number}" for number in range(50)], "large": "whisper" * 20_000}
    await chain.save(values, plan={"input": "a whisper input"})
    values = values | {"items": [*values["items"], "one more whisper"]}
    await chain.save(values, {"items": ["one more whisper"]})
    assert b"whisper" not in await everything(bus)
    await agrees(chain)
    await chain.again()
    await chain.save(values | {"small": "another whisper"})
    assert list((await chain.newest()).checkpoint.put) == ["small"], "what did not change is not stored again"
    await agrees(chain)


async def test_keys_are_rotated(bus: Bus) -> None:
    """The new key encrypts, both decrypt; a process that has only one reads what that one has written."""
    first = await Chain(keyed(bus, OLD)).begin()
    await first.save({"a": "written with the old key", "b": 1})
    second = Chain(keyed(bus, NEW, OLD), first.run)
    second.owner, second.saved = first.owner, first.saved
    await second.again()
    await second.save({"a": "written with the old key", "b": 2}, {"b": None})
    await agrees(second)
    with pytest.raises(CheckpointKeyMissing, match="none of the keys"):
        await Chain(keyed(bus, NEW), first.run).again()
    await second.save({"a": "written with the new key", "b": 2}, {"a": None})
    state = await Chain(keyed(bus, NEW), first.run).again()
    assert state.values == {"a": "written with the new key", "b": 2}
    with pytest.raises(CheckpointKeyMissing, match="has no key"):
        await Chain(keyed(bus), first.run).again()


async def test_plain_values_stay_readable_when_a_key_is_added(bus: Bus) -> None:
    chain = await Chain(bus).begin()
    await chain.save({"a": "plain", "b": 1})
    later = Chain(keyed(bus, NEW), chain.run)
    later.owner, later.saved = chain.owner, chain.saved
    await later.again()
    await later.save({"a": "plain", "b": 2}, {"b": None})
    await agrees(later)


async def test_a_key_that_is_none_is_refused_at_once(bus: Bus) -> None:
    with pytest.raises(InvalidInput, match="no Fernet key"):
        Chain(keyed(bus, "not a key"))
