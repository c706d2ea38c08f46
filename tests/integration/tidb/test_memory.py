"""`applier verify --memory`: a later run reads what has changed alone, and still finds every difference."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from applier.changefeed.table import TableName
from applier.changefeed.types import TypeRules
from applier.commands.verify.against import Upstream
from applier.commands.verify.memory import KnownPiece, Memory, Total
from applier.commands.verify.repair import repaired
from applier.commands.verify.report import TableVerdict
from applier.commands.verify.row_hash import RowHash
from applier.commands.verify.sides import UpstreamReader
from applier.commands.verify.totals import KnownAt, PartTotals, PieceTask
from applier.config import settings
from applier.decode.tidb.piece_reader import Piece, PieceReader
from applier.decode.tidb.range_reader import RangeReader
from applier.decode.tidb.table_ranges import TableRange
from applier.decode.tidb.tidb_export import TidbExport
from applier.pipeline.load.loading import reader_of
from applier.sink.format.types import TableSchema, schema_json
from applier.sink.iceberg.catalog import Catalog
from tests.integration.tidb import corpus, feed, ranged
from tests.integration.tidb.feed import now
from tests.integration.tidb.test_verify import KEYS, brought, follow, verified
from tests.replay import Replay
from tests.services.tidb import Tidb

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DATABASE, TYPES, TWICE = KEYS, "remembered_types", "verified_twice"


def found_by(found: Replay, memory: Path) -> Mapping[str, TableVerdict]:
    """What the command finds of each table."""
    return {table.table.removeprefix(f"{DATABASE}."): table for table in verified(found, memory=memory).tables}


def test_a_later_run_reads_what_has_changed_alone(
    tidb: Tidb, spark: SparkSession, lake: dict[str, str], tmp_path: Path
) -> None:
    """For each kind of key; what no feed brought, and what another writer did, is found."""
    ranged.create(tidb, DATABASE)
    at = now(tidb)
    found = brought("verifymemory", at, at + 1, tidb, spark, lake, tmp_path, [f"{DATABASE}.*"])
    memory = tmp_path / "new" / "memory"

    first, again = found_by(found, memory), found_by(found, memory)

    assert {table.state for table in (*first.values(), *again.values())} == {"equal"}
    assert {name for name, table in first.items() if table.rows_read is None} == {"members"}, "its key is no bound"
    assert {name: table.rows_read for name, table in first.items() if name != "members"} == {
        name: 2 * (table.rows or 0) for name, table in first.items() if name != "members"
    }
    assert {table.rows_read for name, table in again.items() if name != "members"} == {0}

    tidb.run(
        f"USE {DATABASE}",
        "UPDATE numbers SET v = 'w' WHERE id = 2",
        "DELETE FROM keyless LIMIT 1",
        "UPDATE days SET d = '1999-12-31' WHERE d = 0 LIMIT 1",
    )
    later = now(tidb)
    feed.write(tmp_path, [at + 1, later])
    follow(found, spark)
    spark.sql(f"DELETE FROM lake.verifymemory__{DATABASE}.loose WHERE v = 2")
    third, fourth = found_by(found, memory), found_by(found, memory)

    wanted = {"numbers": {"different": 1}, "keyless": {"extra": 1}, "days": {"missing": 1, "extra": 1}}
    wanted["loose"] = {"missing": 1}
    for seen in (third, fourth):
        counts = {name: {kind: n for kind, n in table.counts.items() if n} for name, table in seen.items()}
        assert {name: own for name, own in counts.items() if own} == wanted
    assert {third[name].rows_read for name in third.keys() - wanted.keys() - {"members"}} == {0}


def test_a_data_file_that_a_table_has_twice_is_a_difference(
    tidb: Tidb, spark: SparkSession, lake: dict[str, str], tmp_path: Path
) -> None:
    """As a writer leaves it that repeats a commit; Iceberg shows its rows twice."""
    tidb.run(
        f"DROP DATABASE IF EXISTS {TWICE}", f"CREATE DATABASE {TWICE}", f"CREATE TABLE {TWICE}.t (id int PRIMARY KEY)"
    )
    tidb.run(f"INSERT INTO {TWICE}.t VALUES (1), (2)")
    at = now(tidb)
    found = brought("verifytwice", at, at + 1, tidb, spark, lake, tmp_path, [f"{TWICE}.*"])
    assert [table.state for table in verified(found, memory=tmp_path / "memory").tables] == ["equal"]
    table = Catalog(spark, "lake").load(("verifytwice__" + TWICE, "t"))
    assert table is not None
    append = table.handle.newAppend()
    for task in table.java.items(table.handle.newScan().planFiles()):
        append.appendFile(task.file())
    append.commit()

    assert spark.sql(f"SELECT * FROM lake.verifytwice__{TWICE}.t").count() == 4
    for memory in (tmp_path / "memory", None):
        (verdict,) = (report := verified(found, memory=memory)).tables
        assert verdict.state == "different"
        assert verdict.because.startswith(f"Table verifytwice__{TWICE}.t holds data file ")
        assert verdict.because.endswith(" 2 times, and each time its rows count.")

    assert repaired(settings.parse(found.raw), report, lambda _: None) is not None
    follow(found, spark)
    assert [table.state for table in verified(found, memory=tmp_path / "memory").tables] == ["equal"]
    assert spark.sql(f"SELECT * FROM lake.verifytwice__{TWICE}.t").count() == 2


class Side:
    """TiDB's side of one table, read by the code of a task, without Spark."""

    def __init__(self, tidb: Tidb, name: TableName, schema: TableSchema) -> None:
        self.tidb, self.name, self.schema = tidb, name, schema

    def found(self, known: Memory) -> tuple[PartTotals, Total]:
        """What is found with what is known, and the total of reading it all."""
        export = TidbExport.find(ranged.login(self.tidb), now(self.tidb), lambda name: name == self.name)
        upstream = Upstream(export, export.login, frozenset([self.name]))
        reader: Any = upstream.prepared(self.name, _table(self.schema), [self.schema], TypeRules()).side.reader
        assert isinstance(reader, UpstreamReader)
        assert isinstance(reader.reader, RangeReader)
        task = PieceTask(reader, PieceReader(reader.reader, known.seed, 0), RowHash((0,), known.seed))
        whole: list[KnownAt] = [(Piece(None, None), None)]
        total = Total()
        for piece in task(whole).pieces:
            total = total.plus(piece.total)
        return task(known.known() or whole), total


def _table(schema: TableSchema) -> Any:
    return SimpleNamespace(schema=schema)


def _sum(pieces: list[KnownPiece]) -> Total:
    total = Total()
    for piece in pieces:
        total = total.plus(piece.total)
    return total


def test_a_twentieth_is_read_after_a_hundredth_changed(tidb: Tidb, tmp_path: Path) -> None:
    """Where the changes lie side by side, as those of the newest rows do."""
    ranged.create(tidb, DATABASE)
    tidb.run(
        f"CREATE TABLE {DATABASE}.large (id int PRIMARY KEY AUTO_INCREMENT, v varchar(500), n double)",
        *[f"INSERT INTO {DATABASE}.large (v, n) SELECT REPEAT(v, 60), id / 7 FROM {DATABASE}.numbers"] * 20,
    )
    fields: list[pa.Field[Any]] = [pa.field("id", pa.int32()), pa.field("v", pa.string()), pa.field("n", pa.float64())]
    side = Side(tidb, TableName(DATABASE, "large"), TableSchema.parse(schema_json(pa.schema(fields), ["id"])))
    memory = Memory(tmp_path / "none", "", 7)
    first, _ = side.found(memory)
    rows = first.read
    tidb.run(f"UPDATE {DATABASE}.large SET n = n + 1 WHERE id BETWEEN 15000 AND 15599")

    second, whole = side.found(Memory(memory.path, "", 7, first.pieces))

    assert rows == 60_000
    assert 600 <= second.read <= rows // 20
    assert _sum(second.pieces) == whole != _sum(first.pieces)
    tidb.run(f"DELETE FROM {DATABASE}.large WHERE id < 40000")
    third, whole = side.found(Memory(memory.path, "", 7, second.pieces))
    assert _sum(third.pieces) == whole
    assert third.read < whole.rows


def test_checksums_change_with_each_cell(tidb: Tidb) -> None:
    """Of every type: whatever makes rows look otherwise to the reader makes the checksum another one, and only that."""
    corpus.create(tidb, TYPES)
    changed = 0
    for name, table in corpus.shown(tidb, TYPES).items():
        columns = [column["name"] for column in table["columns"]]
        if columns[0] != "id" or name.table in ("made", "empty", "must", "large"):
            continue
        own = f"`{TYPES}`.`{name.table.replace('`', '``')}`"
        seen = {_shown(tidb, name)}
        for column in columns[1:]:
            cell = f"`{column.replace('`', '``')}`"
            two = f"SELECT MIN(id) AS one, MAX(id) AS other FROM {own}"
            for statement in (
                f"UPDATE {own} x JOIN ({two}) t ON x.id = t.one JOIN {own} y ON y.id = t.other SET x.{cell} = y.{cell}",
                f"UPDATE {own} SET {cell} = NULL ORDER BY id LIMIT 1",
            ):
                tidb.run(statement)
                seen.add(_shown(tidb, name))
        assert len({rows for rows, _ in seen}) == len({sums for _, sums in seen}) == len(seen), name
        changed += len(seen) - 1
    assert changed > 80


def test_a_cell_too_long_for_a_checksum_is_no_null(tidb: Tidb) -> None:
    """The server shows NULL for a text that it puts together, if it is longer than max_allowed_packet now is."""
    ranged.create(tidb, DATABASE)
    name = TableName(DATABASE, "long")
    tidb.run(
        f"CREATE TABLE {DATABASE}.long (id int PRIMARY KEY, a mediumtext)",
        f"INSERT INTO {DATABASE}.long VALUES (1, REPEAT('a', 2000000)), (2, NULL)",
    )
    tidb.run("SET GLOBAL max_allowed_packet = 1048576")
    try:
        found = PieceReader(_reader(tidb, name), 5, 0).checksums([Piece(None, None), Piece(("2",), None)])
    finally:
        tidb.run("SET GLOBAL max_allowed_packet = 67108864")

    assert found[0] is None
    assert found[1] is not None


def _shown(tidb: Tidb, name: TableName) -> tuple[str, str]:
    """The rows of a table as the reader gets them, and their checksum."""
    reader = _reader(tidb, name)
    part = TableRange(1, "TRUE", 0)
    rows = sorted(repr(row) for block in reader.texts(part) for row in block.to_pylist())
    (found,) = PieceReader(reader, 5, 0).checksums([Piece(None, None)])
    assert found is not None
    assert found.rows == len(rows)
    return repr(rows), repr(found)


def _reader(tidb: Tidb, name: TableName) -> RangeReader:
    export = TidbExport.find(ranged.login(tidb), now(tidb), lambda it: it == name)
    reader = reader_of(export, export.login, export.version(name), TypeRules())
    assert isinstance(reader, RangeReader)
    return reader


def test_rows_that_share_a_place_stay_together(tidb: Tidb, tmp_path: Path) -> None:
    """An exchange of partitions gives two rows one `_tidb_rowid`: no bound lies between them."""
    ranged.create(tidb, DATABASE)
    tidb.run(
        f"USE {DATABASE}",
        "CREATE TABLE wider (id int PRIMARY KEY, v longtext)",
        "INSERT INTO wider SELECT id, REPEAT('x', 1500) FROM numbers",
        "CREATE TABLE parts (id int, v varchar(900)) PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (0), "
        "PARTITION p1 VALUES LESS THAN MAXVALUE)",
        "INSERT INTO parts SELECT id, REPEAT('y', 800) FROM numbers",
        "CREATE TABLE others (id int, v varchar(900))",
        "INSERT INTO others SELECT id, REPEAT('z', 800) FROM numbers WHERE id < 0",
        "ALTER TABLE parts EXCHANGE PARTITION p0 WITH TABLE others",
    )
    fields: list[pa.Field[Any]] = [pa.field("id", pa.int32()), pa.field("v", pa.string())]
    for name, key in (("wider", ["id"]), ("parts", list[str]())):
        side = Side(tidb, TableName(DATABASE, name), TableSchema.parse(schema_json(pa.schema(fields), key)))
        memory = Memory(tmp_path / "none", "", 7)
        first, _ = side.found(memory)
        assert len(first.pieces) > 5
        tidb.run(f"UPDATE {DATABASE}.{name} SET v = CONCAT(v, 'a') WHERE id > 900 LIMIT 1")
        second, whole = side.found(Memory(memory.path, "", 7, first.pieces))
        assert _sum(second.pieces) == whole != _sum(first.pieces)
        assert second.read < whole.rows
