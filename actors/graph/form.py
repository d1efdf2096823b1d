"""`Form`: how a compiled graph's snapshots are written down as JSON and read again. Fulfils `Shape`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from ...topics import codec
from ..migrations import Ages, Migration, planned
from .compiled import Compiled
from .editing import edited
from .errors import UnknownChannel, UnknownNode
from .ground import Send, Snapshot, Task, Writes


class _Route(msgspec.Struct, omit_defaults=True):
    """Where a task goes by its own word; with an input it is a `Send`."""

    to: str
    input: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class _Writes(msgspec.Struct, omit_defaults=True):
    """`Writes` as JSON."""

    updates: dict[str, msgspec.Raw] = {}
    goto: list[_Route] | None = None


class Form:
    """See `Shape` for what each method promises."""

    def __init__(self, graph: Compiled, agent: str = "", version: str = "") -> None:
        self._graph, self._agent, self.version = graph, agent, version
        self.name = graph.name
        self.fingerprint = graph.fingerprint
        self.schema_version = graph.schema_version

    def steps(self, version: str, schema: str) -> Sequence[Migration]:  # noqa: D102  # Shape says it
        cls, now = self._graph.schema.cls, str(self.schema_version)
        found = version if self._agent else self.version
        ages = Ages(
            agent=self._agent, found=found, wanted=self.version, schema=cls, schema_found=schema, schema_wanted=now
        )
        return planned(ages)

    def dump(self, channel: str, value: Any) -> bytes:  # noqa: D102  # Shape says it
        return self._graph.schema.channels[channel].dump(value)

    def dump_items(self, channel: str, items: Sequence[Any]) -> bytes:  # noqa: D102
        return self._graph.schema.channels[channel].dump_items(items)

    def restore(self, channel: str, whole: bytes | None, appended: Sequence[bytes] = ()) -> Any:  # noqa: D102
        return self._channel(channel).restore(whole, appended)

    def _channel(self, name: str) -> Any:
        now = self.channel(name)
        if now is None:
            raise UnknownChannel(
                f"the checkpoint has channel {name!r}, which graph {self.name!r} has no more: say which field it is "
                f"now, Annotated[..., Was({name!r})], or write a migration",
                channel=name,
            )
        return self._graph.schema.channels[now]

    def channel(self, name: str) -> str | None:  # noqa: D102
        schema = self._graph.schema
        return name if name in schema.channels else schema.former.get(name)

    def node(self, name: str) -> str | None:  # noqa: D102
        return self._graph.node_now(name)

    def dump_input(self, task: Task) -> bytes | None:  # noqa: D102
        if task.number is None:
            return None
        if not self._graph.nodes[task.node].takes_state:
            return codec.encode(task.input)
        return msgspec.json.encode({name: msgspec.Raw(self.dump(name, one)) for name, one in task.input.items()})

    def load_task(self, node: str, number: int | None, input: bytes | None) -> Task:  # noqa: D102
        now = self.node(node)
        if now is None:
            raise UnknownNode(
                f"the checkpoint plans node {node!r}, which graph {self.name!r} has no more: say which node it is now, "
                f"node(..., was=[{node!r}])",
                graph=self.name,
                node=node,
            )
        if number is None or input is None:
            return Task(now, number)
        found = self._graph.nodes[now]
        if not found.takes_state:
            return Task(now, number, codec.decode(input, found.input_type))
        parts = msgspec.json.decode(input, type=dict[str, msgspec.Raw])
        values = {self.channel(name) or name: self.restore(name, bytes(one)) for name, one in parts.items()}
        return Task(now, number, values)

    async def edited(self, snapshot: Snapshot, values: Any, as_node: str | None = None) -> Snapshot:  # noqa: D102
        return await edited(self._graph, snapshot, values, as_node)

    def dump_writes(self, task: Task, writes: Writes) -> bytes:  # noqa: D102
        channels = self._graph.schema.channels
        updates = {name: msgspec.Raw(channels[name].dump_update(one)) for name, one in writes.updates.items()}
        goto = None if writes.goto is None else [_route(one) for one in writes.goto]
        return msgspec.json.encode(_Writes(updates, goto))

    def load_writes(self, data: bytes) -> Writes:  # noqa: D102
        found = msgspec.json.decode(data, type=_Writes)
        updates = {
            self.channel(name) or name: self._channel(name).load_update(bytes(one))
            for name, one in found.updates.items()
        }
        goto = None if found.goto is None else tuple(map(self._loaded, found.goto))
        return Writes(updates, goto)

    def _loaded(self, route: _Route) -> str | Send:
        to = self.node(route.to) or route.to
        return to if isinstance(route.input, msgspec.UnsetType) else Send(to, codec.decode(bytes(route.input)))


def _route(route: str | Send) -> _Route:
    if isinstance(route, Send):
        return _Route(route.node, msgspec.Raw(codec.encode(route.input)))
    return _Route(route)
