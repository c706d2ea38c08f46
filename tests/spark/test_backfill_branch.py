"""`applier backfill` into branches: built from a range, compared, and shown; damaged tables are brought back by it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from applier.changefeed.message import TopicPartition
from applier.changefeed.table import TableName
from applier.commands.backfill import compare
from applier.commands.backfill.command import backfill, planned
from applier.commands.backfill.report import Outcome
from applier.commands.backfill.request import asked
from applier.config import settings
from applier.config.own_namespaces import resumes
from applier.ddl.actions import effect
from applier.errors import RangeRefused
from applier.pipeline.schema_changes.taken import taken
from applier.runtime import failpoints
from applier.sink.iceberg.catalog import Catalog
from tests.few import few
from tests.recovery.snapshots import heads
from tests.replay import Replay, differences, plain, replay
from tests.spark.test_backfill import states, text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


ACCOUNTS = TableName("bank", "accounts")


class Crash(BaseException):
    """The process is gone."""


@pytest.fixture
def properties(warehouse: Path) -> dict[str, str]:
    """Properties of the catalog of the run."""
    return {"type": "jdbc", "uri": f"jdbc:sqlite:{warehouse}/catalog.db", "warehouse": f"{warehouse}/tables"}


@contextmanager
def dying(point: str, turn: int = 1) -> Iterator[None]:
    """The process dies at a point, the n-th time that it comes there."""
    left = [turn]

    def reach(name: str) -> None:
        left[0] -= name == point
        if name == point and left[0] == 0:
            raise Crash(point)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(failpoints, "reach", reach)
        with pytest.raises(Crash):
            yield


def run(found: Replay, begin: str | None, end: str | None = None, **options: Any) -> Outcome:
    """`applier backfill` with these options."""
    request = asked(begin, end, **options)
    return backfill(settings.parse(found.raw), request, take_over=True, report=lambda line: None)


def name_of(found: Replay, name: TableName) -> str:
    """A table as Spark's SQL calls it."""
    return f"lake.`{found.identifier(name)[0]}`.`{name.table}`"


def in_branch(found: Replay, name: TableName, branch: str) -> list[dict[str, Any]]:
    """Rows of a branch, as PyIceberg reads them."""
    table = found.catalog.load_table(found.identifier(name))
    head = table.metadata.snapshot_by_name(branch)
    assert head is not None
    return plain(table.scan(snapshot_id=head.snapshot_id).to_arrow())


def damage(found: Replay, spark: SparkSession, name: TableName) -> None:
    """Take some rows from a table, and give one of the others another key."""
    key = sorted(row["id"] for row in found.contents(name) or [])
    for statement in (
        f"DELETE FROM {name_of(found, name)} WHERE id IN ({key[0]}, {key[1]})",
        f"UPDATE {name_of(found, name)} SET id = -1 WHERE id = {key[2]}",
    ):
        spark.sql(statement)


def empty(found: Replay, spark: SparkSession, name: TableName) -> None:
    """Take all rows from a table."""
    spark.sql(f"DELETE FROM {name_of(found, name)} WHERE true")


def alone(found: Replay, name: TableName) -> TableName:
    """Leave all other tables of the feed out: they take most of the time, and a repair does not concern them."""
    found.raw["tables"]["include"] = [str(name)]
    return name


def of(name: TableName, problems: list[str]) -> list[str]:
    """Those of one table; that it is missing is one."""
    return [line for line in problems if line.startswith((f"{name}:", f"{name} "))]


def test_a_branch_is_built_compared_and_shown(spark: SparkSession, properties: dict[str, str], tmp_path: Path) -> None:
    """The branch is the table as the range tells it; what differs is shown, and readers see it only when asked to."""
    found = replay("txns", "simple-json", properties, tmp_path, "simple", name="bf-branch")
    last = states("txns")[-1][0]
    run(found, "beginning")
    name = ACCOUNTS
    damage(found, spark, name)
    broken, before = found.contents(name), heads(found)

    told = planned(settings.parse(found.raw), asked("beginning", None, branch="again"))
    assert {target for _, _, target, _ in told.aims} == {"branch again"}
    built = run(found, "beginning", branch="again")

    assert heads(found) == before
    difference = next(item for item in built.differences if item.table == ".".join(found.identifier(name)))
    assert (difference.only_main, difference.only_branch, difference.changed) == (1, 3, 0)
    assert "--1" in difference.keys
    assert difference.rows_branch == difference.rows_main + 2
    assert all(item.is_equal for item in built.differences if item != difference)
    assert found.contents(name) == broken

    shown = run(found, "beginning", branch="again", publish=True)

    assert differences(found, last) == []
    assert shown.differences == built.differences
    with found.running(spark) as pipeline:
        assert not pipeline.step().moved
        assert dict(pipeline.state.checkpoint.cut.heads) == heads(found)
        catalog: Catalog = pipeline.targets.catalog
        table = catalog.load(found.identifier(name))
        assert table is not None
        assert list(table.history("again")) == []
        assert catalog.list((resumes(found.raw["changefeed"]["name"]),)) == []


@pytest.mark.parametrize("key", [pytest.param(("id",), marks=pytest.mark.soak), ()], ids=["by key", "whole rows"])
def test_more_rows_differ_than_are_held(
    key: tuple[str, ...],
    spark: SparkSession,
    properties: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They are compared in lots, and counted as if all were held."""
    found = replay("txns", "simple-json", properties, tmp_path, "simple", name=f"bf-lots-{len(key)}")
    run(found, "beginning")
    damage(found, spark, ACCOUNTS)
    run(found, "beginning", branch="again")
    catalog = Catalog(spark, "lake")
    main = catalog.load(found.identifier(ACCOUNTS))
    (branch,) = [
        catalog.load(copy)
        for copy in catalog.list((resumes(found.raw["changefeed"]["name"]),))
        if "accounts" in copy[1]
    ]
    whole = compare.compare("accounts", main, branch, key)

    monkeypatch.setattr(compare, "MOST_ROWS", 2)
    lots = compare.compare("accounts", main, branch, key)

    assert (whole.only_main, whole.only_branch, whole.changed) == (1, 3, 0)
    assert (replace(lots, keys=()), sorted(lots.keys)) == (replace(whole, keys=()), sorted(whole.keys))


@pytest.mark.soak
@pytest.mark.parametrize("variant", ["simple-json", "canal-json-ext"])
def test_a_repair_brings_back_a_table_through_its_ddl(
    variant: str, spark: SparkSession, properties: dict[str, str], tmp_path: Path
) -> None:
    """Rows of before each of 28 ALTER TABLE come back as TiDB changed them with it."""
    protocol = "simple" if variant.startswith("simple") else "canal-json"
    found = replay("ddl", variant, properties, tmp_path, protocol, name=f"bf-repair-{protocol}")
    name = alone(found, TableName("shop", "orders"))
    run(found, "beginning")
    empty(found, spark, name)

    run(found, "beginning", repair=True, tables="shop.orders")

    assert of(name, differences(found, states("ddl")[-1][0])) == []


def test_a_feed_in_offset_order_is_repaired_from_after_its_ddl(
    spark: SparkSession, properties: dict[str, str], tmp_path: Path
) -> None:
    """Nothing tells which rows lie before a DDL, so the range begins behind it, at the offset that is named."""
    found = replay("txns", "canal-json", properties, tmp_path, "canal-json", name="bf-plain", order="offset")
    last = states("txns")[-1][0]
    run(found, "beginning")
    assert differences(found, last) == []
    empty(found, spark, ACCOUNTS)

    with pytest.raises(RangeRefused, match="offset order does not show which rows lie before it") as refused:
        run(found, "beginning", repair=True, tables=str(ACCOUNTS))
    begin = re.search(r"begin the range after it, with --from (\S+) and an offset", refused.value.hint)
    assert begin is not None
    topic, partition, offset = begin[1].rsplit(":", 2)
    with found.running(spark) as pipeline:
        begins = dict.fromkeys(pipeline.ends(), 0) | {TopicPartition(topic, int(partition)): int(offset)}
    shown = run(found, text(begins), repair=True, tables=str(ACCOUNTS))

    assert differences(found, last) == []
    (difference,) = shown.differences
    assert (difference.rows_main, difference.only_main, difference.changed) == (0, 0, 0)
    assert difference.only_branch == difference.rows_branch > 0


@pytest.mark.soak
@pytest.mark.parametrize(
    "point",
    [
        "copy-shown",
        "",
        "data-files-staged",
        "range-built",
        "resume-shown",
        "resume-done",
    ],
)
def test_a_table_that_is_gone_is_made_anew(
    point: str, spark: SparkSession, properties: dict[str, str], tmp_path: Path
) -> None:
    """From its CREATE TABLE through all its DDL; until it is shown nobody takes it for the one that is gone."""
    found = replay("ddl", "simple-json", properties, tmp_path, "simple", name=f"bf-gone-{point}")
    name = alone(found, TableName("shop", "orders"))
    run(found, "beginning")
    catalog = Catalog(spark, "lake")
    catalog.drop(found.identifier(name), purge=True)

    if point:
        with dying(point):
            run(found, "beginning", repair=True, tables=str(name))
        if point in ("data-files-staged", "range-built"):
            assert catalog.load(found.identifier(name)) is None
    run(found, "beginning", repair=True, tables=str(name))

    assert of(name, differences(found, states("ddl")[-1][0])) == []
    with found.running(spark) as pipeline:
        pipeline.hold_to_checkpoint()
        assert not pipeline.step().moved
        assert dict(pipeline.state.checkpoint.cut.heads) == heads(found)
        assert pipeline.targets.applied_ts(name) == pipeline.state.resolved_ts


def test_a_table_that_is_gone_is_not_made_of_a_part(
    spark: SparkSession, properties: dict[str, str], tmp_path: Path
) -> None:
    """A range that begins after its CREATE TABLE, as a resolved ts or as offsets, leaves the catalog as it was."""
    found = replay("txns", "simple-json", properties, tmp_path, "simple", name="bf-part")
    first, offsets = states("txns")[0]
    run(found, "beginning")
    catalog = Catalog(spark, "lake")
    catalog.drop(found.identifier(ACCOUNTS), purge=True)

    for begin in (str(first["resolved_ts"]), text(offsets)):
        with pytest.raises(
            RangeRefused, match="accounts is not in the catalog, and the range does not hold all of its"
        ):
            run(found, begin, repair=True, tables=str(ACCOUNTS))
        assert catalog.load(found.identifier(ACCOUNTS)) is None


@pytest.mark.soak
def test_rows_before_a_ddl_are_refused_unless_the_table_is_made_in_the_range(
    spark: SparkSession, properties: dict[str, str], tmp_path: Path
) -> None:
    """The DDL is named, and the range after it is the way out; readers see nothing of the attempt."""
    found = replay("partition", "simple-json", properties, tmp_path, "simple", name="bf-moved")
    run(found, "beginning")
    before, last = heads(found), states("partition")[-1][0]
    name = TableName("parts", "p_range")
    with found.running(spark) as pipeline:
        (made,) = {ts for ts, action in taken(pipeline.state) if name in effect(action).created}

    with pytest.raises(RangeRefused) as refused:
        run(found, str(made), repair=True, tables=str(name))

    sentence = re.fullmatch(
        rf"Rows of table {name} lie before a DDL of kind \S+ at commit ts (\d+)\.", refused.value.what
    )
    assert sentence is not None
    assert f"begin the range after it, with --from {sentence[1]}" in refused.value.hint
    assert heads(found) == before
    damage(found, spark, name)
    run(found, "beginning", repair=True, tables="parts.*")
    assert differences(found, last) == []


@pytest.mark.parametrize(
    ("point", "turn"),
    few([("applied", 2), ("data-files-staged", 3), ("range-built", 1)]),
)
def test_a_repair_that_was_killed_goes_on(
    point: str, turn: int, spark: SparkSession, properties: dict[str, str], tmp_path: Path
) -> None:
    """The same command ends it; readers see all of a table's repair or nothing."""
    found = replay("txns", "simple-json", properties, tmp_path, "simple", name=f"bf-killed-{point}-{turn}")
    last = states("txns")[-1][0]
    run(found, "beginning")
    name = ACCOUNTS
    damage(found, spark, name)
    broken = found.contents(name)
    found.raw["source"]["messages_per_step"] = 500

    with dying(point, turn):
        run(found, "beginning", repair=True)
    assert found.contents(name) == broken

    run(found, "beginning", repair=True)
    assert differences(found, last) == []


@pytest.mark.usefixtures("spark")
def test_what_would_let_older_values_win_is_refused(properties: dict[str, str], tmp_path: Path) -> None:
    """Before anything is read, with the branch as the way out; the branch shows the older values to who asks."""
    found = replay("txns", "simple-json", properties, tmp_path, "simple", name="bf-older")
    recorded = states("txns")
    run(found, "beginning")
    first, offsets = recorded[0]
    before = heads(found)

    for end in (text(offsets), str(first["resolved_ts"])):
        with pytest.raises(RangeRefused, match="older values would win. Hint: .*with --branch and without --publish"):
            run(found, "beginning", end, repair=True)
    assert heads(found) == before

    built = run(found, "beginning", text(offsets), branch="older")
    assert any(not item.is_equal for item in built.differences)
    name = ACCOUNTS
    assert len(in_branch(found, name, "older")) == len(first["tables"][str(name)]["rows"])
    with pytest.raises(RangeRefused, match="older values would win"):
        run(found, "beginning", text(offsets), branch="older", publish=True)
    assert heads(found) == before


def test_what_a_branch_refuses(
    spark: SparkSession, properties: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A branch of somebody else is left alone, and so is a table that is written meanwhile."""
    found = replay("pk", "simple-json", properties, tmp_path, "simple", name="bf-foreign")
    run(found, "beginning")
    name = next(name for name in sorted(found.tables()) if found.contents(name))
    rules = str(name)

    def meddle(point: str) -> None:
        if point == "range-built":
            empty(found, spark, name)

    monkeypatch.setattr(failpoints, "reach", meddle)
    with pytest.raises(RangeRefused, match="was written while it was brought back.*give the same command again"):
        run(found, "beginning", branch="mine", publish=True, tables=rules)
    monkeypatch.undo()
    run(found, "beginning", branch="mine", tables=rules)
    empty(found, spark, name)
    # The table has moved away from its branch once more, which is noticed before anything is built on it.
    run(found, "beginning", branch="mine", publish=True, tables=rules)
    assert differences(found, states("pk")[-1][0]) == []

    spark.sql(f"ALTER TABLE {name_of(found, name)} CREATE BRANCH theirs")
    with pytest.raises(RangeRefused, match="has a branch theirs that no backfill made"):
        run(found, "beginning", branch="theirs", tables=rules)
