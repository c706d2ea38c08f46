from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession

from applier.changefeed import ddl
from applier.changefeed.batch import ChangeBatch
from applier.changefeed.table import Column, Index, TableName, TableVersion
from applier.changefeed.table import ColumnType as T
from applier.changefeed.types import TypeRules, arrow_type
from applier.errors import CheckpointConflict, SchemaChangeRefused, TableMismatch
from applier.sink import rebuild
from applier.sink.draft import KEY, Draft
from applier.sink.evolution import plan
from applier.sink.evolve import Evolved, apply_evolution
from applier.sink.iceberg import Catalog, PartitionField, Table
from applier.sink.iceberg_commit import Change
from applier.sink.progress import Stamp
from applier.sink.table import TableWriter
from tests.spark.feeds import read, sql_name

pytestmark = pytest.mark.spark

NAME = TableName("shop", "t")
ID = Column("id", T("bigint"), nullable=False)
RULES = TypeRules()
PRIMARY = (Index("primary", ("id",), unique=True, primary=True),)

Row = dict[str, Any]


def version(*columns: Column, indexes: tuple[Index, ...] = PRIMARY) -> TableVersion:
    """A version of the table."""
    return TableVersion(NAME, 1, columns, indexes)


@dataclass
class Upstream:
    """One table on its way through a changefeed: what it is upstream, and its Iceberg table."""

    spark: SparkSession
    catalog: Catalog
    reader: SqlCatalog
    identifier: tuple[str, str]
    now: TableVersion = field(default_factory=version)
    resolved_ts: int = 0

    def create(
        self, *columns: Column, format_version: int = 3, partition: Sequence[PartitionField] = (), key: bool = True
    ) -> None:
        """Create the table with these columns and `id`."""
        self.now = version(ID, *columns, indexes=PRIMARY if key else ())
        schema = pa.schema([pa.field(c.name, arrow_type(c.type), c.name != "id" or not key) for c in self.now.columns])
        self.catalog.create(
            self.identifier,
            schema,
            key=self.now.key,
            sort=self.now.key,
            partition=partition,
            format_version=format_version,
        )

    @property
    def table(self) -> Table:
        """The Iceberg table, freshly loaded."""
        found = self.catalog.load(self.identifier)
        assert found is not None
        return found

    def stamp(self) -> Stamp:
        """The stamp of the next commit."""
        self.resolved_ts += 1
        return Stamp("shop", 1, self.resolved_ts)

    def write(self, *rows: Row, delete: Sequence[Any] = ()) -> None:
        """Commit rows and deletes."""
        types = {c.name: arrow_type(c.type) for c in self.now.columns}
        names = [name for name in types if not rows or name in rows[0]]
        upserts = pa.Table.from_pylist(list(rows), schema=pa.schema([(name, types[name]) for name in names]))
        deletes = pa.table({name: pa.array(delete, types[name]) for name in self.now.key})
        batch = ChangeBatch(upserts, pa.array([False] * len(rows), pa.bool_()), deletes)
        TableWriter(self.table, "shop", 1).apply(batch, self.stamp(), exact=False)

    def alter(self, after: TableVersion, *actions: ddl.Action) -> Evolved:
        """Evolve the table."""
        done = apply_evolution(self.table, plan(self.now, after, actions, RULES), self.stamp())
        self.now = after
        return done

    def modify(self, old: Column, new: Column) -> Evolved:
        """MODIFY or CHANGE a column at its place."""
        after = version(*(new if c.name == old.name else c for c in self.now.columns), indexes=self.now.indexes)
        return self.alter(after, ddl.ModifyColumn(NAME, old.name, new))

    def add(self, *columns: Column) -> Evolved:
        """ADD columns at the end."""
        after = version(*self.now.columns, *columns, indexes=self.now.indexes)
        return self.alter(after, *(ddl.AddColumn(NAME, column) for column in columns))

    def rows(self) -> list[Row]:
        """Rows as Spark reads them, which are those that PyIceberg reads."""
        found = read(self.spark, self.identifier)
        other = self.reader.load_table(self.identifier).scan().to_arrow()
        assert found.column_names == other.column_names == [c.name for c in self.now.columns]
        rows = sorted(found.to_pylist(), key=_order)
        assert sorted(other.to_pylist(), key=_order) == rows
        return rows

    def column(self, name: str) -> list[Any]:
        """One column in order of the first."""
        return [row[name] for row in self.rows()]

    def rows_at(self, snapshot_id: int) -> list[Row]:
        """Rows of an older snapshot, with the columns that it had."""
        frame = self.spark.read.option("versionAsOf", snapshot_id).table(sql_name(self.identifier))
        rows = sorted((row.asDict() for row in frame.collect()), key=_order)
        past = self.reader.load_table(self.identifier).scan(snapshot_id=snapshot_id).to_arrow().to_pylist()
        assert len(past) == len(rows)
        return rows

    @property
    def head(self) -> int | None:
        """Head of the table."""
        return self.table.snapshot_id


@pytest.fixture
def upstream(
    spark: SparkSession, lake: Catalog, warehouse: Path, fresh_name: Callable[[], tuple[str, str]]
) -> Upstream:
    """A table that is yet to be created."""
    reader = SqlCatalog("lake", uri=f"sqlite:///{warehouse}/catalog.db", warehouse=f"file://{warehouse}/tables")
    return Upstream(spark, lake, reader, fresh_name())


def _order(row: Row) -> str:
    return str(next(iter(row.values()))).rjust(40)


DEFAULTS = [
    (Column("i", T("int"), default="5"), 5),
    (Column("u", T("bigint", unsigned=True), default="18446744073709551615"), Decimal(2**64 - 1)),
    (Column("l", T("bigint"), default="7"), 7),
    (Column("nn", T("int"), nullable=False), 0),
    (Column("none", T("int")), None),
    (Column("dec", T("decimal", length=6, scale=2), nullable=False, default="3.14"), Decimal("3.14")),
    (Column("f", T("float"), default="1.5"), 1.5),
    (Column("d", T("double"), default="0.1"), 0.1),
    (Column("s", T("varchar", length=20), default="dv"), "dv"),
    (Column("empty", T("varchar", length=20), nullable=False), ""),
    (Column("b", T("binary", length=3), default="a"), b"a\0\0"),
    (Column("e", T("enum", elements=("a", "b")), default="b"), "b"),
    (Column("day", T("date"), default="2020-02-29"), date(2020, 2, 29)),
    (Column("at", T("datetime", scale=3), default="2020-01-01 00:00:00.5"), datetime(2020, 1, 1, 0, 0, 0, 500000)),
    (Column("ts", T("timestamp"), default="2022-02-02 02:02:02"), datetime(2022, 2, 2, 2, 2, 2, tzinfo=UTC)),
    (Column("time", T("time"), default="10:00:00"), "10:00:00"),
    (Column("bits", T("bit", length=64), default="682"), Decimal(682)),
    (Column("odd.name x", T("int"), default="3"), 3),
]


@pytest.mark.parametrize("format_version", [2, 3])
def test_existing_rows_read_the_default_of_a_new_column(upstream: Upstream, format_version: int) -> None:
    """Format 3 says it in the metadata, format 2 has it written; rows to come have their own values."""
    upstream.create(format_version=format_version)
    upstream.write({"id": 1}, {"id": 2}, {"id": 3})
    upstream.write(delete=[3])
    before = upstream.head
    done = upstream.add(*(column for column, _ in DEFAULTS))
    assert done.rewritten == (2 if format_version == 2 else 0)
    expected = {column.name: value for column, value in DEFAULTS}
    assert upstream.rows() == [{"id": 1, **expected}, {"id": 2, **expected}]
    upstream.write({"id": 2, **dict.fromkeys(expected)})
    assert upstream.rows() == [{"id": 1, **expected}, {"id": 2, **dict.fromkeys(expected)}]
    assert before is not None
    assert upstream.rows_at(before) == [{"id": 1}, {"id": 2}]


def test_a_default_of_a_nested_type_is_written(upstream: Upstream) -> None:
    """Iceberg has no defaults for lists, so the rows are written anew."""
    upstream.create()
    upstream.write({"id": 1})
    assert upstream.add(Column("v", T("vector"), default="[1, 2.5]"), Column("i", T("int"), default="5")).rewritten == 1
    assert upstream.rows() == [{"id": 1, "v": [1.0, 2.5], "i": 5}]


def test_columns_change_without_touching_files(upstream: Upstream) -> None:
    """Adding, dropping, renaming, moving, widening and commenting are metadata; old snapshots keep their columns."""
    qty, price, note = Column("qty", T("int")), Column("price", T("decimal", length=5, scale=2)), Column("n", T("text"))
    upstream.create(qty, price, note)
    upstream.write({"id": 1, "qty": 7, "price": Decimal("1.50"), "n": "x"})
    before = upstream.head
    files = upstream.table.scan(before or 0)
    amount = Column("Amount", T("bigint"), comment="pieces")
    wide = Column("price", T("decimal", length=12, scale=2))
    first = Column("first", T("int"), default="5")
    done = upstream.alter(
        version(first, amount, ID, wide),
        ddl.AddColumn(NAME, first, first=True),
        ddl.ModifyColumn(NAME, "qty", amount, after="first"),
        ddl.DropColumn(NAME, "n"),
        ddl.ModifyColumn(NAME, "price", wide),
        ddl.SetComment(NAME, "sold"),
    )
    assert done.rewritten == 0
    assert [file.path for file in upstream.table.scan(done.snapshot_id)] == [file.path for file in files]
    assert upstream.rows() == [{"first": 5, "Amount": 7, "id": 1, "price": Decimal("1.50")}]
    assert upstream.rows_at(before or 0) == [{"id": 1, "qty": 7, "price": Decimal("1.50"), "n": "x"}]
    upstream.write({"id": 2, "first": 1, "Amount": 2**40, "price": Decimal("9999999999.99")})
    assert upstream.column("Amount") == [2**40, 7]
    assert upstream.table.properties["comment"] == "sold"
    assert '"doc":"pieces"' in upstream.table.schema_json
    assert upstream.table.schema.identifier == ("id",)


def test_columns_swap_their_names(upstream: Upstream) -> None:
    """Field ids tell them apart."""
    a, b = Column("a", T("int")), Column("b", T("int"))
    upstream.create(a, b)
    upstream.write({"id": 1, "a": 1, "b": 2})
    upstream.alter(version(ID, b, a), ddl.RenameColumn(NAME, "a", "b"), ddl.RenameColumn(NAME, "b", "a"))
    assert upstream.rows() == [{"id": 1, "b": 1, "a": 2}]


def test_a_name_may_go_to_another_column(upstream: Upstream) -> None:
    """A new column takes the name of one that was renamed, or dropped, by the same statement."""
    a, b, new = Column("a", T("int")), Column("b", T("int")), Column("a", T("text"), default="new")
    upstream.create(a)
    upstream.write({"id": 1, "a": 1})
    upstream.alter(version(ID, b, new), ddl.RenameColumn(NAME, "a", "b"), ddl.AddColumn(NAME, new))
    assert upstream.rows() == [{"id": 1, "b": 1, "a": "new"}]
    again = Column("a", T("int"), default="3")
    upstream.alter(version(ID, b, again), ddl.DropColumn(NAME, "a"), ddl.AddColumn(NAME, again))
    assert upstream.rows() == [{"id": 1, "b": 1, "a": 3}]


@pytest.mark.parametrize("format_version", [2, 3])
def test_values_follow_a_column_through_its_types(upstream: Upstream, format_version: int) -> None:
    """From int to varchar to bigint to int: TiDB rewrites the values and sends no rows; dead rows stay dead."""
    kinds = (T("int"), T("varchar", length=20), T("bigint"), T("int"))
    lossy = [Column("lossy", kind) for kind in kinds]
    upstream.create(lossy[0], Column("z", T("int")), format_version=format_version)
    upstream.write({"id": 1, "lossy": 12, "z": 1}, {"id": 2, "lossy": None, "z": 2}, {"id": 3, "lossy": 3, "z": 3})
    upstream.write({"id": 4, "lossy": -4, "z": 4}, delete=[3])
    before = upstream.head
    assert upstream.modify(lossy[0], lossy[1]).rewritten == 3
    assert upstream.column("lossy") == ["12", None, "-4"]
    upstream.write({"id": 5, "lossy": "42", "z": 5})
    assert upstream.modify(lossy[1], lossy[2]).rewritten == 4
    assert upstream.column("lossy") == [12, None, -4, 42]
    upstream.write({"id": 5, "lossy": -1, "z": 5}, {"id": 1, "lossy": 0, "z": 1})
    assert upstream.modify(lossy[2], lossy[3]).rewritten == 4
    assert upstream.column("lossy") == [0, None, -4, -1]
    assert upstream.column("z") == [1, 2, 4, 5]
    assert [row["lossy"] for row in upstream.rows_at(before or 0)] == [12, None, -4]
    upstream.write({"id": 2, "lossy": 2, "z": 2}, delete=[1])
    assert upstream.column("lossy") == [2, -4, -1]


def test_a_conversion_keeps_name_place_and_comment(upstream: Upstream) -> None:
    """The field is made anew, and looks the same from outside."""
    a, b = Column("a", T("int"), comment="first"), Column("b", T("int"))
    upstream.create(b)
    upstream.alter(version(ID, a, b), ddl.AddColumn(NAME, a, after="id"))
    upstream.write({"id": 1, "a": 1, "b": 2})
    after = version(ID, Column("x", T("text"), comment="first"), Column("b", T("text")))
    upstream.alter(after, ddl.ModifyColumn(NAME, "a", after.columns[1]), ddl.ModifyColumn(NAME, "b", after.columns[2]))
    assert upstream.rows() == [{"id": 1, "x": "1", "b": "2"}]
    assert '"doc":"first"' in upstream.table.schema_json


def test_a_conversion_that_changes_no_value_rewrites_nothing(upstream: Upstream) -> None:
    """The column is read, and only if a row gets another value, or the type a new field, all files are written."""
    a = Column("a", T("varchar", length=100))
    upstream.create(a, Column("n", T("bigint", unsigned=False)))
    upstream.write({"id": 1, "a": "abc", "n": 1}, {"id": 2, "a": "ab ", "n": 2})
    shorter, fixed = Column("a", T("varchar", length=3)), Column("a", T("char", length=3))
    assert upstream.modify(a, shorter).rewritten == 0
    assert upstream.modify(shorter, fixed).rewritten == 2
    assert upstream.column("a") == ["abc", "ab"]


def test_a_converted_key_still_identifies_rows(upstream: Upstream) -> None:
    """Identity and sort order follow the key to its new type, and the next batch finds the rows by it."""
    upstream.create(Column("v", T("int")))
    upstream.write({"id": 1, "v": 1}, {"id": 2, "v": 2})
    text = Column("id", T("varchar", length=20), nullable=False)
    upstream.modify(ID, text)
    table = upstream.table
    assert table.schema.identifier == ("id",)
    assert [part["source-id"] for part in table.sort_order_json["fields"]] == [table.schema.fields[0].id]
    upstream.write({"id": "2", "v": 20}, delete=["1"])
    assert upstream.rows() == [{"id": "2", "v": 20}]


def test_a_value_that_cannot_be_cast_changes_nothing(upstream: Upstream) -> None:
    """The statement is refused with column and reason, and the table is what it was; without rows it is applied."""
    a = Column("a", T("varchar", length=10))
    upstream.create(a)
    upstream.write({"id": 1, "a": "1"}, {"id": 2, "a": "secret"})
    before, schema = upstream.head, upstream.table.schema_json
    number = Column("a", T("int"))
    with pytest.raises(SchemaChangeRefused, match="column a: a value does not fit int in strict SQL mode") as caught:
        upstream.modify(a, number)
    assert "secret" not in str(caught.value)
    assert (upstream.head, upstream.table.schema_json) == (before, schema)
    upstream.write(delete=[1, 2])
    assert upstream.modify(a, number).rewritten == 0
    upstream.write({"id": 1, "a": 5})
    assert upstream.rows() == [{"id": 1, "a": 5}]


def test_what_is_not_known_is_refused_only_for_rows(upstream: Upstream) -> None:
    """A default of CURRENT_TIMESTAMP, and a conversion by the session's time zone, matter to rows alone."""
    at = Column("at", T("datetime"), default="CURRENT_TIMESTAMP")
    upstream.create(Column("ts", T("timestamp")))
    upstream.write({"id": 1, "ts": None})
    before = upstream.head
    with pytest.raises(SchemaChangeRefused, match="The value of the new column at in existing rows is not known"):
        upstream.add(at)
    with pytest.raises(SchemaChangeRefused, match="time zone of the session"):
        upstream.modify(upstream.now.columns[1], Column("ts", T("datetime")))
    assert upstream.head == before
    upstream.write(delete=[1])
    upstream.add(at)
    upstream.modify(upstream.now.columns[1], Column("ts", T("datetime")))
    upstream.write({"id": 2, "ts": datetime(2020, 1, 1), "at": None})
    assert upstream.rows() == [{"id": 2, "ts": datetime(2020, 1, 1), "at": None}]


def test_a_new_key_identifies_rows(upstream: Upstream) -> None:
    """Identifier fields follow the key where Iceberg allows it; the property names it in any case."""
    v = Column("v", T("int"), nullable=False)
    upstream.create(v)
    upstream.write({"id": 1, "v": 5}, {"id": 2, "v": 6})

    def identifier() -> tuple[str, ...]:
        return upstream.table.schema.identifier

    by_both = (Index("primary", ("id", "v"), unique=True, primary=True),)
    upstream.alter(version(ID, v, indexes=by_both), ddl.AddIndex(NAME, by_both[0]))
    assert identifier() == ("id", "v")
    upstream.alter(version(ID, v, indexes=()), ddl.DropIndex(NAME, "primary"))
    assert identifier() == ()
    assert upstream.table.properties[KEY] == "[]"
    by_v = (Index("primary", ("v",), unique=True, primary=True),)
    upstream.alter(version(ID, v, indexes=by_v), ddl.AddIndex(NAME, by_v[0]))
    assert identifier() == ("v",)
    upstream.write({"id": 9, "v": 5}, delete=[6])
    assert upstream.rows() == [{"id": 9, "v": 5}]


def test_a_key_with_a_null_is_only_named(upstream: Upstream) -> None:
    """A zero date that is kept as NULL would be no identifier, and a float never is; dead NULLs do not count."""
    day, real = Column("day", T("date"), nullable=False), Column("real", T("double"), nullable=False)
    upstream.create(day, real)
    upstream.write({"id": 1, "day": None, "real": 1.0}, {"id": 2, "day": date(2020, 1, 1), "real": 2.0})

    def key(*names: str) -> tuple[str, ...]:
        index = Index("primary", names, unique=True, primary=True)
        upstream.alter(version(ID, day, real, indexes=(index,)), ddl.AddIndex(NAME, index))
        return upstream.table.schema.identifier

    assert key("day") == ()
    assert upstream.table.properties[KEY] == '["day"]'
    assert key("real") == ()
    assert key("id") == ("id",)
    upstream.write(delete=[1])
    assert key("day") == ("day",)


def test_truncate_is_one_stamped_commit(upstream: Upstream) -> None:
    """All rows go at once, and the snapshot from before still has them."""
    upstream.create(Column("v", T("int")))
    upstream.write({"id": 1, "v": 1})
    before = upstream.head
    done = upstream.alter(upstream.now, ddl.TruncateTable(NAME))
    assert upstream.rows() == []
    newest = next(iter(upstream.table.history()))
    assert (newest.id, newest.summary["applier.resolved-ts"]) == (done.snapshot_id, str(upstream.resolved_ts))
    assert upstream.rows_at(before or 0) == [{"id": 1, "v": 1}]


def test_partitions_outlive_a_conversion(upstream: Upstream) -> None:
    """Rows stay in their partitions; the column that partitions the table cannot be converted."""
    v, region = Column("v", T("int")), Column("region", T("varchar", length=9))
    fields = [PartitionField("region"), PartitionField("id", "bucket[3]")]
    upstream.create(v, region, partition=fields)
    upstream.write(*({"id": number, "v": number, "region": "ab"[number % 2]} for number in range(9)))
    assert upstream.modify(v, Column("v", T("text"))).rewritten == 9
    assert upstream.column("v") == [str(number) for number in range(9)]
    frame = upstream.spark.table(sql_name(upstream.identifier)).where("region = 'b'")
    assert sorted(row.id for row in frame.collect()) == [1, 3, 5, 7]
    before = upstream.head
    with pytest.raises(TableMismatch):
        upstream.modify(region, Column("region", T("varbinary", length=9)))
    assert upstream.head == before


def test_a_large_table_is_rewritten_in_parts(upstream: Upstream, monkeypatch: pytest.MonkeyPatch) -> None:
    """No more than some rows are in memory at a time, whatever the size of the table."""
    monkeypatch.setattr(rebuild, "CHUNK_BYTES", 10_000)
    v = Column("v", T("int"))
    upstream.create(v)
    for start in range(0, 3000, 1000):
        upstream.write(*({"id": number, "v": number} for number in range(start, start + 1000)))
    upstream.write(delete=list(range(0, 3000, 2)))
    done = upstream.modify(v, Column("v", T("text")))
    assert done.rewritten == 1500
    assert len(upstream.table.scan(done.snapshot_id)) == 2
    assert sorted(row["id"] for row in upstream.rows()) == list(range(1, 3000, 2))


def test_an_evolution_is_fenced(upstream: Upstream) -> None:
    """An applier that lost the table to a newer one does not change its columns."""
    upstream.create(Column("v", T("int")))
    upstream.write({"id": 1, "v": 1})
    zombie = upstream.table
    TableWriter(upstream.table, "shop", 2).stamp(Stamp("shop", 2, 99))
    after = version(ID, Column("v", T("text")))
    with pytest.raises(CheckpointConflict):
        apply_evolution(zombie, plan(upstream.now, after, [], RULES), Stamp("shop", 1, 50))
    assert upstream.rows() == [{"id": 1, "v": 1}]


def test_rows_that_others_commit_meanwhile_are_cast_too(upstream: Upstream, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rewrite that was planned on an older head is made again on the new one."""
    v = Column("v", T("int"))
    upstream.create(v)
    upstream.write({"id": 1, "v": 1})
    original = Draft.change
    rivals = [upstream.spark.createDataFrame([(2, 2)], "id bigint, v int")]

    def change(draft: Draft, stamp: Stamp) -> Change:
        staged = original(draft, stamp)
        if rivals:
            rivals.pop().writeTo(sql_name(upstream.identifier)).append()
        return staged

    monkeypatch.setattr(Draft, "change", change)
    assert upstream.modify(v, Column("v", T("text"))).rewritten == 2
    assert upstream.rows() == [{"id": 1, "v": "1"}, {"id": 2, "v": "2"}]


def test_a_table_that_is_not_as_upstream_is_refused(upstream: Upstream) -> None:
    """A column that somebody changed or removed by hand is named."""
    v = Column("v", T("int"))
    upstream.create(v)
    upstream.spark.sql(f"ALTER TABLE {sql_name(upstream.identifier)} ALTER COLUMN v TYPE bigint")
    with pytest.raises(TableMismatch, match="Column v of table .* is long, upstream it was int32"):
        upstream.modify(v, Column("v", T("text")))
    upstream.spark.sql(f"ALTER TABLE {sql_name(upstream.identifier)} DROP COLUMN v")
    with pytest.raises(TableMismatch, match="has no column v, which its upstream table changes"):
        upstream.modify(v, Column("v", T("text")))
