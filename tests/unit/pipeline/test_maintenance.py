from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest

from applier.changefeed.checkpoint import Checkpoint, Cut, Holder, Lease
from applier.changefeed.filter import TablePattern
from applier.changefeed.shape import Shape
from applier.changefeed.table import TableName
from applier.changefeed.types import TypeRules
from applier.config.settings import MaintenanceSection
from applier.errors import CheckpointConflict, TransientError
from applier.pipeline import maintenance
from applier.pipeline.maintenance import HANGING_SECONDS, REST_SECONDS, UNITS, Budget, Maintenance
from applier.runtime.threads import Asking
from applier.sink.upkeep import Task
from applier.sink.write.merge import Merge


@dataclass
class Clock:
    """A clock that moves when it is told to."""

    now: float = 1000.0

    def __call__(self) -> float:
        """The time."""
        return self.now


@dataclass
class FakeTable:
    """A table whose every unit of work takes some seconds, and what was done to it."""

    identifier: tuple[str, ...]
    clock: Clock
    seconds: float = 10
    done: list[str] = field(default_factory=list)
    units: int = 0
    share: float = 1.0
    snapshots: int = 1
    has_many_manifests: bool = False
    orphans_removed_at: int | None = None
    error: Exception | None = None
    is_plain: bool = True
    fits: bool = True
    uuid: str = "u"
    first_day: int = 0

    @property
    def worn(self) -> float:
        """See `Upkeep.worn`: units of work are left."""
        return self.share if self.units else 0.0

    def unit(self, name: str) -> int:
        """Do one unit of work."""
        self.clock.now += self.seconds
        if self.error is not None:
            raise self.error
        self.done.append(name)
        return 1


@dataclass
class FakeWriter:
    """A writer of a table."""

    table: FakeTable
    head: int | None = 1
    known: object = ()

    def look(self) -> None:
        """See `TableWriter.look`."""


@dataclass
class FakeUpkeep:
    """The work on a table, as `Upkeep` has it."""

    writer: FakeWriter
    limits: object
    neighbours: object = None
    dead_positions: dict[str, Any] = field(default_factory=dict)
    days: int | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.writer.table, name)

    def merge(self, known: object) -> Merge | None:
        """Prepare one unit."""
        assert known == {}
        part: Any = (), None
        self.writer.table.unit("merge")
        return Merge("u", 0, [part] if self.units else []) if self.is_plain else None

    def take_in(self, merge: Merge) -> dict[str, int]:
        """Commit what was prepared."""
        if not self.fits:
            return {}
        self.writer.table.units -= len(merge.parts)
        return {"compacted": 5} if merge.parts else {}

    def compact(self) -> dict[str, int]:
        """Do one unit between two steps, here by Iceberg's action."""
        self.writer.table.unit("by iceberg")
        self.writer.table.units -= 1
        return {"compacted": 5} if self.units >= 0 else {}

    def drop_days(self) -> dict[str, int]:
        """Do one unit."""
        return {"days": self.writer.table.unit(f"drop what is older than {self.days} days")}

    def rewrite_manifests(self) -> dict[str, int]:
        """Do one unit."""
        return {"manifests": self.writer.table.unit("manifests")}

    def expire(self, cut: int | None) -> dict[str, int]:
        """Do one unit."""
        self.writer.table.snapshots = 1
        return {"expired": self.writer.table.unit(f"expire down to {cut}")}

    def remove_orphans(self) -> dict[str, int]:
        """Do one unit."""
        return {"orphans": self.writer.table.unit("orphans")}


@dataclass
class Lake:
    """Some fake tables, and the maintenance of them, whose units of work are done as they begin."""

    monkeypatch: pytest.MonkeyPatch
    clock: Clock = field(default_factory=Clock)
    writers: list[FakeWriter] = field(default_factory=list)
    snapshots: dict[tuple[str, ...], int] = field(default_factory=dict)
    feed: Any = field(default_factory=lambda: SimpleNamespace(name="shop", epoch=1))
    confirm: Callable[[], None] = lambda: None
    parked: set[tuple[str, ...]] = field(default_factory=set)
    maker: Any = field(default_factory=lambda: SimpleNamespace(rules=TypeRules()))

    def add(self, **state: Any) -> FakeTable:
        """One more table, at head 1."""
        table = FakeTable(("shop", f"t{len(self.writers)}"), self.clock, **state)
        self.writers.append(FakeWriter(table))
        self.snapshots[table.identifier] = 1
        return table

    def identifier(self, name: TableName) -> tuple[str, ...]:
        """See `TargetTables.identifier`."""
        return name.database, name.table

    @property
    def catalog(self) -> Lake:
        """Itself."""
        return self

    def load(self, identifier: tuple[str, ...]) -> FakeTable | None:
        """See `Catalog.load`."""
        return next((each.table for each in self.writers if each.table.identifier == identifier), None)

    def side_by_side(self, work: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
        """See `TargetTables.side_by_side`."""
        return [work(item) for item in items]

    def follow(self, writer: Any) -> None:
        """Take note, as `TargetTables` does."""
        self.snapshots[writer.table.identifier] = writer.head

    def maintenance(self, begin: Callable[[Asking], None] = Asking.run, **settings: Any) -> Maintenance:
        """The maintenance of these tables."""
        self.monkeypatch.setattr(maintenance, "Upkeep", FakeUpkeep)
        self.monkeypatch.setattr(maintenance, "TableWriter", lambda table, *_: FakeWriter(table))
        return Maintenance(MaintenanceSection(**settings), self, self.clock, begin)  # type: ignore[arg-type]


CHECKPOINT = Checkpoint(
    Lease(1, Holder("", "", "", "", "", 1, 1, 1)),
    step=1,
    resolved_ts=5,
    written_at=0,
    cut=Cut({("shop", "t0"): 7}),
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
    table = lake.add(units=100)
    mending = lake.maintenance(share=0.1)

    for _ in range(1000):
        lake.clock.now += 1
        mending.tend(CHECKPOINT)

    assert lake.clock.now == 1000 + 1000 + 10 * len(table.done)
    assert 10 <= len(table.done) <= 12


def test_a_table_beyond_its_limits_does_not_wait_for_the_budget(lake: Lake) -> None:
    """It is said to be behind from a fifth above its limit on, until it has caught up."""
    table, other = lake.add(units=4, share=1.5), lake.add(units=4, share=1.05)
    mending = lake.maintenance(share=0.001)
    lake.clock.now += 1

    mending.tend(CHECKPOINT)
    assert mending.behind == {("shop", "t0"): 1.5}
    for _ in range(4):
        lake.writers[0].head = (lake.writers[0].head or 0) + 1
        mending.tend(CHECKPOINT)
    lake.writers[0].head = 99
    mending.tend(CHECKPOINT)

    assert table.units == 0
    assert other.units >= 3  # The first unit overdraws the budget.
    assert mending.behind == {}


def test_nothing_is_done_where_nothing_is_due(lake: Lake) -> None:
    """A few young tables cost no unit of work, whatever the budget."""
    tables = [lake.add(snapshots=90) for _ in range(3)]
    mending = lake.maintenance(share=1)
    lake.clock.now += 100

    assert mending.tend(CHECKPOINT) == {}
    assert [table.done for table in tables] == [[], [], []]


def test_changes_go_once_for_each_day_that_is_over(lake: Lake) -> None:
    """What failed is tried again when the table has rested, and the tables themselves lose nothing."""
    rows, changes = lake.add(), lake.add()
    rows.identifier, changes.identifier = ("shop", "a"), ("shop", "a__changes")
    lake.maker.rules = TypeRules(shapes=[(TablePattern("shop.*"), Shape(history=True, history_days=3))])
    tracked: Any = SimpleNamespace(completeness=None)
    checkpoint = replace(CHECKPOINT, tables={TableName("shop", "a"): tracked})
    mending, seen = lake.maintenance(share=1, tasks=["changes"]), []
    for first, error in ((0, None), (20, None), (20, None), (21, TransientError("x")), (21, None), (21, None)):
        changes.first_day, changes.error = first, error
        lake.clock.now += REST_SECONDS + 1
        seen.append(dict(mending.tend(checkpoint)))
    assert seen == [{}, {"days": 1}, {}, {}, {"days": 1}, {}]
    assert changes.done == ["drop what is older than 3 days"] * 2
    assert rows.done == []


def test_tables_take_turns(lake: Lake) -> None:
    """A table that is always worn does not keep the others from being mended."""
    first, second = lake.add(units=100), lake.add(units=100)
    mending = lake.maintenance(share=0.5)

    for _ in range(60):
        lake.clock.now += 1
        mending.tend(CHECKPOINT)

    assert len(first.done) - len(second.done) in (0, 1)
    assert 2 <= len(second.done) <= 6


def test_few_units_are_under_way_and_one_of_a_table(lake: Lake) -> None:
    """Steps go on while they last; what they made is committed once they have ended."""
    tables = [lake.add(units=1) for _ in range(UNITS + 1)]
    begun: list[Asking] = []
    mending = lake.maintenance(begin=begun.append, share=1)
    lake.clock.now += 100
    monkey = lake.monkeypatch
    monkey.setattr(Asking, "is_alive", lambda work: work in begun)

    for _ in range(3):
        assert mending.tend(CHECKPOINT) == {}
        lake.clock.now += 1
    assert len(begun) == UNITS

    first = begun.pop(0)
    first.run()
    assert mending.tend(CHECKPOINT) == {"compacted": 5}
    assert [table.units for table in tables] == [0, *[1] * UNITS]
    assert len(begun) == UNITS


def test_units_that_hang_give_their_places_to_other_tables(lake: Lake) -> None:
    """A storage that never answers keeps no place until a restart; its tables wait, and a run that ends does not."""
    tables = [lake.add(units=1, seconds=0) for _ in range(UNITS + 1)]
    begun: list[Asking] = []
    mending = lake.maintenance(begin=begun.append, share=1)
    lake.clock.now += 100
    lake.monkeypatch.setattr(Asking, "is_alive", lambda work: work in begun)
    mending.tend(CHECKPOINT)
    assert len(begun) == UNITS

    lake.clock.now += HANGING_SECONDS + 1
    for _ in range(3):
        mending.tend(CHECKPOINT)
        lake.clock.now += 1
    assert len(begun) == UNITS + 1

    last = begun.pop()
    last.run()
    assert mending.tend(CHECKPOINT) == {"compacted": 5}
    assert [table.units for table in tables] == [*[1] * UNITS, 0]


def test_what_takes_its_turn_does_not_keep_the_next_step_waiting(lake: Lake) -> None:
    """However much was saved up, no such unit begins once the pause is over; one that has begun is ended."""
    tables = [lake.add(has_many_manifests=True, seconds=0.4) for _ in range(10)]
    mending = lake.maintenance(share=1, pause_seconds=1)
    lake.clock.now += 300

    for turn in range(1, 4):
        mending.tend(CHECKPOINT)
        assert sum(len(table.done) for table in tables) == 3 * turn


def test_a_long_look_at_the_tables_keeps_none_from_being_mended(lake: Lake) -> None:
    """Where the look takes longer than the pause, one unit is done all the same."""
    table = lake.add(has_many_manifests=True)
    mending = lake.maintenance(share=1, pause_seconds=0.5)
    lake.clock.now += 100
    mending.clock = itertools.count(2000).__next__

    mending.tend(CHECKPOINT)
    assert table.done == ["manifests"]


def test_a_compaction_goes_on_until_nothing_is_left(lake: Lake) -> None:
    """Work that was due stays due while the table stands still, and ends."""
    table = lake.add(units=3)
    mending = lake.maintenance(share=1)

    for _ in range(9):
        lake.clock.now += 10
        mending.tend(CHECKPOINT)

    assert table.done == ["merge"] * 4
    assert table.units == 0


def test_iceberg_rewrites_what_cannot_be_merged_in_its_turn(lake: Lake) -> None:
    """The thread only finds that out; the action runs while no step does."""
    table = lake.add(units=1, is_plain=False)
    mending = lake.maintenance(share=1)

    for _ in range(6):
        lake.clock.now += 30
        mending.tend(CHECKPOINT)

    assert table.done == ["merge", "by iceberg", "merge", "by iceberg"]


def test_a_run_that_ends_waits_for_what_it_prepared(lake: Lake) -> None:
    """No later step of it commits that; one that is asked to stop does not wait."""
    table = lake.add(units=1, seconds=0)
    mending = lake.maintenance(begin=Asking.start, share=1)
    lake.clock.now += 100

    mending.finish(CHECKPOINT, threading.Event())
    assert table.units == 0

    stop = threading.Event()
    stop.set()
    table.units = 1
    lake.writers[0].head = 2
    lake.maintenance(begin=lambda _: None, share=1).finish(CHECKPOINT, stop)
    assert table.units == 1


def test_a_merge_that_does_not_fit_any_more_is_made_anew_in_its_turn(lake: Lake) -> None:
    """Else a table that changes all the time might never be compacted."""
    table = lake.add(units=1, fits=False)
    mending = lake.maintenance(share=1)

    for _ in range(3):
        lake.clock.now += 100
        mending.tend(CHECKPOINT)

    assert table.done[:2] == ["merge", "by iceberg"]
    assert table.units == 0


def test_a_table_that_is_parked_takes_no_merge(lake: Lake) -> None:
    """Its files may be those of a copy: what was prepared before is left out."""
    table = lake.add(units=2)
    mending = lake.maintenance(share=1)
    lake.clock.now += 100
    mending.tend(CHECKPOINT)
    lake.writers[0].known = None

    mending.tend(CHECKPOINT)

    assert (table.done, table.units) == (["merge"], 2)


def test_expiry_is_told_the_snapshot_of_the_checkpoint(lake: Lake) -> None:
    """The cut through all tables is passed on; of a table that the checkpoint does not name, its head stays."""
    first, second = lake.add(snapshots=601), lake.add(snapshots=601)
    mending = lake.maintenance(share=1, snapshots=500)
    for _ in range(3):
        first.snapshots = second.snapshots = 500
        lake.clock.now += 100
        mending.tend(CHECKPOINT)

    assert first.done == []
    for writer, table in zip(lake.writers, (first, second), strict=True):
        writer.head, table.snapshots = 2, 601
    for number in range(maintenance.LOOK_COMMITS + 2):
        for writer in lake.writers:
            writer.head = 3 + number
        lake.clock.now += 100
        mending.tend(CHECKPOINT)

    assert first.done == ["expire down to 7"]
    assert second.done == ["expire down to 21"]


def test_what_only_time_changes_is_looked_at_by_the_hour(lake: Lake) -> None:
    """Old snapshots and orphans of an idle table are due without a commit to it; a start alone lists no files."""
    table = lake.add(snapshots=2)
    mending = lake.maintenance(share=1)
    lake.clock.now += 100
    mending.tend(CHECKPOINT)
    assert table.done == []

    lake.clock.now += 3600
    for _ in range(2):
        mending.tend(CHECKPOINT)
        lake.clock.now += 100

    assert table.done == ["expire down to 7", "orphans"]


@pytest.mark.parametrize("tasks", [[], ["expire"], ["compact", "manifests"]])
def test_only_what_is_asked_for_is_done(lake: Lake, tasks: list[Task]) -> None:
    """An empty list turns maintenance off, a shorter one leaves the rest to others."""
    table = lake.add(units=1, snapshots=601, has_many_manifests=True)
    mending = lake.maintenance(share=1, tasks=tasks)
    for _ in range(9):
        lake.clock.now += 100
        mending.tend(CHECKPOINT)

    names = {name.partition(" ")[0] for name in table.done}
    assert {"compact" if name == "merge" else name for name in names} == set(tasks)


def test_work_that_fails_is_put_off(lake: Lake) -> None:
    """A failure is logged, leaves that table alone for a while, and the others go on."""
    table, other = lake.add(units=9, error=TransientError("Storage does not answer")), lake.add(units=1)
    mending = lake.maintenance(share=1)
    for _ in range(5):
        lake.clock.now += 20
        mending.tend(CHECKPOINT)
    assert table.done == []
    assert other.done == ["merge", "merge"]

    table.error = None
    lake.clock.now += REST_SECONDS
    mending.tend(CHECKPOINT)
    assert mending.tend(CHECKPOINT)["compacted"] > 0


def test_an_applier_that_lost_the_changefeed_rewrites_nothing(lake: Lake) -> None:
    """Before each unit of work, and before its commit, the hold is confirmed; an older epoch stops the run."""
    table = lake.add(units=9)
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
    mending.tend(CHECKPOINT)
    with pytest.raises(CheckpointConflict, match="newer applier"):
        mending.tend(CHECKPOINT)


def test_the_next_checkpoint_lists_the_new_head(lake: Lake) -> None:
    """A compacted table is listed by its new snapshot, one that the checkpoint leaves out is not listed."""
    lake.add(units=1)
    other = lake.add(units=1)
    del lake.snapshots[other.identifier]
    for writer in lake.writers:
        writer.head = 2
    mending = lake.maintenance(share=1)
    for _ in range(4):
        lake.clock.now += 100
        mending.tend(CHECKPOINT)

    assert lake.snapshots == {("shop", "t0"): 2}
