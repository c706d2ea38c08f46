"""After a take-over no table takes a commit of the last holder, idle ones included."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from pyspark.sql import SparkSession

from applier.changefeed.checkpoint import Checkpoint, Holder
from applier.changefeed.route import Route
from applier.changefeed.table import Column, ColumnType, TableName, TableVersion
from applier.changefeed.types import TypeRules
from applier.config.settings import SinkSection
from applier.config.tables import TablesSection
from applier.errors import CheckpointConflict, TableMismatch
from applier.order.feed_order import ResolvedOrder
from applier.pipeline.build import fence_tables
from applier.pipeline.tables.changefeed import Changefeed
from applier.pipeline.tables.table_maker import TableMaker
from applier.pipeline.tables.target_tables import TargetTables
from applier.runtime import failpoints
from applier.sink.commit.fence import fence
from applier.sink.commit.stamp import Stamp
from applier.sink.control.control import Control, DeadLetter
from applier.sink.control.rows import letter_rows
from applier.sink.control.tables import DEAD_LETTERS
from applier.sink.format.own_columns import COLUMNS
from applier.sink.iceberg.catalog import Catalog, Table
from applier.sink.write.table_writer import TableWriter
from tests.spark.feeds import Feed, read
from tests.spark.writes import apply

pytestmark = pytest.mark.spark

Name = Callable[[], tuple[str, str]]
NOW = 1_795_250_000_000


class Last:
    """The last holder of the changefeed, of epoch 1, with a table that it has written."""

    def __init__(self, spark: SparkSession, lake: Catalog, name: tuple[str, str]) -> None:
        self.spark, self.lake, self.name = spark, lake, name
        self.feed = Feed(("long",))
        self.writer = TableWriter(self.feed.create(lake, name), "shop", 1)
        self.ts = 0
        self.apply()

    def apply(self) -> None:
        """Apply one more batch."""
        self.ts += 1
        marks = {"applier.ddl": f"{self.ts} x"}
        apply(self.writer, self.feed.batch(), Stamp("shop", 1, self.ts, marks), exact=True)

    def table(self) -> Table:
        """The table, loaded anew."""
        found = self.lake.load(self.name)
        assert found is not None
        return found


@pytest.fixture
def last(spark: SparkSession, lake: Catalog, fresh_name: Name) -> Last:
    """The last holder."""
    return Last(spark, lake, fresh_name())


def stamped(writer: TableWriter) -> Stamp:
    """What a table says of its rows, whatever it says of its columns."""
    assert writer.known is not None
    return replace(writer.known, extra={key: value for key, value in writer.known.extra.items() if key != COLUMNS})


def test_an_idle_table_refuses_the_last_holder(last: Last) -> None:
    """The new holder has no rows for it, and still no commit of the old one passes; what it shows stays."""
    assert fence(last.table(), "shop", 2, 1)
    rows, known = read(last.spark, last.name), dict(last.feed.rows)

    with pytest.raises(CheckpointConflict, match=r"newer applier of changefeed shop: epoch 2, resolved ts 1; this one"):
        last.apply()

    assert read(last.spark, last.name).equals(rows)
    newer = TableWriter(last.table(), "shop", 2)
    assert stamped(newer) == Stamp("shop", 2, 1, {"applier.ddl": "1 x"})
    last.feed.rows = known
    apply(newer, last.feed.batch(), Stamp("shop", 2, 2), exact=True)
    last.feed.check(read(last.spark, last.name))


def test_the_fence_goes_up_behind_a_commit_that_slips_in(last: Last, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the last holder commits while the fence is built counts, and is its last."""
    waiting = [last.apply]
    reached = lambda point: waiting.pop()() if point == "commit-sent" and waiting else None  # noqa: E731
    monkeypatch.setattr(failpoints, "reach", reached)

    assert fence(last.table(), "shop", 2, 1)

    assert not waiting
    assert stamped(TableWriter(last.table(), "shop", 2)) == Stamp("shop", 2, 2, {"applier.ddl": "2 x"})
    with pytest.raises(CheckpointConflict, match="epoch 2"):
        last.apply()


def test_a_fenced_table_costs_no_second_commit(last: Last, lake: Catalog, fresh_name: Name) -> None:
    """After a crash on the way the others follow; tables that no applier has written are left alone."""
    assert fence(last.table(), "shop", 2, 1)
    head = last.table().snapshot_id

    assert not fence(last.table(), "shop", 3, 1)
    assert last.table().snapshot_id == head
    assert not fence(Feed(("long",)).create(lake, fresh_name()), "shop", 3, 1)


def test_a_fence_is_refused_where_the_changefeed_is_lost_or_another(last: Last) -> None:
    """Two that take over from each other: the later one wins, and tables of others stay untouched."""
    assert fence(last.table(), "shop", 5, 4)
    with pytest.raises(CheckpointConflict, match="epoch 5"):
        fence(last.table(), "shop", 4, 3)
    with pytest.raises(TableMismatch, match="belongs to changefeed shop, not to other"):
        fence(last.table(), "other", 9, 8)


def test_a_fence_hides_no_rollback(last: Last) -> None:
    """The table goes on to show what somebody set it back to, and is refused for it by whoever took over."""
    last.apply()
    older = [snapshot.id for snapshot in last.table().history()][1]
    last.table().handle.manageSnapshots().setCurrentSnapshot(older).commit()

    assert fence(last.table(), "shop", 2, 1)

    refusal = TableWriter(last.table(), "shop", 2).rolled_back
    assert refusal is not None
    assert "stamped with resolved ts 2, but shows resolved ts 1" in str(refusal)


def holder(lake: Catalog, epoch: int, fenced: int = 0) -> TargetTables:
    """The tables as an applier of an epoch sees them."""
    feed, settings = Changefeed("shop", epoch, ResolvedOrder()), TablesSection()
    maker = TableMaker(lake.create, settings, TypeRules())
    return TargetTables(lake, feed, maker, Route(settings.route), SinkSection(), fenced=fenced)


def test_a_table_that_is_made_while_the_fences_go_up_gets_its_own(lake: Catalog, fresh_name: Name) -> None:
    """The last holder asked for the changefeed before it was lost, and makes the table after it was: it stays empty."""
    name = TableName(*fresh_name())
    version = TableVersion(name, 7, (Column("id", ColumnType("int")),))
    last, newer = holder(lake, 1), holder(lake, 2, fenced=1)
    assert fence_tables(newer, [name], 1) == []
    made = last.ensure(version, last.feed.stamp(0))

    found = newer.writer(name)

    with pytest.raises(CheckpointConflict, match="newer applier of changefeed shop: epoch 2, resolved ts 0"):
        made.stamp(last.feed.stamp(5))
    assert found is not None
    assert found.known == Stamp("shop", 2, 0)
    found.stamp(newer.feed.stamp(6))
    assert newer.applied_ts(name) == 6


def test_a_table_that_is_renamed_while_the_fences_go_up_gets_its_own(last: Last, fresh_name: Name) -> None:
    """Under its new name it is known to nobody yet; what the last holder wrote before counts, and no more comes."""
    to = fresh_name()
    newer = holder(last.lake, 2, fenced=1)
    last.lake.rename(last.name, to)
    assert fence_tables(newer, [TableName(*last.name)], 1) == []
    table = last.lake.load(to)
    assert table is not None
    last.writer = TableWriter(table, "shop", 1)
    last.apply()

    found = newer.writer(TableName(*to))

    with pytest.raises(CheckpointConflict, match="newer applier of changefeed shop: epoch 2, resolved ts 2"):
        last.apply()
    assert found is not None
    assert stamped(found) == Stamp("shop", 2, 2, {"applier.ddl": "2 x"})
    head = found.table.snapshot_id
    again = holder(last.lake, 3, fenced=1).writer(TableName(*to))
    assert again is not None
    assert again.table.snapshot_id == head, "a fence that stands costs no second commit"


def test_what_is_not_fenced_is_remembered(lake: Catalog, fresh_name: Name) -> None:
    """If the process that takes over dies before all fences stand, the next one builds the rest."""
    namespace = fresh_name()[1:]

    def take(holder: Holder, *, take_over: bool = False) -> tuple[Control, Checkpoint]:
        control = Control.open(lake, "shop", namespace)
        return control, control.take(holder, 60, now=NOW, start_of=lambda pid: None, take_over=take_over)[0]

    zombie, first = take(Holder("one", "host-a", pid=1))
    _, second = take(Holder("two", "host-b", pid=2), take_over=True)
    control, third = take(Holder("three", "host-b", pid=3))
    assert [item.lease.unfenced for item in (first, second, third)] == [0, 1, 1]

    control.fence(1)

    letter = letter_rows([DeadLetter("shop", 0, 5, None, None, b"?", "why", 1)], 1)
    with pytest.raises(CheckpointConflict, match="epoch 3"):
        zombie.tables[DEAD_LETTERS].append(letter, Stamp("shop", 1, 0))
    control.append_checkpoint(replace(third, step=third.step + 1, lease=replace(third.lease, unfenced=0)))
    assert take(Holder("four", "host-b", pid=4))[1].lease.unfenced == 0


def test_making_a_table_needs_the_changefeed(lake: Catalog, fresh_name: Name) -> None:
    """What no commit can refuse is asked for: `confirm` raises for a process that lost the changefeed."""
    namespace = fresh_name()[1:]
    zombie = Control.open(lake, "shop", namespace)
    zombie.take(Holder("one", "host-a", pid=1), now=NOW)
    zombie.confirm()

    Control.open(lake, "shop", namespace).take(Holder("two", "host-b", pid=2), now=NOW, take_over=True)

    with pytest.raises(CheckpointConflict, match=r"taken by process 2 on host-b \(epoch 2\)"):
        zombie.confirm()
