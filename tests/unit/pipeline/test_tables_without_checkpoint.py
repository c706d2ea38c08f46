"""Tables that a step has made which died before its checkpoint: the next one may have read more of their rows."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest

from applier.changefeed.table import Column, ColumnType, TableName, TableVersion
from applier.changefeed.types import TypeRules
from applier.config.tables import TablesSection
from applier.pipeline.schema_changes import follow_rows
from applier.pipeline.tables.table_maker import TableMaker

NAME = TableName("shop", "t")


def _version(number: int, **columns: str) -> TableVersion:
    shown = [("id", "int"), *columns.items()]
    return TableVersion(NAME, number, tuple(Column(name, ColumnType(kind)) for name, kind in shown), handle_key=("id",))


OLD, NEW = _version(1, v="int"), _version(2, v="bigint", h="varchar")


@pytest.mark.parametrize(
    ("held", "is_stamped", "made"),
    [
        ({"id": pa.int32(), "v": pa.int32()}, True, {NAME: OLD}),
        ({"id": pa.int32(), "v": pa.int64(), "h": pa.string()}, True, {}),
        ({"id": pa.int32(), "v": pa.int32()}, False, {}),
        (None, False, {}),
    ],
    ids=["older columns", "the columns of its rows", "a table of others", "no table"],
)
def test_a_table_that_no_checkpoint_knows_is_followed_from_the_columns_that_it_has(
    held: dict[str, pa.DataType] | None, is_stamped: bool, made: dict[TableName, TableVersion]
) -> None:
    """Taken for one that its newest rows have made, it would have no place for their columns, and be parked."""
    fields = [SimpleNamespace(name=name, arrow=kind) for name, kind in (held or {}).items()]
    schema = SimpleNamespace(upstream=fields, field=lambda name: next((f for f in fields if f.name == name), None))
    table = SimpleNamespace(schema=schema)
    writer = None if held is None else SimpleNamespace(known=object() if is_stamped else None, table=table)
    maker = TableMaker(cast("Any", None), TablesSection(), TypeRules())
    targets = cast("Any", SimpleNamespace(writer=lambda _: writer, maker=maker))
    state = cast("Any", SimpleNamespace(versions={(NAME, each.version): each for each in (OLD, NEW)}))

    assert follow_rows.made({NAME: NEW}, state, targets) == made
