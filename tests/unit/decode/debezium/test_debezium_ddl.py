"""What the DDL messages of Debezium describe: tables with their full types."""

from __future__ import annotations

import msgspec
import pytest

from applier.changefeed.message import Position
from applier.changefeed.table import ColumnType, TableName
from applier.ddl.actions import RenameTable
from applier.ddl.spelling import Spelling
from applier.decode.debezium.ddl import ColumnChange, TableChange, TableDescription, schema_change, table_version
from applier.errors import DecodeError
from applier.order.barrier import Barrier
from applier.pipeline.scan.statements import Ddl

TS = 470606910877335552
NAME = TableName("shop", "t")


def declared(
    name: str, type_name: str, length: int | None = None, enum_values: list[str] | None = None
) -> ColumnChange:
    """A column with all members that TiCDC writes."""
    return ColumnChange(name, type_name, length, None, True, None, enum_values, None)


def change(*columns: ColumnChange, name: str = '"shop"."t"', key: list[str] | None = None) -> TableChange:
    """A description of a table."""
    return TableChange(name, TableDescription(list(columns), key or []))


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (declared("c", "INT UNSIGNED ZEROFILL", 8), ColumnType("int", unsigned=True, length=8)),
        (declared("c", "TINYINT", 1), ColumnType("tinyint", length=1)),
        (declared("c", "DECIMAL", 10), ColumnType("decimal", length=10, scale=0)),
        (declared("c", "BIT"), ColumnType("bit", length=1)),
        (declared("c", "DATETIME"), ColumnType("datetime", scale=0)),
        (declared("c", "TIMESTAMP", 3), ColumnType("timestamp", scale=3)),
        (
            declared("c", "ENUM", 1, enum_values=["'a''b'", "','", "''"]),
            ColumnType("enum", elements=("a'b", ",", "")),
        ),
        (declared("c", "VARCHAR", 20), ColumnType("varchar", length=20)),
    ],
)
def test_a_described_column_gives_its_full_type(column: ColumnChange, expected: ColumnType) -> None:
    """Lengths, digits and members come as MySQL knows them; `length` of a time type is its fractional digits."""
    version = table_version(NAME, TS, change(column))

    assert version is not None
    assert version.columns[0].type == expected
    assert version.version == TS


@pytest.mark.parametrize(
    ("described_change", "why"),
    [
        (TableChange('"shop"."t"', None), "the table is gone"),
        (change(declared("c", "UNSPECIFIED")), "it is a view"),
        (
            change(declared("c", "INT"), name='"shop"."other"'),
            "it is the table that a partition was exchanged with",
        ),
        (change(declared("c", "INT"), name="?"), "it names no table"),
    ],
)
def test_no_table_is_left_where_none_is_described(described_change: TableChange, why: str) -> None:
    """Only the table that the message is about becomes a version."""
    assert table_version(NAME, TS, described_change) is None, why


def test_a_rename_describes_the_new_name_and_hidden_columns_are_left_out() -> None:
    """`id` names both tables; columns of expression indexes are never in a row."""
    renamed = change(declared("c", "INT"), declared("_V$_idx_0", "INT"), name='"shop"."a.b","shop"."t"', key=["c"])

    version = table_version(NAME, TS, renamed)

    assert version is not None
    assert ([column.name for column in version.columns], version.key) == (["c"], ("c",))


def test_a_rename_is_read_whose_text_leaves_the_former_database_open() -> None:
    """TiCDC's old architecture leaves a statement as it was typed, and `id` names the table before it."""
    described = change(declared("c", "INT"), name='"mart"."T","shop"."t"')

    told = schema_change(NAME, TS, "RENAME TABLE t TO `shop`.`t`", "shop", [described])

    names = Spelling([TableName("mart", "T"), TableName("shop", "T2")])
    ddl = Ddl.of(Barrier(told, "feed", Position(0, 0, 0)), names)
    assert list(ddl.actions) == [RenameTable(TableName("mart", "T"), NAME)]


def test_a_description_without_a_commit_ts_is_refused() -> None:
    """Its number would be that of another version."""
    with pytest.raises(DecodeError, match="is no TSO"):
        table_version(NAME, 5, change(declared("c", "INT")))


@pytest.mark.parametrize("member", ["length", "scale", "optional", "enumValues", "defaultValueExpression"])
def test_a_column_that_lacks_a_member_is_refused(member: str) -> None:
    """TiCDC writes null where there is none: a member that is missing is unknown, and unknown is not 0."""
    column = {"name": "c", "typeName": "DATETIME", "length": None, "scale": None, "optional": True}
    whole = {**column, "defaultValueExpression": None, "enumValues": None, "comment": None}

    assert msgspec.convert(whole, ColumnChange).name == "c"
    with pytest.raises(msgspec.ValidationError, match=f"missing required field `{member}`"):
        msgspec.convert({name: value for name, value in whole.items() if name != member}, ColumnChange)
