"""Writes the rows of one table's snapshot as data files of another: how rows move between tables without row events.

Each commit of such a move can be made again after a crash: what a statement has changed already is still in the
snapshot before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeAlias

import pyarrow as pa

from applier.changefeed.table import fold
from applier.errors import RELOAD, SchemaChangeRefused
from applier.sink.commit.committer import Committer
from applier.sink.commit.stamp import Stamp
from applier.sink.evolve.rewrite import LiveRows, write_anew
from applier.sink.format.types import Chunks, Field, TableSchema, repeated
from applier.sink.iceberg.commit import Change
from applier.sink.iceberg.files import DataFile
from applier.sink.iceberg.snapshot import Snapshot
from applier.sink.iceberg.table import Table

Chosen = Callable[[pa.Table], pa.BooleanArray]
"""Decides which rows move: takes rows in all columns of their table, returns one boolean a row."""

_Pair: TypeAlias = tuple[Field, Field | None]
"""A column of the target, and that of the source; None where applier added it to the target alone."""


def snapshot_before(table: Table, entry: str, value: str) -> int | None:
    """The snapshot on which the commit was made whose stamp has this entry; the head if there is no such commit.

    None means that the table had no rows.

    Raises:
        SchemaChangeRefused: That snapshot has expired.
    """
    made = commit_of(table, entry, value)
    return table.snapshot_id if made is None else made.parent_id


def commit_of(table: Table, entry: str, value: str) -> Snapshot | None:
    """The commit whose stamp has an entry; None if there is none, or it has expired.

    Raises:
        SchemaChangeRefused: The snapshot on which it was made has expired.
    """
    made = next((snapshot for snapshot in table.history() if snapshot.summary.get(entry) == value), None)
    if made is not None and made.parent_id is not None and not table.has_snapshot(made.parent_id):
        what = f"The rows that table {table} had before snapshot {made.id} are needed, and have expired."
        raise SchemaChangeRefused(what, RELOAD)
    return made


def stage_rows(
    target: Table,
    source: Table,
    snapshot_id: int | None,
    chosen: Chosen | None = None,
    schema: TableSchema | None = None,
) -> list[DataFile]:
    """Write the chosen rows of a snapshot (None: no rows) of the source to data files of the target, a bounded part at
    a time; in the columns of the source now, or in those of a `schema` that it had.

    A column that applier added to the target alone is NULL.

    Raises:
        SchemaChangeRefused: The tables do not have the same columns of upstream.
        TransientError: Catalog or storage did not answer.
    """
    live, pairs = LiveRows(source, snapshot_id), _paired(target, source, schema or source.schema)
    fields = [other for _, other in pairs if other is not None]
    return write_anew(live, fields, partial(_columns, chosen, pairs), target)


def _columns(chosen: Chosen | None, pairs: Sequence[_Pair], rows: pa.Table) -> Sequence[Chunks]:
    rows = rows if chosen is None else rows.filter(chosen(rows))
    return [
        repeated(pa.scalar(None, own.arrow), rows.num_rows) if other is None else rows[other.name]
        for own, other in pairs
    ]


def replace_rows(table: Table, rows: Callable[[], list[DataFile]], stamp: Stamp) -> int:
    """Let staged rows take the place of all rows, in one fenced and stamped commit; returns the id of its snapshot.

    A `TableWriter` of the table must `reload` afterwards.

    Raises:
        CheckpointConflict: Another applier wrote the table.
        TransientError: Catalog or storage did not answer.
    """
    committer = Committer(table, stamp.changefeed, stamp.epoch)
    committer.open()
    entries = stamp.entries()
    for attempt in committer.attempts(stamp):
        with attempt:
            committer.send(Change(rows=rows(), summary=entries, properties=entries, replace=True))
    return committer.made


def is_empty_of(table: Table, column: str) -> bool:
    """Whether a table has rows, but none of them a value of a column (in any letters): it may not be in the feed."""
    fields = [field for field in table.schema.fields if fold(field.name) == fold(column)]
    live = LiveRows(table, table.snapshot_id)
    if live.count == 0:
        return False
    return not fields or all(live.each(f"look for values of column {column} in", fields, _is_null))


def _is_null(parts: Iterator[pa.Table]) -> bool:
    return all(rows.column(0).null_count == rows.num_rows for rows in parts)


def _paired(target: Table, source: Table, schema: TableSchema) -> list[_Pair]:
    """Each column of the target with that of the source, whose columns are those of a schema."""
    ours, theirs = ({fold(field.name): field for field in each.upstream} for each in (target.schema, schema))
    unlike = [field.name for name, field in ours.items() if name not in theirs or theirs[name].arrow != field.arrow]
    unlike += sorted(theirs.keys() - ours.keys())
    if unlike:
        what = f"Tables {target} and {source} do not have the same columns ({', '.join(unlike)}), so no rows can move."
        raise SchemaChangeRefused(what, RELOAD)
    added = target.schema.added & schema.added
    theirs |= {fold(field.name): field for field in schema.fields if field.name in added}
    return [(field, theirs.get(fold(field.name))) for field in target.schema.fields]
