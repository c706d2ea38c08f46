"""Filtered changes: what they make of a table is what the filter admits of the whole, however the changes are cut."""

from __future__ import annotations

import random

import pyarrow as pa

from applier.changefeed.change_batch import ChangeBatch, KeylessBatch
from applier.changefeed.row_filter import RowFilter
from applier.order.admit import admitted

WHERE = RowFilter("v >= 5")
SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])


def _batch(before: dict[int, int], after: dict[int, int]) -> ChangeBatch:
    """What brings a table from one content to another, each key once."""
    changed = {key: value for key, value in after.items() if before.get(key) != value}
    gone = [key for key in before if key not in after]
    upserts = pa.table([list(changed), list(changed.values())], schema=SCHEMA)
    fresh = pa.array([key not in before for key in changed], pa.bool_())
    return ChangeBatch(upserts, fresh, pa.table([gone], schema=SCHEMA.remove(1)))


def test_a_filtered_table_is_the_filter_of_the_table() -> None:
    """Every key that is looked up may be missing, and no fresh one is there."""
    draw = random.Random(3)
    whole: dict[int, int] = {}
    table: dict[int, int] = {}
    for _ in range(300):
        after = {key: draw.randint(0, 9) for key in range(12) if draw.random() < 0.6}
        batch = _batch(whole, after)
        found = admitted(batch, WHERE, "t")
        assert isinstance(found, ChangeBatch)
        sought = found.deletes["k"].to_pylist()
        for row, fresh in zip(found.upserts.to_pylist(), found.fresh.to_pylist(), strict=True):
            assert not (fresh and row["k"] in table)
            sought += [] if fresh else [row["k"]]
            table[row["k"]] = row["v"]
        for row in found.deletes.to_pylist():
            table.pop(row["k"], None)
        assert found.may_be_new == len(sought)
        whole = after
        assert table == {key: value for key, value in whole.items() if value >= 5}


def test_equal_rows_of_a_table_without_a_key_are_admitted_alike() -> None:
    """What is taken away was admitted when it came."""
    rows = pa.table([[1, 1, 2], [7, 7, 4]], schema=SCHEMA)
    found = admitted(KeylessBatch(rows, rows.slice(1)), WHERE, "t")
    assert isinstance(found, KeylessBatch)
    assert found.inserts.to_pylist() == [{"k": 1, "v": 7}] * 2
    assert found.deletes.to_pylist() == [{"k": 1, "v": 7}]
