from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from applier.config import settings as config
from applier.decode.options import DecoderOptions
from applier.decode.protocols import build
from applier.errors import CheckpointConflict
from applier.pipeline.maintenance import Budget
from applier.runtime import failpoints
from applier.sink.commit.stamp import EPOCH, RESOLVED_TS, Stamp
from applier.sink.format.own_columns import COLUMNS
from applier.sink.format.storage import local_path
from applier.sink.iceberg import clone
from applier.sink.iceberg import maintenance as iceberg_maintenance
from applier.sink.iceberg.catalog import Catalog, JavaError
from applier.sink.iceberg.files import JavaStorage
from applier.sink.iceberg.table import Table
from applier.sink.upkeep import ORPHANS_REMOVED_AT, Thresholds, Upkeep
from applier.sink.write import file_writer, merge
from applier.sink.write.table_writer import TableWriter
from tests.few import few
from tests.replay import differences, ends_at, replay
from tests.spark.feeds import KINDS, Feed, read, sql_name
from tests.spark.writes import apply

pytestmark = pytest.mark.spark

Name = Callable[[], tuple[str, str]]

LIMITS = Thresholds(small_files=3, deleted_rows=1, manifests=2)
DAY = 86_400_000
LATER = 2**42
"""Unix milliseconds that are still to come when this is read."""


def writer_of(table: Table, *, is_far: bool) -> TableWriter:
    """A writer of a table; Iceberg's action compacts one whose files are so far away that only the JVM reaches them."""
    writer = TableWriter(table, "shop", 2)
    if is_far:
        writer.storage = JavaStorage(table.handle)
    return writer


class Case:
    """A table that five commits have worn, its writer and its upkeep."""

    def __init__(
        self,
        spark: SparkSession,
        lake: Catalog,
        name: tuple[str, str],
        kinds: Sequence[str] = ("long",),
        *,
        is_far: bool = False,
        **options: Any,
    ) -> None:
        self.spark, self.lake, self.name = spark, lake, name
        self.feed = Feed(kinds)
        self.writer = writer_of(self.feed.create(lake, name, **options), is_far=is_far)
        self.upkeep = Upkeep(self.writer, LIMITS)
        self.ts = 0
        self.heads = [self.apply() for _ in range(5)]

    def apply(self) -> int:
        """Apply one more batch."""
        self.ts += 1
        return apply(self.writer, self.feed.batch(), Stamp("shop", 2, self.ts), exact=True).snapshot_id

    def check(self) -> None:
        """Assert that the table has the rows of the model, and that its head and its properties carry the stamp."""
        self.feed.check(read(self.spark, self.name))
        table = self.lake.load(self.name)
        assert table is not None
        newest = next(table.history())
        assert (newest.summary[RESOLVED_TS], newest.summary[EPOCH]) == (str(self.ts), "2")
        assert (table.setting(RESOLVED_TS), table.setting(EPOCH)) == (str(self.ts), "2")
        assert newest.id == self.writer.head

    def other(self, epoch: int) -> TableWriter:
        """A writer of another applier of the changefeed."""
        table = self.lake.load(self.name)
        assert table is not None
        return TableWriter(table, "shop", epoch)

    def summary(self, key: str) -> int:
        """A figure of the head's summary."""
        return int(next(self.writer.table.history()).summary[key])


@pytest.fixture
def case(spark: SparkSession, lake: Catalog, fresh_name: Name) -> Case:
    """A worn table."""
    return Case(spark, lake, fresh_name())


_BY_KEY = [("k0", "bucket[2]")]


@pytest.mark.parametrize("is_far", [False, True])
@pytest.mark.parametrize(("version", "partition"), few([(3, _BY_KEY), (2, _BY_KEY), (3, [])]))
def test_compaction_keeps_rows_and_stamp(
    spark: SparkSession, lake: Catalog, fresh_name: Name, version: int, partition: Any, is_far: bool
) -> None:
    """One file a partition and no deletes are left, with the same rows and the same stamp, and batches go on."""
    case = Case(spark, lake, fresh_name(), is_far=is_far, format_version=version, partition=partition)
    assert case.upkeep.worn >= 1
    files = case.summary("total-data-files")

    counts = case.upkeep.compact()

    assert counts["compacted"] == files
    assert counts["vectors"] > 0
    assert case.summary("total-data-files") == 1 + len(partition)
    assert case.summary("total-delete-files") == 0
    assert case.writer.table.handle.snapshot(iceberg_maintenance.BRANCH) is None
    case.check()
    assert case.upkeep.compact() == {}
    case.apply()
    case.check()
    assert not case.writer._committer.is_foreign


@pytest.mark.parametrize("version", few([3, 2]))
def test_tasks_merge_files_as_the_driver_does(
    spark: SparkSession, lake: Catalog, fresh_name: Name, in_tasks: Callable[[], list[str]], version: int
) -> None:
    """A file a partition, without dead rows; the rows keep their identity, and the table its stamp."""
    name = fresh_name()
    case = Case(spark, lake, name, format_version=version, partition=[("k0", "bucket[2]")])
    lineage = ", _row_id, _last_updated_sequence_number" if version == 3 else ""

    def rows() -> list[Any]:
        return spark.sql(f"SELECT *{lineage} FROM {sql_name(name)} ORDER BY k0").toArrow().to_pylist()

    before, files, actions = rows(), case.summary("total-data-files"), in_tasks()

    assert case.upkeep.compact()["compacted"] == files

    assert actions == ["compact"]
    assert case.summary("total-data-files") == 2
    assert case.summary("total-delete-files") == 0
    assert rows() == before
    case.check()
    case.apply()
    case.check()


def test_rows_keep_their_identity(spark: SparkSession, lake: Catalog, fresh_name: Name) -> None:
    """Row ids and the numbers of their last change stay through compactions in this process and by Iceberg in turn,
    with changes between; old snapshots stay readable, and a column may come and another be renamed.
    """
    name = fresh_name()
    case = Case(spark, lake, name, kinds=tuple(kind for kind in KINDS if kind != "double"))
    key = ", ".join(case.feed.key)

    def rows() -> list[Any]:
        lineage = f"SELECT _row_id, _last_updated_sequence_number, * FROM {sql_name(name)} ORDER BY {key}"
        return spark.sql(lineage).toArrow().to_pylist()

    for is_far in (False, False, True, False):
        before, head = rows(), case.writer.head
        shown = spark.read.option("versionAsOf", head).table(sql_name(name)).toArrow()
        assert len({row["_row_id"] for row in before}) == len(before)
        table = lake.load(name)
        assert table is not None
        writer = writer_of(table, is_far=is_far)

        assert Upkeep(writer, LIMITS).compact()["compacted"] > 0

        assert rows() == before
        again = spark.read.option("versionAsOf", head).table(sql_name(name)).toArrow()
        assert again.sort_by(case.feed.key[1]).num_rows == shown.num_rows
        case.writer.look()
        for _ in range(3):
            known = list(case.feed.rows)[:2]
            batch = case.feed.taken(dict.fromkeys(known, (7, "again", None)), set())
            case.ts += 1
            apply(case.writer, batch, Stamp("shop", 2, case.ts), exact=True)
            case.apply()
        case.check()
    # A DDL of the feed would say that the columns are applier's still.
    spark.sql(f"ALTER TABLE {sql_name(name)} UNSET TBLPROPERTIES ('{COLUMNS}')")
    spark.sql(f"ALTER TABLE {sql_name(name)} ADD COLUMN later int")
    spark.sql(f"ALTER TABLE {sql_name(name)} RENAME COLUMN text TO words")
    before = rows()
    case.writer.look()
    assert case.upkeep.compact()["compacted"] > 0
    assert rows() == before


def test_file_with_many_dead_rows_is_rewritten_alone(spark: SparkSession, lake: Catalog, fresh_name: Name) -> None:
    """A share of dead rows makes a compaction pay where files are few; files without dead rows stay what they are."""
    name = fresh_name()
    feed = Feed(("long",))
    writer = TableWriter(feed.create(lake, name, properties={"write.target-file-size-bytes": "1000"}), "shop", 1)
    for first in (0, 100):
        apply(
            writer,
            feed.taken({(first + key,): (1, "", None) for key in range(50)}, set()),
            Stamp("shop", 1, 1),
            exact=True,
        )
    apply(writer, feed.taken({}, {(key,) for key in range(20)}), Stamp("shop", 1, 2), exact=True)
    upkeep = Upkeep(writer, replace(LIMITS, small_files=50))
    assert upkeep.worn >= 1
    before = set(writer.index.files if writer.index else ())

    assert upkeep.compact() == {"compacted": 1, "vectors": 1}

    feed.check(read(spark, name))
    assert len(before & {file.path for file in writer.table.scan(writer.head or 0)}) == 1


def test_compaction_goes_on_a_unit_at_a_time(case: Case) -> None:
    """A unit of work is bounded: a table that needs more takes several, with the rows right in between."""
    case.upkeep = Upkeep(case.writer, replace(LIMITS, unit_bytes=1, small_files=2))

    assert case.upkeep.compact()["compacted"] == 1
    case.check()
    assert case.upkeep.compact()["compacted"] == 1
    case.check()


@pytest.mark.parametrize(("version", "partition"), few([(3, _BY_KEY), (2, []), (2, _BY_KEY), (3, [])]))
def test_files_are_merged_while_batches_go_on(
    spark: SparkSession, lake: Catalog, fresh_name: Name, version: int, partition: Any
) -> None:
    """Rows that die meanwhile stay dead, new ones stay, and so do those that another writer of the process sees."""
    case = Case(spark, lake, fresh_name(), format_version=version, partition=partition)
    beside = Upkeep(case.other(2), LIMITS)

    merged = beside.merge({})
    for _ in range(3):
        assert merged is not None
        for _ in range(3):
            case.apply()
        assert case.upkeep.take_in(merged)["compacted"] > 1
        case.check()
        assert case.upkeep.take_in(merged) == {}
        case.apply()
        case.check()
        beside.writer.look()
        merged = beside.merge({})
    assert not case.writer._committer.is_foreign
    case.check()


def test_what_died_in_other_files_too_is_merged_in_its_turn(
    spark: SparkSession, lake: Catalog, fresh_name: Name
) -> None:
    """A delete file of format 2 that stays for a file beside the merge: Iceberg takes no other one into the rewrite."""
    name, feed = fresh_name(), Feed(["long"])
    writer = writer_of(feed.create(lake, name, format_version=2), is_far=False)
    upkeep = Upkeep(writer, LIMITS)

    def put(ts: int, *keys: int) -> None:
        batch = feed.taken({(key,): feed._values() for key in keys}, set())
        apply(writer, batch, Stamp("shop", 2, ts), exact=True)

    for ts in range(1, 6):
        put(ts, ts, -ts)
    merged = upkeep.merge({})
    assert merged is not None
    put(6, 6)
    put(7, 6, 1)

    assert upkeep.take_in(merged) == {}
    assert upkeep.compact()["compacted"] > 1
    feed.check(read(spark, name))


def test_snapshots_expire_while_batches_go_on(case: Case) -> None:
    """With a writer of its own: the batches before and after it lose nothing, also one that was planned before."""
    beside = Upkeep(case.other(2), replace(LIMITS, snapshots=1, snapshot_hours=0))
    for _ in range(3):
        cut = case.writer.head
        case.apply()
        assert beside.expire(cut, LATER)["expired"] > 0
        case.apply()
        case.check()
    assert case.writer.table.has_snapshot(cut or 0)


def test_a_large_file_is_rewritten_without_its_dead_rows(
    spark: SparkSession, lake: Catalog, fresh_name: Name, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row group at a time, without Iceberg's action, with rows that die meanwhile."""
    monkeypatch.setattr(merge, "MOST_ROWS", 10)
    monkeypatch.setattr(file_writer, "GROUP_BYTES", 500)
    name, feed = fresh_name(), Feed(("long",))
    writer = TableWriter(feed.create(lake, name, properties={"write.target-file-size-bytes": "100000"}), "shop", 1)
    apply(writer, feed.taken({(key,): (key, "x", None) for key in range(50)}, set()), Stamp("shop", 1, 1), exact=True)
    apply(writer, feed.taken({}, {(key,) for key in range(0, 40, 2)}), Stamp("shop", 1, 2), exact=True)
    upkeep = Upkeep(writer, LIMITS)
    merged = upkeep.merge({})
    assert merged is not None
    apply(writer, feed.taken({(1,): (7, "new", None)}, {(3,), (49,)}), Stamp("shop", 1, 3), exact=True)

    assert upkeep.take_in(merged) == {"compacted": 1, "vectors": 1}

    feed.check(read(spark, name))


def test_newer_applier_is_noticed_before_a_rewrite(case: Case) -> None:
    """A process that lost its epoch rewrites nothing."""
    head = case.other(5).stamp(Stamp("shop", 5, 9)).snapshot_id

    for work in (case.upkeep.compact, case.upkeep.rewrite_manifests, case.upkeep.remove_orphans):
        with pytest.raises(CheckpointConflict, match="newer applier of changefeed shop: epoch 5"):
            work()

    assert case.other(5).head == head


@pytest.mark.parametrize(("is_far", "work"), [(False, "compact"), (True, "compact"), (False, "rewrite_manifests")])
def test_newer_applier_that_writes_meanwhile_wins(
    spark: SparkSession,
    lake: Catalog,
    fresh_name: Name,
    monkeypatch: pytest.MonkeyPatch,
    is_far: bool,
    work: str,
) -> None:
    """A commit that slips in between the rewrite and its publication refuses it, and nothing of it is seen."""
    case = Case(spark, lake, fresh_name(), is_far=is_far)
    _write_meanwhile(
        monkeypatch, lambda: apply(case.other(5), case.feed.batch(), Stamp("shop", 5, 9), exact=False), work
    )

    with pytest.raises(CheckpointConflict, match="epoch 5"):
        getattr(case.upkeep, work)()

    newest = next(case.other(5).table.history())
    assert newest.summary[EPOCH] == "5"
    case.feed.check(read(case.spark, case.name))


def _write_meanwhile(monkeypatch: pytest.MonkeyPatch, write: Callable[[], object], work: str) -> None:
    """Let somebody write the table once, between the work and the moment at which others would see it."""
    late, publishing, manifests = [write], iceberg_maintenance._publish, iceberg_maintenance._manifests

    def reach(point: str) -> None:
        if point == "compaction-sent" and late:
            late.pop()()

    def publish(*arguments: Any) -> None:
        reach("compaction-sent")
        publishing(*arguments)

    def update(*arguments: Any) -> Any:
        reach("compaction-sent")
        return manifests(*arguments)

    monkeypatch.setattr(failpoints, "reach", reach)
    monkeypatch.setattr(iceberg_maintenance, "_publish", publish)
    if work != "compact":
        monkeypatch.setattr(iceberg_maintenance, "_manifests", update)


@pytest.mark.parametrize("is_far", [False, True])
def test_rows_that_somebody_adds_meanwhile_stay(
    spark: SparkSession, lake: Catalog, fresh_name: Name, monkeypatch: pytest.MonkeyPatch, is_far: bool
) -> None:
    """A foreign append during a compaction is kept and noticed, and the branch that it left is taken again."""
    case = Case(spark, lake, fresh_name(), is_far=is_far)
    foreign = f"INSERT INTO {sql_name(case.name)} VALUES (12345, 1, 'foreign', null)"
    _write_meanwhile(monkeypatch, lambda: case.spark.sql(foreign), "compact")

    with pytest.raises(JavaError, match="Cannot compact table|Commit to table"):
        case.upkeep.compact()

    case.feed.rows[12345,] = (1, "foreign", None)
    assert case.writer._committer.is_foreign
    assert case.upkeep.compact()["compacted"] == 6
    case.check()


def test_process_that_dies_before_the_commit_leaves_orphans_alone(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compaction in this process shows nothing before its one commit, and the next one begins anew."""
    head = case.writer.head

    def reach(point: str) -> None:
        if point == "compaction-sent":
            raise KeyboardInterrupt

    monkeypatch.setattr(failpoints, "reach", reach)
    with pytest.raises(KeyboardInterrupt):
        case.upkeep.compact()
    monkeypatch.undo()

    again = case.other(2)
    assert again.head == head
    case.check()
    assert Upkeep(again, LIMITS).compact()["compacted"] > 0
    case.writer.look()
    case.check()


@pytest.mark.parametrize(
    "properties",
    [{"write.parquet.bloom-filter-enabled.column.k0": "true"}, {"write.format.default": "avro"}],
)
def test_table_that_asks_more_of_its_files_is_left_to_iceberg(
    lake: Catalog, fresh_name: Name, properties: dict[str, str]
) -> None:
    """Files that only Iceberg's own writer makes are not made here."""
    feed = Feed(("long",))
    assert merge.is_plain(feed.create(lake, fresh_name()))

    assert not merge.is_plain(feed.create(lake, fresh_name(), properties=properties))


def test_manifests_are_brought_together(case: Case) -> None:
    """Data manifests become one, rows and stamp stay."""
    assert case.upkeep.has_many_manifests

    assert case.upkeep.rewrite_manifests()["manifests"] > 0

    case.check()
    case.apply()
    case.check()


def test_expiry_keeps_what_the_checkpoint_names(case: Case) -> None:
    """The snapshot of the consistent cut stays readable, and all that came later; without one only the head stays."""
    cut = case.heads[2]
    shown = case.spark.read.option("versionAsOf", cut).table(sql_name(case.name)).toArrow()

    assert case.upkeep.expire(cut, LATER) == {"expired": 2}

    kept = {snapshot.id for snapshot in case.writer.table.history()}
    assert kept == set(case.heads[2:])
    again = case.spark.read.option("versionAsOf", cut).table(sql_name(case.name)).toArrow()
    assert again.sort_by("k0").equals(shown.sort_by("k0"))
    case.check()
    assert case.upkeep.expire(None, LATER) == {"expired": 2}
    case.check()
    case.apply()
    case.check()


def test_expiry_by_number_and_by_age(case: Case) -> None:
    """Young snapshots stay up to a number; the newest of them stay."""
    assert case.upkeep.expire(None) == {"expired": 0}

    assert Upkeep(case.writer, replace(LIMITS, snapshots=3)).expire(None) == {"expired": 2}

    assert [snapshot.id for snapshot in case.writer.table.history()] == case.heads[:1:-1]


def test_stamp_survives_a_compaction_whose_inputs_expire(case: Case) -> None:
    """After a compaction and the expiry of everything before it, a new applier finds the table where it was."""
    case.upkeep.compact()
    case.upkeep.expire(None, LATER)

    assert len(list(case.writer.table.history())) == 1
    found = case.other(3)
    assert found.known is not None
    assert replace(found.known, extra={}) == Stamp("shop", 2, case.ts)
    case.check()


def test_maintenance_leaves_a_copy_as_good(case: Case, fresh_name: Name) -> None:
    """What was under way as a table was parked may end after a job has copied it: the copy must not begin anew."""
    copy = clone.clone(case.lake, case.writer.table, fresh_name(), "job")

    assert case.upkeep.expire(case.writer.head, LATER)["expired"] > 0
    case.upkeep.remove_orphans(LATER)

    table = case.lake.load(case.name)
    assert table is not None
    assert table.setting(ORPHANS_REMOVED_AT) == str(LATER)
    assert clone.is_built_on(copy, table)
    case.feed.check(read(case.spark, copy.identifier))


def test_commits_to_a_copy_leave_the_metadata_of_its_table(case: Case, fresh_name: Name) -> None:
    """A copy that is written more often than its log keeps files: the table stands still, and its file is in there."""
    options = {"write.metadata.delete-after-commit.enabled": "true", "write.metadata.previous-versions-max": "2"}
    for key, value in options.items():
        iceberg_maintenance.set_property(case.writer.table, key, value)
    copy = clone.clone(case.lake, case.writer.table, fresh_name(), "job")

    for number in range(5):
        iceberg_maintenance.set_property(copy, "n", str(number))

    table = case.lake.load(case.name)
    assert table is not None
    case.feed.check(read(case.spark, case.name))
    clone.show(table, copy)
    assert {key: table.setting(key) for key in options} == options
    assert table.setting("n") == "4"
    assert clone.is_built_on(copy, table)


def test_orphans_are_removed_once_they_are_old(case: Case) -> None:
    """Files that no snapshot knows go, if they are old enough; a table that lies below keeps all of its own."""
    table = case.writer.table
    root = Path(local_path(table.location))
    old, young = root / "data/old.parquet", root / "data/young.parquet"
    below = root / "below/data/theirs.parquet"
    for path in (old, young, below):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"orphan")
    for path in (old, below):
        os.utime(path, (1_000_000, 1_000_000))
    now = DAY * 365 * 60
    os.utime(young, (now / 1000, now / 1000))

    assert case.upkeep.remove_orphans(now - 2 * DAY) == {"orphans": 1}

    assert [path.exists() for path in (old, young, below)] == [False, True, True]
    assert table.setting(ORPHANS_REMOVED_AT) == str(now - 2 * DAY)
    case.check()
    assert case.writer.known is not None
    assert ORPHANS_REMOVED_AT not in case.writer.known.extra


@pytest.mark.soak
def test_tables_under_maintenance_equal_the_recording(spark: SparkSession, warehouse: Path, tmp_path: Path) -> None:
    """With maintenance between all steps, every table is what SQL showed at each resolved ts, and so is each cut."""
    lake = {"type": "jdbc", "uri": f"jdbc:sqlite:{warehouse}/catalog.db", "warehouse": f"{warehouse}/tables"}
    found = replay("txns", "simple-json", lake, tmp_path, "simple", name="maintained")
    found.raw["maintenance"] = {"small_files": 4, "snapshots": 3, "snapshot_hours": 0, "share": 1}
    mended = 0
    with found.running(spark) as pipeline:
        pipeline.maintenance.clock = itertools.count().__next__
        pipeline.maintenance._budget = Budget(1.0, pipeline.maintenance.clock)
        for state, ends in ends_at("txns", "simple-json", build("simple", DecoderOptions())):
            step = pipeline.step(ends)
            while step.moved:
                mended += step.status.notes.get("compacted", 0)
                step = pipeline.step(ends)
            assert differences(found, state) == [], f"at resolved ts {state['resolved_ts']}"
            for identifier, snapshot_id in pipeline.state.checkpoint.cut.heads.items():
                table = pipeline.targets.catalog.load(identifier)
                assert table is not None
                assert table.has_snapshot(snapshot_id)

    assert mended > 0
    assert config.parse(found.raw).maintenance.small_files == 4
