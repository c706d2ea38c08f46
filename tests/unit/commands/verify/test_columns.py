from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from applier.changefeed.table import TableName
from applier.changefeed.types import TypeRules
from applier.commands.verify.against import OtherTable, is_table
from applier.commands.verify.columns import ColumnMissing, columns_at, schemas_at
from applier.errors import TableMismatch
from applier.sink.format.types import TableSchema, schema_json


def schema(**columns: pa.DataType) -> TableSchema:
    """Of some columns."""
    fields: list[pa.Field[Any]] = [pa.field(name, kind) for name, kind in columns.items()]
    return TableSchema.parse(schema_json(pa.schema(fields)))


class Held:
    """A table with a schema now, others before, and one with which its snapshot was made."""

    def __init__(self, made: TableSchema, now: TableSchema, *former: TableSchema) -> None:
        self.made, self.schema, self.former = made, now, former
        self.snapshot_id, self.name = 1, "shop.orders"

    def __str__(self) -> str:
        return self.name

    def schema_at(self, _: int) -> TableSchema:
        """That of its snapshot."""
        return self.made

    def former_schemas(self) -> tuple[TableSchema, ...]:
        """All that it had."""
        return self.former


INT, TEXT, LONG = pa.int32(), pa.string(), pa.int64()


@pytest.mark.parametrize(
    ("made", "now", "former", "wanted"),
    [
        (schema(id=INT), schema(id=INT, a=TEXT), [], {"id": INT, "a": TEXT}),
        (schema(id=INT, a=INT), schema(id=INT, a=TEXT), [], {"id": INT, "a": INT}),
        (schema(id=INT, a=INT), schema(id=INT, c=INT), [schema(id=INT, b=INT)], {"id": INT, "b": INT}),
        (schema(id=INT), schema(id=INT), [schema(id=LONG)], {"id": LONG}),
        (schema(id=LONG, a=TEXT, own=INT), schema(id=LONG, a=TEXT, own=INT), [], {"a": TEXT, "id": INT}),
    ],
)
def test_the_columns_are_those_of_the_moment(
    made: TableSchema, now: TableSchema, former: list[TableSchema], wanted: dict[str, pa.DataType]
) -> None:
    """Before a DDL that came later, behind one that made no snapshot, and without columns that the upstream lacks."""
    held: Any = Held(made, now, *former)

    found = columns_at(held, schemas_at(held, 1, is_shown=False), pa.schema(list(wanted.items())))

    assert [field.name for field in found.fields] == found.arrow.names == list(wanted)
    assert [field.arrow for field in found.fields] in ([*wanted.values()], [TEXT, LONG])


def test_a_table_that_shows_a_snapshot_now_has_its_own_columns() -> None:
    """A column that another writer dropped is in the schema of the snapshot, and no reader sees it."""
    held: Any = Held(schema(id=INT, a=INT), schema(id=INT), schema(id=INT, a=INT))
    wanted = pa.schema({"id": INT, "a": INT})

    assert columns_at(held, schemas_at(held, 1, is_shown=False), wanted).arrow.names == ["id", "a"]
    with pytest.raises(ColumnMissing, match=r"Table shop\.orders has no column a, which the other side has\."):
        columns_at(held, schemas_at(held, 1, is_shown=True), wanted)


def held_as(number: int, **ids: int) -> TableSchema:
    """A schema of an id whose columns, all of them numbers, have these ids."""
    fields = [{"id": own, "name": name, "type": "int", "required": False} for name, own in ids.items()]
    return TableSchema.parse(json.dumps({"type": "struct", "schema-id": number, "fields": fields}))


def test_a_column_that_came_back_under_its_name_is_not_guessed() -> None:
    """Its rows would be those of the column of before; one that came back earlier, or stayed, is known."""
    first, without, second = held_as(0, id=1, a=2), held_as(1, id=1), held_as(2, id=1, a=3)
    later = held_as(3, id=1, a=3, b=4)
    wanted = pa.schema({"id": INT, "a": INT})
    ahead: Any = Held(first, second, second, without, first)
    before: Any = Held(second, later, later, second, without, first)

    with pytest.raises(TableMismatch, match=r"Column a of table shop\.orders was made anew near") as error:
        columns_at(ahead, schemas_at(ahead, 1, is_shown=False), wanted)
    assert error.value.hint == "Give the command again once `applier run -c FILE` has gone on."
    assert not isinstance(error.value, ColumnMissing)
    assert [field.id for field in columns_at(ahead, schemas_at(ahead, 1, is_shown=True), wanted).fields] == [1, 3]
    assert [field.id for field in columns_at(before, schemas_at(before, 1, is_shown=False), wanted).fields] == [1, 3]
    other = columns_at(ahead, schemas_at(ahead, 1, is_shown=False), pa.schema({"id": INT}))
    assert [field.id for field in other.fields] == [1]


def test_a_column_that_is_missing_is_a_difference() -> None:
    """One of another type is only refused."""
    held: Any = Held(schema(id=INT), schema(id=INT))

    with pytest.raises(ColumnMissing, match=r"Table shop\.orders has no column a, b, which the other side has\."):
        columns_at(held, [held.schema], pa.schema({"id": INT, "a": INT, "b": INT}))
    with pytest.raises(TableMismatch, match=r"Column id of table shop\.orders is int and cannot hold upstream values"):
        columns_at(held, [held.schema], pa.schema({"id": TEXT}))


def test_two_tables_have_the_same_types() -> None:
    """As their values could not be compared otherwise."""
    own: Any = Held(schema(id=INT), schema(id=INT))
    other: Any = Held(schema(id=LONG), schema(id=LONG))

    with pytest.raises(TableMismatch, match="Column id is int in table shop.orders, and long in table shop.orders."):
        OtherTable(other, frozenset()).prepared(TableName("shop", "orders"), own, [own.schema], TypeRules())


def test_a_column_that_one_of_two_tables_has_is_a_difference() -> None:
    """Whichever of them it is: a comparison of the others alone would call them equal."""
    short: Any = Held(schema(id=INT), schema(id=INT))
    long: Any = Held(schema(id=INT, a=INT, b=INT), schema(id=INT, a=INT, b=INT))
    name = TableName("shop", "orders")
    short.name, long.name = "copies.short", "copies.long"

    with pytest.raises(ColumnMissing, match=r"Table copies\.short has no column a, b, which table copies\.long has\."):
        OtherTable(long, frozenset()).prepared(name, short, [short.schema], TypeRules())
    with pytest.raises(ColumnMissing, match=r"Table copies\.short has no column a, b, which table copies\.long has\."):
        OtherTable(short, frozenset()).prepared(name, long, [long.schema], TypeRules())


@pytest.mark.parametrize(
    ("given", "is_one"),
    [("tidb", False), ("", False), ("/a.b/c", False), ("s3://a.b", False), ("a.b", True), ("docs", False)],
)
def test_a_table_is_known_by_its_dots(given: str, is_one: bool) -> None:
    """Addresses have slashes, and a folder that is there is one."""
    assert is_table(given) is is_one


def test_a_table_of_which_no_column_is_compared_is_not_equal() -> None:
    """Such as one of FLOAT alone beside an export: neither its rows nor their number would be seen."""
    held: Any = Held(schema(a=pa.float32()), schema(a=pa.float32()))

    with pytest.raises(TableMismatch, match="No column of table shop.orders can be compared."):
        columns_at(held, [held.schema], pa.schema([]))
