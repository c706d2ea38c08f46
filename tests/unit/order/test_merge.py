"""Parts of several tasks become one batch: the last change of each key over all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from applier.changefeed.event import Op, RowChange
from applier.changefeed.message import Position
from applier.order.merge import merge_bag, merge_keyed
from applier.order.reduce import KEYLESS_SCHEMA, KeyedGroup
from tests.builders import ACCOUNT, upsert, version

TABLE = version(("id", "bigint"), ("v", "int"))


def columns_of(rows: Sequence[Sequence[Any]], schema: pa.Schema) -> pa.Table:
    """Rows as a table."""
    columns = zip(*rows, strict=True)
    arrays = [pa.array(list(values), kind) for values, kind in zip(columns, schema.types, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def part(rows: KeyedGroup) -> pa.Table:
    """A reduced group as the row pass hands it back."""
    table, values = rows.columns()
    for name in ("id", "v"):
        table = table.append_column(name, pa.array(values.get(name, [None] * len(table)), pa.int64()))
    return table


def batch_of(changes: list[tuple[int, RowChange]], tasks: int) -> tuple[dict[Any, Any], set[Any], set[Any]]:
    """(upserts, fresh keys, deleted keys) when partitions are spread over tasks."""
    groups = [KeyedGroup(TABLE) for _ in range(tasks)]
    for offset, (partition, change) in enumerate(changes):
        groups[partition % tasks].add(change, Position(partition, offset, 0))
    batch = merge_keyed([rows for rows in map(part, groups) if len(rows)], ("id",))
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

    batch = merge_keyed([rows for rows in map(part, groups) if len(rows)], ("id",))

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


class Sent(NamedTuple):
    """A row that a change of a bag adds or takes away, and where its message was read."""

    ts: int
    offset: int
    value: int | None = 1
    present: bool = True
    partition: int = 0
    run: int = 0
    replay: bool = False


def bag_part(*rows: Sent) -> pa.Table:
    """A part of a bag."""
    meta = [(row.ts, row.present, row.partition, row.offset, 0, row.replay, row.run, Op.INSERT) for row in rows]
    table = columns_of(meta, KEYLESS_SCHEMA)
    return table.append_column("a", pa.array([row.value for row in rows], pa.int32()))


def changed(*parts: pa.Table, by_place: bool = False) -> tuple[list[int | None], list[int | None]]:
    """Rows that parts of a bag add and take away."""
    batch = merge_bag(parts, by_place=by_place)
    return batch.inserts["a"].to_pylist(), batch.deletes["a"].to_pylist()


def replaced(ts: int, offset: int, old: int, new: int, partition: int = 0, run: int = 0) -> tuple[Sent, Sent]:
    """An update: both halves have the place of its message."""
    return Sent(ts, offset, old, False, partition, run), Sent(ts, offset, new, True, partition, run)


def test_bag_nets_rows_that_come_and_go() -> None:
    """A row added and removed inside a batch is neither added nor removed; NULL equals NULL."""
    rows = Sent(5, 0), Sent(5, 1), Sent(6, 2, present=False), Sent(7, 3, None, present=False)

    assert changed(bag_part(*rows)) == ([1], [None])


def test_bag_with_nothing_left_is_empty() -> None:
    """A row that came and went leaves neither inserts nor deletes."""
    assert changed(bag_part(Sent(5, 0), Sent(6, 1, present=False))) == ([], [])


def test_bag_keeps_equal_rows_of_one_transaction() -> None:
    """Two equal rows of one commit ts are two rows."""
    assert changed(bag_part(Sent(5, 0), Sent(5, 1))) == ([1, 1], [])


def test_bag_drops_a_run_sent_again() -> None:
    """After a restart the same run comes again in its partition, parted by rows that need not be due."""
    first, again = (Sent(5, 0, run=1), Sent(5, 1, run=1)), (Sent(5, 3, run=3), Sent(5, 4, run=3))

    assert changed(bag_part(*first, *again)) == ([1, 1], [])
    assert changed(bag_part(*first, *again[:1])) == ([1, 1], [])
    assert changed(bag_part(*first[:1], *again)) == ([1, 1], [])


@pytest.mark.parametrize("parts", [1, 2])
def test_bag_drops_a_run_sent_again_to_another_partition(parts: int) -> None:
    """The topic grew, and TiCDC restarted: a run that the end of a session cut short does not count, wherever it is."""
    cut, whole = [Sent(5, 7, run=4)], [Sent(5, 0, partition=2, run=1), Sent(5, 1, partition=2, run=1)]
    deletes = Sent(6, 8, 9, present=False, run=5), Sent(6, 2, 9, present=False, partition=2, run=2)
    cut.append(deletes[0])
    whole.append(deletes[1])

    rows = [bag_part(*cut), bag_part(*whole)] if parts == 2 else [bag_part(*cut, *whole)]
    assert changed(*rows) == ([1, 1], [9])


def test_bag_counts_each_change_where_it_comes_most_often() -> None:
    """Rows that are placed by their values: before the topic grew, and after."""
    before = Sent(5, 0, 1), Sent(5, 1, 1), Sent(5, 2, 2), Sent(5, 0, 3, partition=1)
    after = Sent(5, 3, 1, run=2), Sent(5, 0, 2, partition=2), Sent(5, 1, 3, partition=2), Sent(5, 4, 4, run=2)

    inserts, deletes = changed(bag_part(*before, *after))
    assert (Counter(inserts), deletes) == (Counter({1: 2, 2: 1, 3: 1, 4: 1}), [])


def test_bag_counts_both_halves_of_an_update_as_one_change() -> None:
    """Two equal rows become two different ones, which lie in two partitions: no row was sent again."""
    both = *replaced(5, 0, old=1, new=2), *replaced(5, 0, old=1, new=3, partition=1)

    assert changed(bag_part(*both)) == ([2, 3], [1, 1])
    assert changed(bag_part(*both, *replaced(5, 0, old=1, new=3, partition=2))) == ([2, 3], [1, 1])


def test_bag_drops_a_run_sent_again_to_another_topic() -> None:
    """Two topics have partitions and offsets of the same numbers."""
    assert changed(bag_part(Sent(5, 0, run=1)), bag_part(Sent(5, 0, run=1))) == ([1], [])


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize(("ts", "count"), [(0, 2), (7 << 18, 2), ((7 << 18) + 1, 1)])
def test_bag_in_offset_order_counts_a_millisecond_in_each_partition(ts: int, count: int, parts: int) -> None:
    """Two transactions may share it, and dispatcher `ts` parts them: no message shows that one was sent again."""
    inserts = Sent(ts, 0, run=1), Sent(ts, 0, partition=1, run=1), Sent(ts, 2, partition=1, run=3)
    update = replaced(ts, 5, old=2, new=3, run=1), replaced(ts, 5, old=2, new=3, partition=1, run=1)

    shares = [bag_part(*inserts[:1], *update[0]), bag_part(*inserts[1:], *update[1])]
    added, removed = changed(*shares if parts == 2 else [pa.concat_tables(shares)], by_place=True)
    assert (Counter(added), removed) == (Counter({1: count, 3: count}), [2] * count)


def test_bag_drops_what_its_partition_had_resolved() -> None:
    """A row at or below a resolved ts read before it was sent before."""
    assert changed(bag_part(Sent(5, 0), Sent(5, 2, replay=True))) == ([1], [])


@st.composite
def sessions(draw: st.DrawFn) -> tuple[Counter[int], list[pa.Table]]:
    """The changes of one commit ts, and sessions that each place them anew by their values; the first is whole."""
    changes = draw(st.lists(st.integers(0, 3), min_size=1, max_size=6))
    ends = dict.fromkeys(range(4), 0)
    parts = []
    for run in range(draw(st.integers(1, 3))):
        placed = draw(st.lists(st.integers(0, 3), min_size=4, max_size=4))
        sent = draw(st.permutations(changes))
        rows = []
        for value in sent if run == 0 else sent[: draw(st.integers(0, len(sent)))]:
            partition = placed[value]
            rows.append(Sent(5, ends[partition], value, partition=partition, run=run))
            ends[partition] += 1
        parts.append(rows)
    tasks = draw(st.integers(1, 2))
    every = [row for rows in draw(st.permutations(parts)) for row in rows]
    shares = [[row for row in every if row.partition % tasks == task] for task in range(tasks)]
    return Counter(changes), [bag_part(*share) for share in shares if share]


@given(sessions())
def test_bag_is_the_same_however_often_and_wherever_it_is_sent(drawn: tuple[Counter[int], list[pa.Table]]) -> None:
    """One session sent all: what others sent of it, to whatever partitions, changes nothing."""
    wanted, parts = drawn
    inserts, deletes = changed(*parts)

    assert (Counter(inserts), deletes) == (wanted, [])
