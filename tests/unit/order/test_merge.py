"""Parts of several tasks become one batch: the last change of each key over all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from applier.changefeed.event import Op, RowChange
from applier.changefeed.message import Position
from applier.order.merge import DATA, merge_bag, merge_keyed
from applier.order.reduce import KEYED_SCHEMA, KEYLESS_SCHEMA, KeyedGroup
from tests.builders import ACCOUNT, upsert, version

TABLE = version(("id", "bigint"), ("v", "int"))


def columns_of(rows: Sequence[Sequence[Any]], schema: pa.Schema) -> pa.Table:
    """Rows as a table."""
    columns = zip(*rows, strict=True)
    arrays = [pa.array(list(values), kind) for values, kind in zip(columns, schema.types, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def part(rows: KeyedGroup) -> pa.Table:
    """A reduced group as the row pass hands it back."""
    survivors = list(rows.survivors.values())
    meta = [[s.first_ts, s.first_op, s.ts, s.present, *s.position] for s in survivors]
    table = columns_of(meta, KEYED_SCHEMA)
    for name in ("id", "v"):
        table = table.append_column(DATA + name, pa.array([s.image.get(name) for s in survivors], pa.int64()))
    return table


def batch_of(changes: list[tuple[int, RowChange]], tasks: int) -> tuple[dict[Any, Any], set[Any], set[Any]]:
    """(upserts, fresh keys, deleted keys) when partitions are spread over tasks."""
    groups = [KeyedGroup(TABLE) for _ in range(tasks)]
    for offset, (partition, change) in enumerate(changes):
        groups[partition % tasks].add(change, Position(partition, offset, 0))
    batch = merge_keyed([part(rows) for rows in groups if rows.survivors], ("id",))
    upserts = {row["id"]: row["v"] for row in batch.upserts.to_pylist()}
    fresh = {row["id"] for row, new in zip(batch.upserts.to_pylist(), batch.fresh.to_pylist(), strict=False) if new}
    return upserts, fresh, {row["id"] for row in batch.deletes.to_pylist()}


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[int, RowChange]]:
    """Changes of a table that are possible in a database, spread over partitions, in any order, some twice."""
    live = set(draw(st.sets(st.integers(0, 3))))
    changes = []
    for ts in range(1, draw(st.integers(1, 12)) + 1):
        key = draw(st.integers(0, 4))
        row = {"id": key, "v": ts}
        if key not in live:
            changes.append(RowChange(ACCOUNT, 1, ts, Op.INSERT, None, row))
            live.add(key)
        elif draw(st.booleans()):
            changes.append(RowChange(ACCOUNT, 1, ts, Op.UPDATE, {"id": key}, row))
        else:
            changes.append(RowChange(ACCOUNT, 1, ts, Op.DELETE, {"id": key}, None))
            live.discard(key)
    placed = [(draw(st.integers(0, 3)), change) for change in changes]
    again = draw(st.lists(st.sampled_from(placed), max_size=4))
    return draw(st.permutations(placed + again))


@given(histories(), st.integers(1, 4))
def test_any_spread_order_and_duplication_gives_the_same_batch(
    history: list[tuple[int, RowChange]], tasks: int
) -> None:
    """Partitions, reading order, duplicates and the number of tasks do not matter."""
    last: dict[Any, RowChange] = {}
    first: dict[Any, RowChange] = {}
    for _, change in sorted(history, key=lambda item: item[1].commit_ts):
        key = (change.after or change.before or {})["id"]
        first.setdefault(key, change)
        last[key] = change

    upserts, fresh, deletes = batch_of(history, tasks)

    assert upserts == {key: change.after["v"] for key, change in last.items() if change.after}
    assert fresh == {key for key in upserts if first[key].op is Op.INSERT}
    gone = {key for key, change in last.items() if change.after is None}
    assert deletes == {key for key in gone if first[key].op is not Op.INSERT}


@given(histories(), st.integers(1, 4))
def test_keys_that_may_be_new_are_counted(history: list[tuple[int, RowChange]], tasks: int) -> None:
    """Of a feed that does not show what is an INSERT no key is fresh; those that begin with an upsert may be new."""
    blind = [
        (partition, upsert(change.commit_ts, **change.after) if change.op is Op.INSERT and change.after else change)
        for partition, change in history
    ]
    groups = [KeyedGroup(TABLE) for _ in range(tasks)]
    for offset, (partition, change) in enumerate(blind):
        groups[partition % tasks].add(change, Position(partition, offset, 0))
    first: dict[Any, RowChange] = {}
    for _, change in sorted(blind, key=lambda item: item[1].commit_ts):
        first.setdefault((change.after or change.before or {})["id"], change)

    batch = merge_keyed([part(rows) for rows in groups if rows.survivors], ("id",))

    assert batch.may_be_new == sum(change.op is Op.UPSERT for change in first.values())
    assert not any(batch.fresh.to_pylist())
    assert batch.upserts.num_rows + batch.deletes.num_rows == len(first)


@pytest.mark.parametrize(("ts", "upserts"), [(7 << 18, [1]), ((7 << 18) + 1, [1, 2])])
def test_raw_updates_that_exchange_keys_in_offset_order(ts: int, upserts: list[int]) -> None:
    """Each deletes the key that the other one writes: an exact commit ts tells that both rows are there afterwards."""
    groups = [KeyedGroup(TABLE, by_place=True) for _ in range(2)]
    for partition, (old, new) in enumerate(((1, 2), (2, 1))):
        change = RowChange(ACCOUNT, 1, ts, Op.UPDATE, {"id": old, "v": 0}, {"id": new, "v": 1})
        groups[partition].add(change, Position(partition, 0, 0))

    batch = merge_keyed([part(rows) for rows in groups], ("id",), by_place=True)

    assert sorted(row["id"] for row in batch.upserts.to_pylist()) == upserts


def bag_part(*events: tuple[int, bool, int, int | None]) -> pa.Table:
    """A part of a bag from (ts, present, offset, value)."""
    meta = [(ts, present, 0, offset, 0, False, 0) for ts, present, offset, _ in events]
    table = columns_of(meta, KEYLESS_SCHEMA)
    return table.append_column(DATA + "a", pa.array([value for *_, value in events], pa.int32()))


def test_bag_nets_rows_that_come_and_go() -> None:
    """A row added and removed inside a batch is neither added nor removed; NULL equals NULL."""
    batch = merge_bag([bag_part((5, True, 0, 1), (5, True, 1, 1), (6, False, 2, 1), (7, False, 3, None))])

    assert batch.inserts.to_pylist() == [{"a": 1}]
    assert batch.deletes.to_pylist() == [{"a": None}]


def test_bag_with_nothing_left_is_empty() -> None:
    """A row that came and went leaves neither inserts nor deletes."""
    batch = merge_bag([bag_part((5, True, 0, 1), (6, False, 1, 1))])

    assert (batch.inserts.num_rows, batch.deletes.num_rows) == (0, 0)
