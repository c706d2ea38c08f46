"""DDL whose text names tables otherwise than the tables are named, or in another order than the statement had."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from applier import wording
from applier.changefeed.table import TableName
from applier.commands.ddl import listed, skip
from applier.config import settings as config
from applier.errors import ConfigError, SchemaChangeRefused, TableMismatch
from applier.pipeline.build import assembled
from applier.pipeline.step import Pipeline
from applier.runtime import failpoints
from tests.few import few
from tests.spark.ddl_applier import Crash
from tests.spark.feeds import read

pytestmark = pytest.mark.spark

TS = 470606912021069826


@pytest.fixture
def lake_properties(warehouse: Path) -> dict[str, str]:
    """The catalog of the run."""
    return {"type": "jdbc", "uri": f"jdbc:sqlite:{warehouse}/catalog.db", "warehouse": f"{warehouse}/tables"}


Message = tuple[str, dict[str, Any]]


def ddl(topic: str, at: int, sql: str, database: str = "shop", table: str = "t", kind: str = "QUERY") -> Message:
    """A DDL as Canal-JSON writes it."""
    message = {"id": 0, "database": database, "table": table, "pkNames": None, "isDdl": True, "type": kind, "sql": sql}
    return topic, message | {"es": 1, "ts": 1, "data": None, "old": None, "_tidb": {"commitTs": TS + at}}


def row(topic: str, at: int, table: str, number: int, text: str, database: str = "shop") -> Message:
    """An inserted row."""
    types = {"id": "int", "v": "varchar"}
    message = {"id": 0, "database": database, "table": table, "pkNames": ["id"], "isDdl": False, "type": "INSERT"}
    message |= {"es": 1, "ts": 1, "sql": "", "sqlType": {"id": 4, "v": 12}, "mysqlType": types, "old": None}
    return topic, message | {"data": [{"id": str(number), "v": text}], "_tidb": {"commitTs": TS + at}}


def watermarks(at: int, *topics: str) -> list[Message]:
    """A watermark in each topic."""
    message = {"id": 0, "database": "", "table": "", "isDdl": False, "type": "TIDB_WATERMARK"}
    return [(topic, message | {"es": 1, "ts": 1, "_tidb": {"watermarkTs": TS + at}}) for topic in topics]


def create(topic: str, at: int, table: str, database: str = "shop") -> Message:
    """CREATE TABLE."""
    sql = f"CREATE TABLE `{table}` (`id` INT PRIMARY KEY, `v` VARCHAR(9))"
    return ddl(topic, at, sql, database, table, "CREATE")


def archive(folder: Path, messages: Sequence[Message]) -> Path:
    """An archive of one partition a topic."""
    folder.mkdir(exist_ok=True)
    offsets: dict[str, int] = {}
    lines = []
    for topic, message in messages:
        offset = offsets[topic] = offsets.get(topic, -1) + 1
        value = base64.b64encode(json.dumps(message).encode()).decode()
        place = {"topic": topic, "partition": 0, "offset": offset, "timestamp": 1_700_000_000_000}
        lines.append(json.dumps(place | {"key": None, "value": value}) + "\n")
    (folder / "feed.jsonl").write_text("".join(lines))
    return folder


def raw(lake: dict[str, str], feed: Path, name: str, **sections: Any) -> config.Config:
    """The configuration of a changefeed of its own."""
    return config.parse(
        {
            "changefeed": {"name": name, "protocol": "canal-json"},
            "source": {"archive": str(feed)},
            "catalog": {"name": "lake", **lake},
            "tables": {"route": name + "__{database}.{table}"},
            **sections,
        }
    )


@contextmanager
def running(lake: dict[str, str], feed: Path, name: str, **sections: Any) -> Iterator[Pipeline]:
    """The pipeline of a changefeed of its own."""
    with assembled(raw(lake, feed, name, **sections), take_over=True) as pipeline:
        yield pipeline


def texts(spark: SparkSession, name: str, table: str) -> list[str]:
    """Texts of a table's rows."""
    return sorted(map(str, read(spark, (f"{name}__shop", table))["v"].to_pylist()))


def decisions(pipeline: Pipeline) -> list[tuple[str, str]]:
    """Kinds and decisions, oldest first."""
    return [(item.kind, item.decision) for item in pipeline.state.control.decisions()]


SWAP = [
    ddl("shop_a", 3, "RENAME TABLE `shop`.`a` TO `shop`.`tmp`;"),
    ddl("shop_b", 3, "RENAME TABLE `shop`.`b` TO `shop`.`a`;"),
    ddl("shop_tmp", 3, "RENAME TABLE `shop`.`tmp` TO `shop`.`b`;"),
]


def swapped() -> list[Message]:
    """Two tables that change places; the topic of the first has the most messages, that of the name between none."""
    rows = [create("shop_a", 1, "a"), create("shop_b", 1, "b"), row("shop_b", 2, "b", 1, "of b")]
    rows += [row("shop_a", 2, "a", number, "of a") for number in range(3)]
    later = [row("shop_a", 5, "a", 9, "of b"), row("shop_b", 5, "b", 9, "of a")]
    return [*rows, *SWAP, *later, *watermarks(6, "shop_a", "shop_b", "shop_tmp")]


SWAPS_EVERY_TIME = {("ddl-applied", 3), ("ddl-due", 4)}
"""What `make test` draws of the places of a crash; `make test-recorded` takes all."""


@pytest.mark.parametrize(
    ("point", "times"),
    [
        pytest.param("", 1, marks=pytest.mark.soak),
        *(
            pytest.param(point, times, marks=() if (point, times) in SWAPS_EVERY_TIME else pytest.mark.soak)
            for point in ("ddl-applied", "ddl-recorded", "ddl-due")
            for times in (1, 3, 4)
        ),
    ],
)
def test_tables_swap_over_topics(
    point: str,
    times: int,
    spark: SparkSession,
    tmp_path: Path,
    lake_properties: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The parts of a swap are made in the order of the statement, also where the process dies between them.

    Whether `tables.include` admits the name in between changes nothing.
    """
    name = f"swap{times}{point.replace('-', '')}"
    include = ["*.*", "!shop.tmp"] if times > 1 else ["*.*"]
    tables = {"route": name + "__{database}.{table}", "on_drop": "drop", "include": include}
    feed = archive(tmp_path / "feed", swapped())
    left = [times]

    def reach(where: str) -> None:
        if where == point:
            left[0] -= 1
            if left[0] == 0:
                raise Crash(where)

    with monkeypatch.context() as patch:
        patch.setattr(failpoints, "reach", reach)
        if point:
            with pytest.raises(Crash), running(lake_properties, feed, name, tables=tables) as pipeline:
                pipeline.step()
    with running(lake_properties, feed, name, tables=tables) as pipeline:
        pipeline.step()
        assert [known.state for known in pipeline.state.completeness.values()] == ["live", "live"]

    assert texts(spark, name, "a") == ["of b", "of b"]
    assert texts(spark, name, "b") == ["of a"] * 4


@pytest.mark.soak
def test_a_table_that_others_drop_inside_a_step_is_not_begun_anew(
    spark: SparkSession, tmp_path: Path, lake_properties: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The step has renamed it and dies. Its repetition finds neither name, and may not take that for its own doing."""
    name, feed = "lost_inside", tmp_path / "feed"
    first = [create("t", 1, "a"), row("t", 2, "a", 1, "first"), *watermarks(3, "t")]
    renamed = [row("t", 4, "a", 2, "v"), ddl("t", 5, "RENAME TABLE `shop`.`a` TO `shop`.`b`"), *watermarks(7, "t")]
    with running(lake_properties, archive(feed, first), name) as pipeline:
        pipeline.step()

    def reach(where: str) -> None:
        if where == "ddl-applied":
            raise Crash(where)

    archive(feed, [*first, *renamed])
    with monkeypatch.context() as patch:
        patch.setattr(failpoints, "reach", reach)
        with pytest.raises(Crash), running(lake_properties, feed, name) as pipeline:
            pipeline.step()
    spark.sql(f"DROP TABLE lake.{name}__shop.b")

    with running(lake_properties, feed, name) as pipeline:
        pipeline.hold_to_checkpoint()
        pipeline.step()
        assert pipeline.state.parked == {TableName("shop", "b")}


@pytest.mark.parametrize("order", few(["resolved", "offset"]))
def test_ddl_in_other_letters_concerns_the_table(
    order: str, spark: SparkSession, tmp_path: Path, lake_properties: dict[str, str]
) -> None:
    """TiDB finds a table in any letters: TRUNCATE and ADD COLUMN of `Orders` are of `orders`."""
    messages = [
        create("t", 1, "orders"),
        row("t", 2, "orders", 1, "gone"),
        ddl("t", 3, "TRUNCATE TABLE `Orders`", "SHOP", "Orders", "TRUNCATE"),
        row("t", 4, "orders", 2, "stays"),
        ddl("t", 5, "ALTER TABLE `ORDERS` ADD COLUMN `n` INT DEFAULT 7", "shop", "orders", "ALTER"),
        ddl("t", 6, "RENAME TABLE `SHOP`.`Orders` TO `SHOP`.`done`", "shop", "done", "RENAME"),
        *watermarks(7, "t"),
    ]
    name = f"letters_{order}"
    changefeed = {"name": name, "protocol": "canal-json", "order": order}
    with running(lake_properties, archive(tmp_path / "f", messages), name, changefeed=changefeed) as pipeline:
        pipeline.step()
        found = read(spark, (f"{name}__shop", "done")).to_pylist()
        recorded = pipeline.state.control.decisions()

    assert [(item["id"], item["v"], item["n"]) for item in found] == [(2, "stays", 7)]
    assert [item.decision for item in recorded] == ["applied"] * 4
    assert [item.schema_id is not None for item in recorded] == [True] * 4
    assert recorded[1].snapshot_id is not None


@pytest.mark.usefixtures("spark")
def test_ddl_of_an_unknown_table_is_named(tmp_path: Path, lake_properties: dict[str, str]) -> None:
    """A TRUNCATE, RENAME or DROP PARTITION that finds no table is recorded so, and not as applied."""
    messages = [
        create("t", 1, "orders"),
        ddl("t", 2, "TRUNCATE TABLE `other`"),
        ddl("t", 3, "RENAME TABLE `shop`.`other` TO `shop`.`third`"),
        ddl("t", 4, "ALTER TABLE `other` DROP PARTITION `p0`"),
        *watermarks(5, "t"),
    ]
    with running(lake_properties, archive(tmp_path / "f", messages), "unknown_table") as pipeline:
        pipeline.step()

        assert [decision for _, decision in decisions(pipeline)] == ["applied"] + ["without a table"] * 3


@pytest.mark.usefixtures("spark")
def test_rename_whose_database_is_open_is_refused(tmp_path: Path, lake_properties: dict[str, str]) -> None:
    """TiCDC up to v8.5.4 (old architecture) names the new database alone: the table may be another one."""
    messages = [
        create("t", 1, "orders"),
        row("t", 2, "orders", 1, "here"),
        ddl("t", 3, "RENAME TABLE `orders` TO `shop`.`u`"),
        *watermarks(5, "t"),
    ]
    with running(lake_properties, archive(tmp_path / "f", messages), "open_database") as pipeline:
        with pytest.raises(SchemaChangeRefused) as refused:
            pipeline.step()

        assert "the database of table orders is not known" in refused.value.what
        assert f"commit ts {TS + 3}" in refused.value.what
        assert f"applier ddl skip {TS + 3} -c applier.toml --why TEXT" in refused.value.hint


def test_a_refused_statement_is_passed_once_on_a_persons_word(
    spark: SparkSession, tmp_path: Path, lake_properties: dict[str, str]
) -> None:
    """`ddl skip` keeps who said so and why; the run goes on behind the statement, and refuses the next one."""
    messages = [
        create("t", 1, "orders"),
        ddl("t", 3, "ALTER TABLE `orders` FROB"),
        row("t", 4, "orders", 1, "behind"),
        *watermarks(5, "t"),
        ddl("t", 7, "ALTER TABLE `orders` FROB"),
        *watermarks(8, "t"),
    ]
    feed = archive(tmp_path / "f", messages)
    stop = {"name": "skipping", "protocol": "canal-json", "on_table_error": "stop"}
    loaded = raw(lake_properties, feed, "skipping", changefeed=stop)
    with pytest.raises(
        ConfigError, match="No DDL of commit ts 3 holds changefeed skipping or a table of it up; pending: none"
    ):
        skip(loaded, 3, "typed wrong")
    for at in (3, 7):
        refusing = running(lake_properties, feed, "skipping", changefeed=stop)
        with refusing as pipeline, pytest.raises(SchemaChangeRefused):
            pipeline.step()
        skip(loaded, TS + at, "an index by hand")
    with running(lake_properties, feed, "skipping", changefeed=stop) as pipeline:
        assert pipeline.step().moved
        assert [item for _, item in decisions(pipeline)][-2:] == ["to skip", "skipped"]
        assert not pipeline.state.completeness[TableName("shop", "orders")].is_live
        reasons = [item.reason for item in pipeline.state.control.decisions() if item.decision == "to skip"]

    assert texts(spark, "skipping", "orders") == ["behind"]
    assert len(reasons) == 2
    assert all(reason.endswith(": an index by hand") for reason in reasons)
    assert [item.decision for item in listed(loaded)] == ["applied", "skipped", "skipped"]


def test_a_truncate_that_is_skipped_makes_no_table_whole(
    spark: SparkSession, tmp_path: Path, lake_properties: dict[str, str]
) -> None:
    """The table keeps rows that upstream does not have, so it leaves the cut until it is built anew."""
    messages = [
        create("t", 1, "orders"),
        row("t", 2, "orders", 1, "before"),
        ddl("t", 3, "TRUNCATE TABLE `orders`"),
        row("t", 4, "orders", 2, "behind"),
        *watermarks(5, "t"),
    ]
    feed = archive(tmp_path / "f", messages)
    stop = {"ddl": {"truncate-table": "stop"}}
    first = running(lake_properties, feed, "skipped_truncate", **stop)
    with first as pipeline, pytest.raises(SchemaChangeRefused):
        pipeline.step()
    skip(raw(lake_properties, feed, "skipped_truncate", **stop), TS + 3, "kept for the audit")

    with running(lake_properties, feed, "skipped_truncate", **stop) as pipeline:
        assert pipeline.step().moved
        known = pipeline.state.completeness[TableName("shop", "orders")]
        cut = pipeline.state.checkpoint.cut.heads

    assert (known.state, wording.clause(known.reason)) == ("incomplete", f"a DDL was skipped (commit ts {TS + 3})")
    assert cut == {}
    assert texts(spark, "skipped_truncate", "orders") == ["before", "behind"]


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("sql", ["ALTER TABLE `left` FROB x", "ALTER TABLE `shop`.`Left` ADD COLUMN `a` FROB"])
def test_unreadable_ddl_of_a_table_that_is_left_out_passes(
    sql: str, tmp_path: Path, lake_properties: dict[str, str]
) -> None:
    """The rules of `tables.include` are asked before a statement is understood."""
    messages = [create("t", 1, "orders"), ddl("t", 2, sql), *watermarks(5, "t")]
    name = f"left{len(sql)}"
    tables = {"route": name + "__{database}.{table}", "include": ["*.*", "!shop.left"]}
    with running(lake_properties, archive(tmp_path / "f", messages), name, tables=tables) as pipeline:
        assert pipeline.step().moved
        assert decisions(pipeline)[1] == ("unread", "ignored")


@pytest.mark.usefixtures("spark")
def test_unreadable_ddl_passes_where_its_policy_says_ignore(tmp_path: Path, lake_properties: dict[str, str]) -> None:
    """The kind of a statement is known by its first words, so that its policy can be asked."""
    messages = [create("t", 1, "orders"), ddl("t", 2, "TRUNCATE TABLE `orders` FROB"), *watermarks(5, "t")]
    feed = archive(tmp_path / "f", messages)
    with running(lake_properties, feed, "by_policy", ddl={"truncate-table": "ignore"}) as pipeline:
        assert pipeline.step().moved
        assert decisions(pipeline)[1] == ("truncate-table", "ignored")


def test_unreadable_ddl_above_the_watermark_waits(
    spark: SparkSession, tmp_path: Path, lake_properties: dict[str, str]
) -> None:
    """A statement is refused at its turn: rows below the watermark are applied before."""
    messages = [
        create("t", 1, "orders"),
        row("t", 2, "orders", 1, "here"),
        *watermarks(4, "t"),
        ddl("t", 5, "ALTER TABLE `orders` FROB"),
    ]
    with running(lake_properties, archive(tmp_path / "f", messages), "above") as pipeline:
        assert pipeline.step().moved
    assert texts(spark, "above", "orders") == ["here"]


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(
    ("messages", "names"),
    [
        ([create("t", 1, "x", "shop"), create("t", 2, "X", "mart")], ("shop.x", "mart.X")),
        ([row("t", 1, "x", 1, "a"), row("t", 2, "x", 1, "b", "mart")], ("mart.x", "shop.x")),
        (
            [create("t", 1, "x"), create("t", 1, "y", "mart"), ddl("t", 3, "RENAME TABLE `mart`.`y` TO `mart`.`x`")],
            ("shop.x", "mart.x"),
        ),
    ],
    ids=["create", "rows", "rename"],
)
def test_two_upstream_tables_in_one_are_refused(
    messages: list[Message],
    names: tuple[str, str],
    tmp_path: Path,
    lake_properties: dict[str, str],
    request: pytest.FixtureRequest,
) -> None:
    """Rows of two tables would be mixed: nothing of the step is applied, and both names are in the sentence."""
    name = "shared_" + request.node.callspec.id
    feed = archive(tmp_path / "f", [*messages, *watermarks(5, "t")])
    with running(lake_properties, feed, name, tables={"route": name + ".{table}"}) as pipeline:
        with pytest.raises(TableMismatch) as refused:
            pipeline.step()
        listed = pipeline.targets.catalog.list((name,))

    assert f"Upstream tables {names[0]} and {names[1]} both go to the Iceberg table {name}." in refused.value.what
    assert "{database} in tables.route" in refused.value.hint
    assert listed == []


def test_new_column_whose_old_values_are_not_known_is_null_where_that_is_configured(
    spark: SparkSession, tmp_path: Path, lake_properties: dict[str, str]
) -> None:
    """The refusal names the statement and a setting, and with it the rows before the statement hold NULL."""
    sql = "ALTER TABLE `orders` ADD COLUMN `upd` TIMESTAMP DEFAULT CURRENT_TIMESTAMP"
    messages = [create("t", 1, "orders"), row("t", 2, "orders", 1, "a"), ddl("t", 3, sql), *watermarks(5, "t")]
    feed, name = archive(tmp_path / "f", messages), "unknown_default"
    stop = {"name": name, "protocol": "canal-json", "on_table_error": "stop"}
    refusing = running(lake_properties, feed, name, changefeed=stop)
    with refusing as pipeline, pytest.raises(SchemaChangeRefused) as refused:
        pipeline.step()
    assert sql in refused.value.what
    assert f"commit ts {TS + 3}" in refused.value.what
    assert 'tables.unknown_default = "null"' in refused.value.hint
    tables = {"route": name + "__{database}.{table}", "unknown_default": "null"}
    with running(lake_properties, feed, name, tables=tables) as pipeline:
        assert pipeline.step().moved

    assert read(spark, (f"{name}__shop", "orders"))["upd"].to_pylist() == [None]


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("database", ["applier_{}", "applier_{}__load", "applier_{}__RESUME"])
def test_an_upstream_database_of_the_control_tables_is_left_out(
    tmp_path: Path, lake_properties: dict[str, str], database: str
) -> None:
    """A table `applier_<changefeed>.checkpoints` would be written into the state of the changefeed, and those of the
    other namespaces dropped as leftovers; all other tables go on.
    """
    name = f"own{len(database)}"
    own = database.format(name)
    messages = [
        create("t", 1, "checkpoints", own),
        row("t", 2, "checkpoints", 1, "a", own),
        create("t", 3, "orders", f"{name}_shop"),
    ]
    feed = archive(tmp_path / "f", [*messages, *watermarks(5, "t")])
    tables = {"route": "{database}.{table}"}
    with running(lake_properties, feed, name, tables=tables) as pipeline:
        assert pipeline.step().moved
        assert list(pipeline.state.tables) == [TableName(f"{name}_shop", "orders")]
