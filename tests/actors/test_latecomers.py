"""Children that were written while their parent was being canceled never begin."""

from __future__ import annotations

import msgspec
import pytest

from callboard.actors.coordinator.latecomers import Latecomers
from callboard.actors.coordinator.ledger import Ledger
from callboard.actors.coordinator.tracing import RunTracing
from callboard.store.log import EventLog, Loaded
from callboard.topics import units
from callboard.topics.bus import Bus
from callboard.topics.ids import child_run_id, new_run_id
from callboard.topics.messages import NOTHING, CancelOrder, RunRecord, Status


class Scene:
    """A parent in some state and a queued child of its own, in a real log."""

    def __init__(self, bus: Bus) -> None:
        self.ledger = Ledger(EventLog(bus), RunTracing(bus))
        self.settled: list[Loaded] = []
        self.latecomers = Latecomers(self.ledger, self._settle)

    async def _settle(self, loaded: Loaded) -> None:
        self.settled.append(loaded)

    async def family(self, status: Status, order: CancelOrder | None, **child: bool) -> tuple[RunRecord, RunRecord]:
        run, now = new_run_id(), units.now()
        parent = RunRecord(
            id=run, root=run, agent="tree", status=status, input=NOTHING, created_at=now, updated_at=now, attempt=1,
            cancel=order,
        )  # fmt: skip
        below = RunRecord(
            id=child_run_id(run, "0"), root=run, parent=run, agent="job", status=Status.QUEUED, input=NOTHING,
            created_at=now, updated_at=now, dispatch=1, detached=child.get("detached", False),
        )  # fmt: skip
        await self.ledger.create(parent)
        await self.ledger.create(below)
        return parent, below

    async def status(self, run: str) -> Status:
        loaded = await self.ledger.load(run)
        assert loaded is not None
        return loaded.record.status


@pytest.fixture
def scene(bus: Bus) -> Scene:
    return Scene(bus)


TREE = CancelOrder(scope="tree")
PASSED_ON = CancelOrder(scope="run", by="0s7sj8rrxg04qn3wrfzrb4ag")


@pytest.mark.parametrize("order", [TREE, PASSED_ON])
@pytest.mark.parametrize("status", [Status.CANCEL_REQUESTED, Status.CANCELED])
async def test_the_first_claim_of_a_child_below_a_canceled_run_cancels_it(
    scene: Scene, status: Status, order: CancelOrder
) -> None:
    """The coordinator that wrote the child died before it looked."""
    _, child = await scene.family(status, order)
    await scene.latecomers.begins(child.id)
    assert await scene.status(child.id) is Status.CANCELED
    assert [loaded.record.id for loaded in scene.settled] == [child.id], "its parent is told"


async def test_a_child_that_its_own_coordinator_finds_to_be_late_is_canceled(scene: Scene) -> None:
    parent, child = await scene.family(Status.CANCELED, TREE)
    await scene.latecomers.written(parent.id, [child])
    assert await scene.status(child.id) is Status.CANCELED


@pytest.mark.parametrize(
    ("status", "order", "detached"),
    [
        (Status.RUNNING, None, False),
        (Status.COMPLETED, None, False),
        (Status.CANCELED, CancelOrder(scope="run"), False),
        (Status.CANCELED, TREE, True),
    ],
)
async def test_other_children_begin(scene: Scene, status: Status, order: CancelOrder | None, detached: bool) -> None:
    """Of a run that goes on, or that was canceled alone; and detached ones."""
    parent, child = await scene.family(status, order, detached=detached)
    await scene.latecomers.begins(child.id)
    await scene.latecomers.written(parent.id, [child])
    assert await scene.status(child.id) is Status.QUEUED


async def test_a_child_that_was_looked_after_is_not_asked_about_again(scene: Scene) -> None:
    """A later cancel finds it in the log."""
    parent, child = await scene.family(Status.RUNNING, None)
    await scene.latecomers.written(parent.id, [child])
    loaded = await scene.ledger.load(parent.id)
    assert loaded is not None
    canceled = msgspec.structs.replace(parent, status=Status.CANCELED, cancel=TREE, rev=2)
    await scene.ledger._log.append_state(canceled, loaded.sequence)
    await scene.latecomers.begins(child.id)
    assert await scene.status(child.id) is Status.QUEUED
    await scene.latecomers.begins(child.id)
    assert await scene.status(child.id) is Status.CANCELED, "a second claim asks"
