"""Which names of columns keep an export from being loaded."""

from __future__ import annotations

import pytest

from applier.changefeed.table import TableName, TableVersion
from applier.errors import ValueRefused
from applier.pipeline.load.loading import refuse_names
from tests.builders import version


def table(*names: str) -> TableVersion:
    """A table whose key is its first column."""
    return version(*((name, "bigint") for name in names), name=TableName("shop", "t"), key=names[:1])


@pytest.mark.parametrize(
    ("loaded", "name"),
    [(table("_Pos", "v"), "_Pos"), (table("_row_id", "v"), "_row_id"), (table("_FILE"), "_FILE")],
)
def test_a_table_whose_keys_spark_cannot_read_is_refused_by_name(loaded: TableVersion, name: str) -> None:
    """The load ends at once for this table alone, instead of asking Spark again and again."""
    with pytest.raises(ValueRefused) as caught:
        refuse_names(loaded)

    assert str(caught.value) == (
        f"Table shop.t cannot be loaded: {name} is a name of Iceberg's own columns to Spark. "
        "Hint: Rename the column upstream and export the table again, or leave the table out in tables.include."
    )


def test_other_columns_of_such_names_are_loaded() -> None:
    """Spark reads none of them for a load."""
    refuse_names(table("id", "_deleted", "_file", "_row_id", "pos", "count"))
