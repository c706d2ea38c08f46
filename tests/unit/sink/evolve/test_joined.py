"""Columns of a table whose value schemas come in no order that their ids show: Avro without DDL messages."""

from __future__ import annotations

from applier.changefeed.table import Column, ColumnType, TableName, TableVersion
from applier.decode.avro.decoder import row_version
from applier.sink.evolve.row_columns import is_older, joined


def version(value_id: int, *names: str) -> TableVersion:
    """A version of a value schema under the key schema of id 1."""
    columns = tuple(Column(name, ColumnType("int")) for name in names)
    schemas = ((1, 11), (value_id, 10 + value_id))
    return TableVersion(TableName("s", "t"), row_version(1, value_id), columns, handle_key=("id",), schemas=schemas)


def names(table: TableVersion) -> list[str]:
    """Its columns."""
    return [column.name for column in table.columns]


def test_a_table_that_returns_to_a_former_schema_gets_its_column_back() -> None:
    """DROP b, then ADD b: the registry gives the old id again, whose rows hold b."""
    whole, less = version(2, "id", "a", "b"), version(3, "id", "a")

    table = joined(whole, less)

    assert names(table) == ["id", "a", "b"]
    assert table.version not in (whole.version, less.version)


def test_no_schema_that_was_met_takes_a_column_away_again() -> None:
    """Whether rows of either lag behind is not known; only a schema that is newer than both shows the table."""
    table = joined(version(2, "id", "a", "b"), version(3, "id", "a"))

    assert is_older(version(2, "id", "a", "b"), table)
    assert is_older(version(3, "id", "a"), table)
    assert not is_older(version(4, "id", "a"), table)
    assert names(joined(version(3, "id", "a"), table)) == ["id", "a", "b"]


def test_several_former_schemas_join() -> None:
    """Each adds what only it has, and the newest id still counts."""
    table = joined(version(2, "id", "c"), joined(version(3, "id", "b"), version(5, "id", "a")))

    assert names(table) == ["id", "a", "b", "c"]
    assert is_older(version(4, "id"), table)
    assert not is_older(version(6, "id"), table)
    assert TableVersion.from_json(table.to_json()).schemas == table.schemas


def test_an_older_schema_without_columns_of_its_own_changes_nothing() -> None:
    """Its rows are filled up as those from before the column."""
    table = version(3, "id", "a")

    assert joined(version(2, "id"), table) is table
