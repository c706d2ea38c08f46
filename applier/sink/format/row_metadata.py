"""Columns that applier adds to those of an upstream table: where each row comes from.

The property `ADDED_COLUMNS` of a table names them. They hold no value of upstream, and never tell two rows apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute

from applier.changefeed.change_batch import Provenance
from applier.changefeed.event import Op
from applier.changefeed.table import fold
from applier.changefeed.ts import times
from applier.config.table_layout import DELETED_AT
from applier.errors import TableMismatch
from applier.sink.format.types import ADDED_COLUMNS, DOC, METADATA_TYPES, Chunks, TableSchema, repeated

pc: Any = pyarrow.compute

_OPS: Mapping[Op, str] = {Op.INSERT: "insert", Op.UPDATE: "update", Op.UPSERT: "upsert", Op.DELETE: "delete"}
_LOADED = "load"

_COMMENTS: Mapping[str, str] = {
    "_commit_ts": "Commit ts of the last change of the row, by applier",
    "_commit_time": "Time of the last change of the row, by applier",
    "_op": "Kind of the last change of the row: insert, update, upsert, delete or load, by applier",
    "_source_table": "Upstream table of the row at its last change, by applier",
    DELETED_AT: "Time at which upstream deleted the row, NULL in living rows, by applier",
}

TAKEN = (
    "Take its name off `metadata` in the table's pattern under [tables], drop that column in your engine if it is "
    f"there, and remove its name from the property `{ADDED_COLUMNS}` of the table."
)
"""What to do about an upstream column that has the name of one that applier added."""


def entries(names: Iterable[str]) -> dict[str, str]:
    """The property of a table that has these columns; none without any."""
    found = " ".join(sorted(set(names)))
    return {ADDED_COLUMNS: found} if found else {}


def columns(names: Iterable[str]) -> list[pa.Field[Any]]:
    """The columns, optional, with their comments, in the order of the names."""
    return [pa.field(name, METADATA_TYPES[name], metadata={DOC: _COMMENTS[name].encode()}) for name in names]


def refuse_taken(table: str, names: Iterable[str], others: Iterable[str]) -> None:
    """Refuse to add columns of these names to a table that has others, of upstream or of other writers.

    Raises:
        TableMismatch: It has one of the same name, in any letters: engines take both for one.
    """
    added = set(map(fold, names))
    if taken := [name for name in others if fold(name) in added]:
        what = f"Table {table} cannot get its metadata columns: it has a column {taken[0]} that applier did not add"
        raise TableMismatch(what, "Leave that name out of `metadata` in the table's pattern under [tables].")


def added(rows: pa.Table, made: Provenance | None, schema: TableSchema) -> pa.Table:
    """Rows with the columns that applier added to their table.

    Without a provenance, and where a change carried no commit ts, they are NULL.
    """
    if made is None:
        return rows
    for field in schema.fields:
        if field.name in schema.added and (values := _VALUES.get(field.name)) is not None:
            rows = rows.append_column(field.name, values(made).cast(field.arrow))
    return rows


def _stamps(made: Provenance) -> Chunks:
    found: Chunks = pc.if_else(pc.equal(made.commit_ts, 0), pa.scalar(None, pa.int64()), made.commit_ts)
    return found


def _times(made: Provenance) -> Chunks:
    return times(_stamps(made))


def _deletes(made: Provenance) -> Chunks:
    is_gone = pc.fill_null(pc.equal(made.op, Op.DELETE), False)
    found: Chunks = pc.if_else(is_gone, _times(made), pa.scalar(None, pa.timestamp("us", tz="UTC")))
    return found


def _ops(made: Provenance) -> Chunks:
    places = pc.fill_null(pc.index_in(made.op, pa.array(list(_OPS), pa.int8())), len(_OPS))
    found: Chunks = pc.take(pa.chunked_array([[*_OPS.values(), _LOADED]]), places)
    return found


def _sources(made: Provenance) -> Chunks:
    return repeated(pa.scalar(made.table, pa.string()), len(made.commit_ts))


_VALUES: Mapping[str, Callable[[Provenance], Chunks]] = {
    "_commit_ts": _stamps,
    "_commit_time": _times,
    "_op": _ops,
    "_source_table": _sources,
    DELETED_AT: _deletes,
}
