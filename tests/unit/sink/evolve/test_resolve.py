"""What the steps of an evolution become on a certain Iceberg table, without the table."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import cast

import pyarrow as pa
import pytest

from applier.changefeed.table import ColumnType as T
from applier.config.table_layout import PartitionField, sort_fields
from applier.errors import TableMismatch
from applier.sink.evolve.resolve import KEY, Resolution, TableBefore
from applier.sink.evolve.rewrite import LiveRows, ValueSource
from applier.sink.evolve.steps import (
    AddField,
    ConvertField,
    DescribeField,
    DescribeTable,
    DropField,
    EvolutionStep,
    MoveField,
    PromoteField,
    RelaxField,
    RenameField,
    SetKey,
    Truncate,
)
from applier.sink.format.types import Field, TableSchema, schema_json

NONE = pa.scalar(None, pa.string())
FIVE = pa.scalar(5, pa.int32())
RETYPED = ConvertField("qty", T("int"), T("varchar"), pa.int32(), pa.string())
WIDENED = ConvertField("qty", T("int"), T("bigint"), pa.int32(), pa.int64())


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows that a test describes.

    Attributes:
        count: How many there are.
        nulls: Columns that hold a NULL.
        changed: Columns whose values a cast changes.
        spec_ids: Partition specs of their files.
    """

    count: int = 3
    nulls: frozenset[str] = frozenset()
    changed: frozenset[str] = frozenset()
    spec_ids: frozenset[int] = frozenset({0})

    def has_null(self, field: Field) -> bool:
        """See `LiveRows`."""
        return field.name in self.nulls

    def are_changed(self, field: Field, step: ConvertField) -> bool:
        """See `LiveRows`."""
        del step
        return field.name in self.changed


def schema(kinds: Mapping[str, pa.DataType], *key: str) -> TableSchema:
    """Columns, numbered from 1."""
    columns = pa.schema([pa.field(name, kind) for name, kind in kinds.items()])
    return TableSchema.parse(schema_json(columns, key))


COLUMNS = schema({"id": pa.int64(), "qty": pa.int32(), "note": pa.string()}, "id")
BEFORE = TableBefore("lake.shop.orders", 3, COLUMNS, {2: "how many"})


def resolved(*steps: EvolutionStep, before: TableBefore = BEFORE, rows: Rows = Rows()) -> Resolution:
    """The steps on the table."""
    return Resolution(before, steps, cast("LiveRows", rows))


def test_metadata_is_enough_for_what_iceberg_can_express() -> None:
    """Each step becomes its schema change: drops and renames first, then the others, by the new names."""
    steps = (
        DropField("note"),
        RenameField("qty", "amount"),
        AddField("c", pa.int32(), FIVE, "why"),
        replace(WIDENED, name="amount"),
        DescribeField("amount", "all"),
        MoveField("c", "id"),
    )
    found = resolved(*steps)
    drops, changes, identity = found.updates
    assert drops == steps[:2]
    assert changes == (steps[2], PromoteField("amount", pa.int64()), *steps[4:])
    assert (identity, found.sort, found.rewrites, found.properties) == ((), None, False, {})


def test_what_the_table_is_already_is_no_change() -> None:
    """A field that is dropped, optional or wide already stays, as after a statement that was applied by hand."""
    steps = (DropField("gone"), RelaxField("qty"), PromoteField("qty", pa.int32()))
    assert resolved(*steps).updates == ((), (), ())
    assert resolved(RelaxField("id")).updates == ((), (RelaxField("id"),), ())


def test_a_field_of_a_type_that_cannot_be_promoted_is_made_anew() -> None:
    """It comes back at its place with its comment, and every row is written."""
    found = resolved(RETYPED)
    made = AddField("qty", pa.string(), NONE, "how many")
    assert found.updates == ((), (DropField("qty"), made, MoveField("qty", "id")), ())
    assert found.rewrites
    assert resolved(RETYPED, DescribeField("qty", "text")).updates[1][1] == AddField("qty", pa.string(), NONE, "text")
    assert not resolved(RETYPED, rows=Rows(0)).rewrites


def test_a_field_that_can_be_promoted_is_made_anew_if_a_value_changes() -> None:
    """Values decide where the type does not."""
    assert resolved(WIDENED).updates[1] == (PromoteField("qty", pa.int64()),)
    found = resolved(WIDENED, rows=Rows(changed=frozenset({"qty"})))
    assert found.updates[1][0] == DropField("qty")
    assert found.rewrites


def test_truncated_rows_are_not_written_anew() -> None:
    """A statement that empties the table needs no value of it."""
    found = resolved(RETYPED, AddField("c", pa.int32(), FIVE), Truncate(), before=TableBefore("t", 2, COLUMNS))
    assert (found.truncates, found.rewrites) == (True, False)


@pytest.mark.parametrize(
    ("version", "default", "is_kept"),
    [(3, FIVE, True), (2, FIVE, False), (3, pa.scalar([1.0], pa.list_(pa.float32())), False)],
)
def test_a_default_that_iceberg_does_not_keep_is_written(version: int, default: pa.Scalar, is_kept: bool) -> None:  # type: ignore[type-arg]
    """Format version 2 has no defaults, and version 3 none of a nested type."""
    step = AddField("c", default.type, default)
    found = resolved(step, before=TableBefore("t", version, COLUMNS))
    (added,) = found.updates[1]
    assert isinstance(added, AddField)
    assert added.default.is_valid is is_kept
    assert found.rewrites is not is_kept
    made = replace(schema({"c": default.type}).fields[0], id=9)
    assert found.sources(replace(COLUMNS, fields=(made,))) == [ValueSource(made, constant=default)]


def test_values_come_from_where_they_were() -> None:
    """After the updates, which number new fields, each field has its old field, a cast of it, or a constant."""
    found = resolved(RETYPED, AddField("c", pa.int32(), FIVE))
    texts: dict[str, pa.DataType] = {
        "id": pa.int64(),
        "x": pa.null(),
        "note": pa.string(),
        "qty": pa.string(),
        "c": pa.int32(),
    }
    numbered = {field.name: field for field in schema(texts).fields}
    after = [numbered[name] for name in ("id", "note", "qty", "c")]
    id_, qty, note = COLUMNS.fields
    assert found.sources(TableSchema(1, tuple(after), (), COLUMNS.arrow)) == [
        ValueSource(after[0], id_),
        ValueSource(after[1], note),
        ValueSource(after[2], qty, RETYPED),
        ValueSource(after[3], constant=FIVE),
    ]


def test_a_key_identifies_rows_if_it_can() -> None:
    """The former identity goes first. A key with a NULL or a float is only named."""
    for step, rows, identity in [
        (SetKey(("qty",)), Rows(), (SetKey(("qty",)),)),
        (SetKey(("qty",)), Rows(nulls=frozenset({"qty"})), ()),
        (SetKey(("qty",)), Rows(0, frozenset({"qty"})), (SetKey(("qty",)),)),
        (SetKey(()), Rows(), ()),
    ]:
        found = resolved(step, rows=rows)
        assert found.updates == ((SetKey(()),), (), identity)
        assert found.properties == {KEY: json.dumps(step.columns)}
    floats = TableBefore("t", 3, schema({"id": pa.float64()}))
    assert resolved(SetKey(("id",)), before=floats).updates[2] == ()
    assert resolved(SetKey(("c",)), AddField("c", pa.string(), NONE)).updates[2] == ()
    assert resolved(SetKey(("c",)), AddField("c", pa.int32(), FIVE)).updates[2] == (SetKey(("c",)),)


def test_an_identifier_that_is_made_anew_identifies_again() -> None:
    """Iceberg refuses to drop an identifier field."""
    before = TableBefore("t", 3, schema({"qty": pa.int32(), "note": pa.string()}, "qty"))
    found = resolved(RETYPED, before=before)
    assert (found.updates[0], found.updates[2]) == ((SetKey(()),), (SetKey(("qty",)),))
    assert MoveField("qty", None) in found.updates[1]


def test_a_sort_order_follows_its_columns() -> None:
    """It is taken away while a column of it is, and comes back without the columns that are gone."""
    before = TableBefore("t", 3, COLUMNS, sort=sort_fields(("id", "qty desc", "note")))
    assert resolved(RenameField("qty", "amount"), before=before).sort is None
    assert resolved(RETYPED, before=before).sort == before.sort
    assert resolved(DropField("note"), RenameField("qty", "amount"), before=before).sort == sort_fields(
        ("id", "amount desc")
    )


def test_a_partition_goes_with_its_column() -> None:
    """A column that is made anew partitions again if its type allows; files in partitions that go are written anew."""
    day, qty = PartitionField("note", "truncate[2]"), PartitionField("qty", "truncate[5]")
    before = TableBefore("t", 3, COLUMNS, partition={"n": day, "q": qty}, specs={0: ["note"], 1: ["note", "qty"]})
    retyped, dropped = resolved(RETYPED, before=before), resolved(DropField("note"), before=before)
    assert (retyped.unpartitioned, retyped.repartitioned) == (("q",), (qty,))
    assert (dropped.unpartitioned, dropped.repartitioned, dropped.rewrites) == (("n",), (), True)
    assert not resolved(DropField("qty"), before=before).rewrites
    assert resolved(RenameField("qty", "amount"), before=before).unpartitioned == ()


def test_a_table_that_is_not_as_upstream_is_refused() -> None:
    """A column that is missing, or of another type, is named."""
    with pytest.raises(TableMismatch, match=r"lake\.shop\.orders has no column size, which its upstream table changes"):
        resolved(PromoteField("size", pa.int64()))
    with pytest.raises(TableMismatch, match="Column note of table lake.shop.orders is string, upstream it was int32"):
        resolved(ConvertField("note", T("int"), T("bigint"), pa.int32(), pa.int64()))


def test_a_comment_of_a_table_is_a_property() -> None:
    """Iceberg has no other place for it."""
    assert resolved(DescribeTable("all orders")).properties == {"comment": "all orders"}
