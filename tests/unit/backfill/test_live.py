"""Tables that are brought forward alone: `run` must be able to tell what they have."""

from __future__ import annotations

import pytest

from applier.backfill.live import refuse_bags
from applier.changefeed.table import Column, ColumnType, TableName, TableVersion
from applier.changefeed.tracker import Tables
from applier.errors import RangeRefused

BAG, KEYED = TableName("shop", "log"), TableName("shop", "orders")
_COLUMNS = (Column("id", ColumnType("int")),)
TABLES = Tables([TableVersion(BAG, 1, _COLUMNS), TableVersion(KEYED, 1, _COLUMNS, handle_key=("id",))])


def test_a_table_without_a_key_is_refused_in_offset_order() -> None:
    """Its rows would be there twice after the next run; the sentence says how to get them."""
    with pytest.raises(RangeRefused, match=r"Table shop.log has no key, and in offset order .*Hint: give the range"):
        refuse_bags(TABLES, [KEYED, BAG], ordered=False)


@pytest.mark.parametrize(("names", "ordered"), [([KEYED], False), ([KEYED, BAG], True), ([], False)])
def test_tables_of_which_something_tells_what_they_have_are_taken(names: list[TableName], ordered: bool) -> None:
    """A key lets a row take its own place, a stamp lets it be left out, and all tables together move the checkpoint."""
    refuse_bags(TABLES, names, ordered=ordered)
