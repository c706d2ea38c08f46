from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import pytest

from applier.changefeed.table import Column, Index
from applier.changefeed.table import ColumnType as T
from applier.ddl import actions as ddl
from applier.errors import CheckpointConflict, TableMismatch
from applier.sink.commit.stamp import Stamp
from applier.sink.evolve.apply import apply_evolution
from applier.sink.evolve.plan import plan
from applier.sink.evolve.resolve import KEY
from applier.sink.write.table_writer import TableWriter
from tests.spark.feeds import sql_name
from tests.spark.upstream_table import ID, NAME, RULES, Upstream, version

pytestmark = pytest.mark.spark


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
    (Column("ts", T("timestamp", scale=0), default="2022-02-02 02:02:02"), datetime(2022, 2, 2, 2, 2, 2, tzinfo=UTC)),
    (Column("time", T("time", scale=0), default="10:00:00"), "10:00:00"),
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


def test_an_evolution_is_fenced(upstream: Upstream) -> None:
    """An applier that lost the table to a newer one does not change its columns."""
    upstream.create(Column("v", T("int")))
    upstream.write({"id": 1, "v": 1})
    zombie = upstream.table
    TableWriter(upstream.table, "shop", 2).stamp(Stamp("shop", 2, 99))
    after = version(ID, Column("v", T("text")))
    with pytest.raises(CheckpointConflict):
        apply_evolution(zombie, plan(upstream.now, after, [], RULES), Stamp("shop", 1, 50), after.name)
    assert upstream.rows() == [{"id": 1, "v": 1}]


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
