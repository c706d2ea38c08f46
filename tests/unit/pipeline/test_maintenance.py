from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from applier.changefeed.checkpoint import Checkpoint, Holder
from applier.config.settings import MaintenanceSection
from applier.errors import CheckpointConflict, TransientError
from applier.pipeline import maintenance
from applier.pipeline.maintenance import REST_SECONDS, Budget, Maintenance
from applier.sink.upkeep import Task


@dataclass
class Clock:
    """A clock that moves when it is told to."""

    now: float = 1000.0

    def __call__(self) -> float:
        """The time."""
        return self.now


@dataclass
class FakeUpkeep:
    """A table whose every unit of work takes some seconds, and what was done to it."""

    writer: Any
    clock: Clock
    seconds: float = 10
    done: list[str] = field(default_factory=list)
    worn: int = 0
    snapshots: int = 1
    has_many_manifests: bool = False
    orphans_removed_at: int | None = None
    error: Exception | None = None

    @property
    def is_worn(self) -> bool:
        """See `Upkeep.is_worn`."""
        return self.worn > 0

    def compact(self) -> dict[str, int]:
        """Do one unit."""
        self.worn -= self._unit("compact")
        return {"compacted": 5} if self.worn >= 0 else {}

    def rewrite_manifests(self) -> dict[str, int]:
        """Do one unit."""
        return {"manifests": self._unit("manifests")}

    def expire(self, cut: int | None) -> dict[str, int]:
        """Do one unit."""
        return {"expired": self._unit(f"expire down to {cut}")}

    def remove_orphans(self) -> dict[str, int]:
        """Do one unit."""
        return {"orphans": self._unit("orphans")}

    def _unit(self, name: str) -> int:
        self.clock.now += self.seconds
        if self.error is not None:
            raise self.error
        self.done.append(name)
        return 1


@dataclass
class Lake:
    """Some fake tables, and the maintenance of them."""

    monkeypatch: pytest.MonkeyPatch
    clock: Clock = field(default_factory=Clock)
    tables: list[FakeUpkeep] = field(default_factory=list)
    snapshots: dict[tuple[str, ...], int] = field(default_factory=dict)
    catalog: None = None
    confirm: Callable[[], None] = lambda: None

    def add(self, **state: Any) -> FakeUpkeep:
        """One more table, at head 1."""
        identifier = ("shop", f"t{len(self.tables)}")
        writer = SimpleNamespace(head=1, known=object(), table=SimpleNamespace(identifier=identifier))
        self.tables.append(FakeUpkeep(writer, self.clock, **state))
        self.snapshots[identifier] = 1
        return self.tables[-1]

    def committed(self, writer: Any, head: int) -> None:
        """Take note, as `TargetTables` does."""
        self.snapshots[writer.table.identifier] = head

    @property
    def writers(self) -> list[Any]:
        """Writers, as `TargetTables` has them."""
        return [table.writer for table in self.tables]

    def maintenance(self, **settings: Any) -> Maintenance:
        """The maintenance of these tables."""
        by_writer = {id(table.writer): table for table in self.tables}
        self.monkeypatch.setattr(maintenance, "Upkeep", lambda writer, limits, neighbours: by_writer[id(writer)])
        return Maintenance(MaintenanceSection(**settings), self, self.clock)  # type: ignore[arg-type]


CHECKPOINT = Checkpoint(
    epoch=1,
    step=1,
    resolved_ts=5,
    written_at=0,
    holder=Holder("", "", "", "", "", 1, 1, 1),
    snapshots={("shop", "t0"): 7},
)


@pytest.fixture
def lake(monkeypatch: pytest.MonkeyPatch) -> Lake:
    """No table yet."""
    return Lake(monkeypatch)


def test_budget_is_a_share_of_wall_time() -> None:
    """Work that overdraws the budget is made up by waiting, and what is saved up is bounded."""
    clock = Clock()
    budget = Budget(0.1, clock)
    assert not budget.allows()
    clock.now += 1
    assert budget.allows()
    budget.spend(1.1)
    clock.now += 9
    assert not budget.allows()
    clock.now += 2
    assert budget.allows()
    clock.now += 1e9
    assert budget.allows()
    budget.spend(30)
    assert not budget.allows()


def test_units_of_work_keep_to_the_budget(lake: Lake) -> None:
    """Ten seconds of work need a hundred seconds of wall time at a share of a tenth, one unit after the other."""
    table = lake.add(worn=100)
    mending = lake.maintenance(share=0.1)

    for _ in range(1000):
        lake.clock.now += 1
        mending.tend(CHECKPOINT)

    assert lake.clock.now == 1000 + 1000 + 10 * len(table.done)
    assert 10 <= len(table.done) <= 12


def test_nothing_is_done_where_nothing_is_due(lake: Lake) -> None:
    """A few young tables cost no unit of work, whatever the budget."""
    for _ in range(3):
        lake.add(snapshots=90)
    mending = lake.maintenance(share=1)
    lake.clock.now += 100

    assert mending.tend(CHECKPOINT) == {}
    assert [table.done for table in lake.tables] == [[], [], []]


def test_tables_take_turns(lake: Lake) -> None:
    """A table that is always worn does not keep the others from being mended."""
    first, second = lake.add(worn=100), lake.add(worn=100)
    mending = lake.maintenance(share=0.5)

    for _ in range(60):
        lake.clock.now += 1
        mending.tend(CHECKPOINT)

    assert len(first.done) - len(second.done) in (0, 1)
    assert 3 <= len(second.done) <= 6


def test_the_next_step_does_not_wait_for_all_tables(lake: Lake) -> None:
    """However much was saved up, no unit begins once the pause is over; one that has begun is ended."""
    for _ in range(10):
        lake.add(worn=1, seconds=0.4)
    mending = lake.maintenance(share=1, pause_seconds=1)
    lake.clock.now += 300

    for turn in range(1, 4):
        mending.tend(CHECKPOINT)
        assert sum(len(table.done) for table in lake.tables) == 3 * turn


def test_a_long_look_at_the_tables_keeps_none_from_being_mended(lake: Lake) -> None:
    """Where the look takes longer than the pause, one unit is done all the same."""
    table = lake.add(worn=1)
    mending = lake.maintenance(share=1, pause_seconds=0.5)
    lake.clock.now += 100
    mending.clock = itertools.count(2000).__next__

    mending.tend(CHECKPOINT)
    assert table.done == ["compact"]


def test_a_compaction_goes_on_until_nothing_is_left(lake: Lake) -> None:
    """Work that was due stays due while the table stands still, and ends."""
    table = lake.add(worn=3)
    mending = lake.maintenance(share=1)

    for _ in range(9):
        lake.clock.now += 10
        mending.tend(CHECKPOINT)

    assert table.done == ["compact"] * 4


def test_expiry_is_told_the_snapshot_of_the_checkpoint(lake: Lake) -> None:
    """The cut through all tables is passed on; a table that the checkpoint does not name has none."""
    first, second = lake.add(snapshots=601), lake.add(snapshots=601)
    mending = lake.maintenance(share=1, snapshots=500)
    for _ in range(3):
        lake.clock.now += 100
        mending.tend(CHECKPOINT)

    assert first.done == ["expire down to 7"]
    assert second.done == ["expire down to None"]


def test_what_only_time_changes_is_looked_at_by_the_hour(lake: Lake) -> None:
    """Old snapshots and orphans of an idle table are due without a commit to it; a start alone lists no files."""
    table = lake.add(snapshots=2)
    mending = lake.maintenance(share=1)
    lake.clock.now += 100
    mending.tend(CHECKPOINT)
    assert table.done == []

    lake.clock.now += 3600
    mending.tend(CHECKPOINT)
    lake.clock.now += 100
    mending.tend(CHECKPOINT)

    assert table.done == ["expire down to 7", "orphans"]


@pytest.mark.parametrize("tasks", [[], ["expire"], ["compact", "manifests"]])
def test_only_what_is_asked_for_is_done(lake: Lake, tasks: list[Task]) -> None:
    """An empty list turns maintenance off, a shorter one leaves the rest to others."""
    table = lake.add(worn=1, snapshots=601, has_many_manifests=True)
    mending = lake.maintenance(share=1, tasks=tasks)
    for _ in range(9):
        lake.clock.now += 100
        mending.tend(CHECKPOINT)

    assert {name.partition(" ")[0] for name in table.done} == set(tasks)


def test_work_that_fails_is_put_off(lake: Lake) -> None:
    """A failure is logged, leaves that table alone for a while, and the others go on."""
    table, other = lake.add(worn=9, error=TransientError("Storage does not answer")), lake.add(worn=1)
    mending = lake.maintenance(share=1)
    for _ in range(5):
        lake.clock.now += 20
        mending.tend(CHECKPOINT)
    assert table.done == []
    assert other.done == ["compact", "compact"]

    table.error = None
    lake.clock.now += REST_SECONDS
    assert mending.tend(CHECKPOINT)["compacted"] > 0


def test_an_applier_that_lost_the_changefeed_rewrites_nothing(lake: Lake) -> None:
    """Before each unit of work the hold on the changefeed is confirmed, and an older epoch stops the run."""
    table = lake.add(worn=9)
    mending = lake.maintenance(share=1)
    lake.clock.now += 10

    def lost() -> None:
        what = "Changefeed shop was taken"
        raise CheckpointConflict(what)

    lake.confirm = lost
    with pytest.raises(CheckpointConflict, match="was taken"):
        mending.tend(CHECKPOINT)
    assert table.done == []

    lake.confirm = lambda: None
    table.error = CheckpointConflict("Table shop.t0 was written by a newer applier")
    with pytest.raises(CheckpointConflict, match="newer applier"):
        mending.tend(CHECKPOINT)


def test_the_next_checkpoint_lists_the_new_head(lake: Lake) -> None:
    """A compacted table is listed by its new snapshot, one that the checkpoint leaves out is not listed."""
    table, other = lake.add(worn=1), lake.add(worn=1)
    del lake.snapshots[other.writer.table.identifier]
    table.writer.head = other.writer.head = 2
    mending = lake.maintenance(share=1)
    for _ in range(4):
        lake.clock.now += 100
        mending.tend(CHECKPOINT)

    assert lake.snapshots == {("shop", "t0"): 2}
