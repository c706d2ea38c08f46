"""Reduced changes of several tasks -> the one batch of a table: a key may sit in several partitions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from applier.changefeed.batch import BagBatch, ChangeBatch
from applier.order.reduce import BagEvent, count_runs

DATA = "c."
"""Prefix of the columns of the table itself in a part, so that no column name can clash with the others."""

KEYED_SCHEMA = pa.schema(
    [
        ("m.first_ts", pa.int64()),
        ("m.fresh", pa.bool_()),
        ("m.ts", pa.int64()),
        ("m.present", pa.bool_()),
        ("m.partition", pa.int32()),
        ("m.offset", pa.int64()),
        ("m.index", pa.int32()),
    ]  # type: ignore[arg-type]  # the stubs know no list of fields of several types
)
"""Columns of a part of a table with a key, beside `c.<column>`; they are the fields of `Survivor`."""

BAG_SCHEMA = pa.schema(
    [
        ("m.ts", pa.int64()),
        ("m.present", pa.bool_()),
        ("m.partition", pa.int32()),
        ("m.offset", pa.int64()),
        ("m.index", pa.int32()),
        ("m.replay", pa.bool_()),
    ]  # type: ignore[arg-type]  # as above
)
"""Columns of a part of a table without a key; they are the fields of `BagEvent`."""


def merge_keyed(
    parts: Sequence[pa.Table], key: Sequence[str], *, by_place: bool = False, exact: bool = True
) -> ChangeBatch:
    """The last change of each key over all parts.

    Args:
        parts: Tables of `KEYED_SCHEMA` and data columns, at most one row per key in each.
        key: Names of the key columns.
        by_place: As in `KeyedGroup`.
        exact: Whether a key that begins with an INSERT cannot be in the table: of rows sent again, or in a table that
            was loaded while the feed ran already, it can.

    Returns:
        The batch; if it is exact, a key that came and went inside it is in neither of its tables.
    """
    rows = pa.concat_tables(parts, promote_options="permissive").combine_chunks()
    if len(parts) > 1:
        rows = _last_per_key(rows, [DATA + name for name in key], by_place=by_place)
    present = rows["m.present"]
    upserts = rows.filter(present)
    gone = rows.filter(pc.and_not(pc.invert(present), rows["m.fresh"]) if exact else pc.invert(present))
    return ChangeBatch(
        upserts=_data(upserts),
        fresh=cast("pa.BooleanArray", upserts["m.fresh"].combine_chunks()),
        deletes=_data(gone).select(list(key)),
    )


def merge_bag(parts: Sequence[pa.Table]) -> BagBatch:
    """What remains of the rows added and removed, once rows sent twice and rows that came and went are left out."""
    rows = pa.concat_tables(parts, promote_options="permissive").combine_chunks()
    data = _data(rows)
    images = [tuple(repr(value) for value in row.values()) for row in data.to_pylist()]
    net: Counter[tuple[str, ...]] = Counter()
    place: dict[tuple[str, ...], int] = {}
    for event in count_runs(_events(rows)):
        row = event.image["row"]
        net[images[row]] += 1 if event.present else -1
        place.setdefault(images[row], row)
    added = [place[image] for image, count in net.items() for _ in range(count)]
    removed = [place[image] for image, count in net.items() for _ in range(-count)]
    return BagBatch(inserts=data.take(pa.array(added, pa.int64())), deletes=data.take(pa.array(removed, pa.int64())))


def _data(rows: pa.Table) -> pa.Table:
    names = [name for name in rows.column_names if name.startswith(DATA)]
    return rows.select(names).rename_columns([name.removeprefix(DATA) for name in names])


def _last_per_key(rows: pa.Table, key: list[str], *, by_place: bool) -> pa.Table:
    distinct = rows.select(key).group_by(key, use_threads=False).aggregate([])
    if distinct.num_rows == rows.num_rows:
        return rows
    place = ["m.index", "m.offset", "m.partition"]
    last = _rank(rows, [*place, "m.ts"] if by_place else [*place, _flag(rows, "m.present"), "m.ts"])
    first = _rank(rows, [_flag(rows, "m.fresh"), "m.first_ts"])
    ranked = rows.select(key).append_column("last", pa.array(last)).append_column("first", pa.array(first))
    chosen = ranked.group_by(key, use_threads=False).aggregate([("last", "max"), ("first", "min")])
    survivors = rows.take(_inverse(last)[chosen["last_max"].to_numpy()])
    earliest = rows["m.fresh"].take(pa.array(_inverse(first)[chosen["first_min"].to_numpy()]))
    return survivors.set_column(survivors.schema.get_field_index("m.fresh"), "m.fresh", earliest)


def _flag(rows: pa.Table, name: str) -> np.ndarray:
    flag: np.ndarray = np.asarray(rows[name].to_numpy(zero_copy_only=False))
    return flag


def _rank(rows: pa.Table, keys: Sequence[str | np.ndarray]) -> np.ndarray:
    arrays = [rows[key].to_numpy() if isinstance(key, str) else key for key in keys]
    return _inverse(np.lexsort(arrays))


def _inverse(permutation: np.ndarray) -> np.ndarray:
    inverse = np.empty_like(permutation)
    inverse[permutation] = np.arange(len(permutation))
    return inverse


def _events(rows: pa.Table) -> list[BagEvent]:
    meta = rows.select(BAG_SCHEMA.names).to_pylist()
    return [
        BagEvent(
            ts=row["m.ts"],
            present=row["m.present"],
            position=(row["m.partition"], row["m.offset"], row["m.index"]),
            replay=row["m.replay"],
            image={"row": number},
        )
        for number, row in enumerate(meta)
    ]
