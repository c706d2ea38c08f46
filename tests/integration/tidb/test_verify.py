"""`applier verify` compares Iceberg tables with a real TiDB, and names every cell that differs."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from applier.changefeed.table import TableName
from applier.changefeed.types import TypeRules
from applier.commands.follower import Follower
from applier.commands.load.command import load
from applier.commands.verify import command
from applier.commands.verify.against import Upstream, find
from applier.commands.verify.command import verify
from applier.commands.verify.repair import repaired
from applier.commands.verify.report import TableVerdict, VerifyReport
from applier.commands.verify.row_hash import RowHash
from applier.commands.verify.spark import DigestTask
from applier.config import settings
from applier.decode.tidb.session import MomentGone
from applier.errors import ApplierError, ConfigError, OutsideRefused, Unreachable
from applier.runtime.tasks.spark import _outcome
from applier.sink.format.types import TableSchema, schema_json
from tests import expected
from tests.integration.tidb import corpus, ranged
from tests.integration.tidb.feed import now, replay
from tests.replay import Replay
from tests.services.tidb import Tidb

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DATABASE, KEYS = "verified", "verified_keys"

DROPPED, STRANGER = f"{DATABASE}.semi;colon", f"{DATABASE}.stranger"

Named = tuple[str, str, str, tuple[str, ...]]
"""Table, kind, key and columns of a difference."""


def verified(
    found: Replay, against: str = "", rules: Sequence[str] = (), *, memory: Path | None = None
) -> VerifyReport:
    """What the command finds."""
    shown, now_ms = list[TableVerdict](), time.time_ns() // 1_000_000
    report = verify(settings.parse(found.raw), against, rules, shown.append, now_ms=now_ms, memory=memory)
    assert shown == list(report.tables)
    return report


def brought(
    name: str,
    at: int,
    resolved_ts: int,
    tidb: Tidb,
    spark: SparkSession,
    lake: dict[str, str],
    folder: Path,
    include: Sequence[str],
) -> Replay:
    """Tables as of a TSO, under a feed that claims to have brought them to a resolved ts."""
    found = replay(name, resolved_ts - 1, {"url": f"mysql://root@127.0.0.1:{tidb.port}"}, lake, folder)
    found.raw["tables"] |= {"include": list(include), "zero_dates_of": {f"{KEYS}.days.d": "string"}}
    assert load(settings.parse(found.raw), None, (), lambda _: None, at=at).refused == ()
    follow(found, spark)
    return found


def follow(found: Replay, spark: SparkSession) -> None:
    """What `run` does until there is nothing left to do."""
    with found.running(spark) as pipeline:
        turn = Follower(pipeline).turn
        while (step := turn()).moved or step.resuming:
            assert step.error is None


@pytest.mark.soak
def test_tables_that_were_loaded_are_equal(
    tidb: Tidb, spark: SparkSession, lake: dict[str, str], tmp_path: Path
) -> None:
    """All types at their extremes, each kind of key, with TiDB and with an export of the same moment."""
    corpus.create(tidb, DATABASE)
    ranged.create(tidb, KEYS)
    at = now(tidb)
    found = brought("verifyequal", at, at + 1, tidb, spark, lake, tmp_path, [f"{DATABASE}.*", f"{KEYS}.*"])

    report = verified(found)

    assert [table for table in report.tables if table.state != "equal"] == []
    assert (report.exit_code, report.resolved_ts, len(report.tables)) == (0, at + 1, 42)
    rows = {table.table: table.rows for table in report.tables}
    assert (rows[f"{DATABASE}.large"], rows[f"{DATABASE}.empty"], rows[f"{KEYS}.keyless"]) == (6000, 0, ranged.ROWS)

    own, copy = "verifyequal__verified.times", "verifyequal__copies.times"
    spark.sql("CREATE NAMESPACE lake.verifyequal__copies")
    spark.sql(f"CREATE TABLE lake.{copy} USING iceberg AS SELECT * FROM lake.{own} WHERE id <> 2")
    report = verified(found, copy, [f"{DATABASE}.times"])
    assert [named for table in report.tables for named in _named(table)] == [
        (f"{DATABASE}.times", "extra", "{'id': 2}", ())
    ]
    with pytest.raises(ConfigError, match=f"--against {copy} is one table: choose one table with --tables."):
        verified(found, copy)
    with pytest.raises(ConfigError, match="--against no.table: the catalog has no such table"):
        verified(found, "no.table", [f"{DATABASE}.times"])

    options = ("--filetype", "csv", "--params", "time_zone=+00:00", "--filter", f"{DATABASE}.*")
    address = tidb.dump(tmp_path / "export", *options, "--snapshot", str(at + 1))
    report = verified(found, address, [f"{DATABASE}.*"])
    assert [table for table in report.tables if table.state != "equal"] == []
    left = {table.table: table.left_out for table in report.tables if table.left_out}
    assert left == {f"{DATABASE}.reals": ("a", "c", "e"), f"{DATABASE}.made": ("s",)}
    with pytest.raises(ConfigError, match=f"is of TSO {at}, and the changefeed is at resolved ts {at + 1}."):
        verified(found, tidb.dump(tmp_path / "other", *options, "--snapshot", str(at)))


@pytest.mark.soak
def test_each_cell_that_differs_is_named(
    tidb: Tidb, spark: SparkSession, lake: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hundred and more, in columns of all types, and no other; a repair brings the tables back to what they were."""
    corpus.create(tidb, DATABASE)
    at, before = now(tidb), corpus.shown(tidb, DATABASE)
    tidb.run(f"USE {DATABASE}", *_changes(before))
    wanted = set(_differing(before, corpus.shown(tidb, DATABASE)))
    assert sum(len(columns) for *_, columns in wanted) > 100
    found = brought("verifyplanted", at, now(tidb), tidb, spark, lake, tmp_path, [f"{DATABASE}.*"])

    report = verified(found)

    assert report.exit_code == 1
    assert {named for table in report.tables for named in _named(table)} == wanted
    assert all(table.is_whole and sum(table.counts.values()) == len(table.differences) for table in report.tables)
    equal = {table.table for table in report.tables if table.state == "equal"}
    assert equal == {str(name) for name in before} - {DROPPED, *(table for table, *_ in wanted)}
    unknown = {table.table: table.because for table in report.tables if table.state == "unknown"}
    assert unknown == {
        DROPPED: f"TiDB 127.0.0.1:{tidb.port} shows no table {DROPPED} at the resolved ts.",
        STRANGER: f"The changefeed has met no row and no DDL of table {STRANGER}.",
    }

    def healed(*given: Any) -> Upstream:
        """What is upstream, once the tables have gone on since the checkpoint was read."""
        again = repaired(settings.parse(found.raw), report, lambda _: None)
        assert again is not None
        assert again.refused == ()
        follow(found, spark)
        tidb.run(f"UPDATE {DATABASE}.large SET n = -1")
        return find(*given)

    monkeypatch.setattr(command, "find", healed)
    assert {named for table in verified(found).tables for named in _named(table)} == wanted
    monkeypatch.undo()
    last = verified(found)
    assert {table.table: table.state for table in last.tables if table.state != "equal"} == {
        DROPPED: "unknown",
        STRANGER: "unknown",
    }
    assert repaired(settings.parse(found.raw), last, lambda _: None) is None


def test_what_another_writer_did_to_a_table_is_found(
    tidb: Tidb, spark: SparkSession, lake: dict[str, str], tmp_path: Path
) -> None:
    """Rows of a younger head than the one of the cut, and columns, of which no snapshot says anything."""
    name, names = "verified_others", ("rewritten", "deleted", "dropped", "anew", "unkeyed")
    tidb.run(f"DROP DATABASE IF EXISTS {name}", f"CREATE DATABASE {name}", f"USE {name}")
    for table in names:
        tidb.run(
            f"CREATE TABLE {name}.{table} (id int PRIMARY KEY, a int)", f"INSERT INTO {name}.{table} VALUES (1, 5)"
        )
    at = now(tidb)
    found = brought("verifyothers", at, at + 1, tidb, spark, lake, tmp_path, [f"{name}.*"])
    own = f"lake.verifyothers__{name}"
    spark.sql(f"CALL lake.system.rewrite_data_files(table => '{own}.rewritten', options => map('rewrite-all', 'true'))")
    spark.sql(f"DELETE FROM {own}.deleted WHERE id = 1")
    spark.sql(f"ALTER TABLE {own}.dropped DROP COLUMN a")
    spark.sql(f"ALTER TABLE {own}.anew DROP COLUMN a")
    spark.sql(f"ALTER TABLE {own}.anew ADD COLUMN a int")
    spark.sql(f"ALTER TABLE {own}.unkeyed WRITE UNORDERED")
    spark.sql(f"ALTER TABLE {own}.unkeyed DROP IDENTIFIER FIELDS id")
    spark.sql(f"ALTER TABLE {own}.unkeyed DROP COLUMN id")

    report = verified(found)
    tables = {table.table.removeprefix(f"{name}."): table for table in report.tables}

    assert {table: tables[table].state for table in names} == {
        "rewritten": "equal",
        "deleted": "different",
        "dropped": "different",
        "anew": "different",
        "unkeyed": "different",
    }
    assert tables["dropped"].because == f"Table verifyothers__{name}.dropped has no column a, which the other side has."
    assert [named for table in names for named in _named(tables[table])] == [
        (f"{name}.deleted", "missing", "{'id': 1}", ()),
        (f"{name}.anew", "different", "{'id': 1}", ("a",)),
    ]
    for table in ("dropped", "unkeyed"):
        hint = f"`applier load -c applier.toml --tables '{name}.{table}' --again` reads its rows once more"
        assert tables[table].way_out.startswith(hint)

    given, lacking = settings.parse(found.raw), [f"{name}.dropped", f"{name}.unkeyed"]
    # The feed goes no further than this moment.
    again = load(given, None, lacking, lambda _: None, at=report.resolved_ts, again=True)
    assert again.refused == ()
    follow(found, spark)
    mended = {table.table: table for table in verified(found).tables}
    assert [(mended[table].state, mended[table].because) for table in lacking] == [("equal", "")] * 2


def _changes(tables: dict[TableName, Any]) -> Iterator[str]:
    """Statements that change one cell each in a copy of another row, and some rows as a whole."""
    for name, table in tables.items():
        columns = [column["name"] for column in table["columns"]]
        if columns[0] != "id" or name.table in ("large", "made", "empty", "must"):
            continue
        rows = expected.rows(table)
        for number, column in enumerate(columns[1:]):
            row = rows[number % len(rows)]
            other = next((it for it in rows if it[column] != row[column]), None)
            if other is not None:
                own, cell = f"`{name.table.replace('`', '``')}`", f"`{column.replace('`', '``')}`"
                joined = f"{own} x JOIN {own} y ON x.id = {row['id']} AND y.id = {other['id']}"
                yield f"UPDATE {joined} SET x.{cell} = y.{cell}"
    for number in range(40):
        changed = ("a = CONCAT(a, ' ')", "b = NULL", "n = n + 1", "a = CONCAT('\\0', a)")[number % 4]
        yield f"UPDATE large SET {changed} WHERE id = {100 + number * 140}"
    yield "DROP TABLE `semi;colon`"
    yield "CREATE TABLE stranger (id int PRIMARY KEY)"
    yield "DELETE FROM large WHERE id = 5"
    yield "INSERT INTO large VALUES (99999, '', '', 0)"
    yield "UPDATE made SET a = 'X' WHERE id = 1"
    yield "UPDATE one SET a = 'A' WHERE a = 'a'"
    yield "UPDATE keyless SET b = 'y' WHERE a = 1 LIMIT 1"


def _differing(before: dict[TableName, Any], after: dict[TableName, Any]) -> Iterator[Named]:
    """By what SQL shows: the Iceberg tables have the rows of before."""
    for name, table in before.items():
        if name not in after:
            continue
        old, new = expected.rows(table), expected.rows(after[name])
        if name.table == "keyless":
            yield str(name), "missing", "{}", ()
            yield str(name), "extra", "{}", ()
            continue
        key = next(iter(old[0])) if old else "id"
        had, has = {row[key]: row for row in old}, {row[key]: row for row in new}
        for value in had.keys() - has.keys():
            yield str(name), "extra", str({key: value}), ()
        for value in has.keys() - had.keys():
            yield str(name), "missing", str({key: value}), ()
        for value in had.keys() & has.keys():
            columns = tuple(column for column, cell in had[value].items() if cell != has[value][column])
            if columns:
                yield str(name), "different", str({key: value}), columns


def _named(table: TableVerdict) -> Iterator[Named]:
    for found in table.differences:
        yield table.table, found.kind, str(dict(found.key)), found.columns


def _config(tidb: Tidb, user: str = "root", port: int | None = None) -> settings.Config:
    url = f"mysql://{user}@127.0.0.1:{port or tidb.port}"
    raw = {
        "changefeed": {"name": "moments", "protocol": "canal-json"},
        "source": {"archive": "none"},
        "catalog": {"name": "lake", "type": "jdbc", "uri": "jdbc:sqlite:none.db", "warehouse": "none"},
        "tables": {"include": [f"{KEYS}.*"]},
        "upstream": {"url": url},
    }
    return settings.parse(raw)


def test_a_moment_that_tidb_does_not_hold_is_refused(tidb: Tidb) -> None:
    """With what to set, or which cluster it must be."""
    ranged.keep_past(tidb)
    with pytest.raises(MomentGone) as gone:
        find(_config(tidb), "", (), 1 << 40)
    assert gone.value.hint.startswith("Let TiDB keep more, with SET GLOBAL tidb_gc_life_time = '24h'")
    late = int(time.time() * 1000 + 3_600_000) << 18
    with pytest.raises(ConfigError) as refusal:
        find(_config(tidb), "tidb", (), late)
    after = f"Resolved ts {late} of the changefeed lies after the newest TSO of TiDB 127.0.0.1:{tidb.port}"
    assert refusal.value.problems == [f"{after}: name the cluster of the changefeed in upstream.url."]


def test_a_table_that_the_user_may_not_read_leaves_the_others(tidb: Tidb) -> None:
    """It is refused when its turn comes, with its reason; the others are found."""
    ranged.create(tidb, KEYS)
    tidb.run(
        "DROP USER IF EXISTS reviewer",
        "CREATE USER reviewer",
        f"GRANT INSERT ON {KEYS}.days TO reviewer",
        f"GRANT SELECT ON {KEYS}.wide TO reviewer",
    )
    days, wide = TableName(KEYS, "days"), TableName(KEYS, "wide")

    found = find(_config(tidb, "reviewer"), "", (), now(tidb))

    assert found.names == {days, wide}
    assert len(found.export.files[wide]) == 3
    with pytest.raises(OutsideRefused, match="the user may not read a table"):
        found.export.version(days)


def test_a_tidb_that_is_gone_is_named(tidb: Tidb) -> None:
    """An address where no server listens, and a user that there is not."""
    with pytest.raises(OutsideRefused, match="it refuses user or password"):
        find(_config(tidb, "stranger"), "", (), now(tidb))
    with pytest.raises(Unreachable, match="TiDB 127.0.0.1:1 cannot be reached"):
        find(_config(tidb, port=1), "", (), now(tidb))


def test_a_connection_that_is_killed_is_made_again(tidb: Tidb) -> None:
    """In the midst of rows: the digest is that of a part that was read in peace."""
    ranged.create(tidb, KEYS)
    tidb.run(f"CREATE TABLE {KEYS}.long (id int PRIMARY KEY AUTO_INCREMENT, v text)")
    tidb.run(*[f"INSERT INTO {KEYS}.long (v) SELECT REPEAT('x', 9000) FROM {KEYS}.numbers"] * 2)
    name = TableName(KEYS, "long")
    fields: list[pa.Field[Any]] = [pa.field("id", pa.int32()), pa.field("v", pa.string())]
    table: Any = SimpleNamespace(schema=TableSchema.parse(schema_json(pa.schema(fields), ["id"])))
    side = find(_config(tidb), "", (), now(tidb)).prepared(name, table, [table.schema], TypeRules()).side
    hashing = RowHash((0,), 1)
    (part,) = side.parts
    kills = list[str]()

    class Killed:
        def read(self, part: Sequence[Any]) -> Iterator[pa.Table]:
            for rows in side.reader.read(part):
                yield rows
                if not kills:
                    (own,) = [
                        row[0] for row in tidb.rows("SHOW PROCESSLIST") if row[7] and f"`{KEYS}`.`long`" in row[7]
                    ]
                    kills.append(own)
                    tidb.run(f"KILL {own}")

    _, whole = DigestTask((side.reader, side.reader), hashing)((0, part))
    found = _outcome(DigestTask((Killed(), Killed()), hashing), (0, part))

    assert len(kills) == 1
    assert not isinstance(found, ApplierError)
    assert found[1].rows == whole.rows == 2 * ranged.ROWS
    assert not len(found[1].differing(whole))
