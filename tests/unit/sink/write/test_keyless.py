from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from applier.sink.write.keyless import canonical, choose, net

KINDS: dict[str, pa.DataType] = {"f": pa.float64(), "b": pa.bool_(), "l": pa.list_(pa.float32())}
COLUMNS = pa.schema(KINDS)

row = st.fixed_dictionaries(
    {
        "f": st.sampled_from([None, 0.0, -0.0, 1.5]),
        "b": st.sampled_from([None, False, True]),
        "l": st.sampled_from([None, (), (1.0,), (1.0, None)]),
    }
)
rows = st.lists(row, max_size=12)


def table(values: list[dict[str, Any]]) -> pa.Table:
    """Rows as Arrow."""
    return pa.Table.from_pylist(values, schema=COLUMNS)


def bag(values: pa.Table | list[dict[str, Any]]) -> Counter[str]:
    """Rows as a bag; the text tells -0.0 from 0.0."""
    found = values.to_pylist() if isinstance(values, pa.Table) else table(values).to_pylist()
    return Counter(map(repr, found))


@given(inserts=rows, deletes=rows)
def test_net_cancels_equal_rows_and_nothing_else(inserts: list[dict[str, Any]], deletes: list[dict[str, Any]]) -> None:
    """What a batch both adds and removes is left out, as often as both have it."""
    added, removed = net(table(inserts), table(deletes))

    assert bag(added) == bag(inserts) - bag(deletes)
    assert bag(removed) == bag(deletes) - bag(inserts)


@given(deletes=st.lists(row, min_size=1, max_size=8), found=st.lists(row, min_size=1, max_size=12))
def test_choose_takes_one_row_for_each_delete(deletes: list[dict[str, Any]], found: list[dict[str, Any]]) -> None:
    """Of equal rows exactly as many go as were deleted; deletes without a row are counted."""
    living = {"a": np.arange(len(found) // 2), "b": np.arange(len(found) - len(found) // 2) + 100}

    chosen, missing = choose(table(deletes), table(found), living)

    places = [("a", index) for index in living["a"]] + [("b", index) for index in living["b"]]
    taken = [value for value, (path, at) in zip(found, places, strict=True) if at in chosen.get(path, ())]
    assert bag(taken) == bag(deletes) & bag(found)
    assert missing == (bag(deletes) - bag(found)).total()


def test_every_column_type_has_a_form_to_compare() -> None:
    """NULLs of all types get a filler, so that no type makes a row equal to nothing."""
    kinds: list[Any] = [
        pa.int32(),
        pa.decimal128(9, 2),
        pa.date32(),
        pa.timestamp("us", tz="UTC"),
        pa.time64("us"),
        pa.binary(),
        pa.binary(4),
        pa.bool_(),
        pa.float32(),
        pa.null(),
    ]
    columns: Any = {str(kind): pa.nulls(2, kind) for kind in kinds}

    assert all(column.null_count == 0 for column in canonical(pa.table(columns)).columns)
