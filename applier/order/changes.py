"""Keeps every change of a table, as rows of its table of changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

from applier.changefeed.event import Image, Op, RowChange
from applier.changefeed.history import COMMIT_TIME, COMMIT_TS, IMAGE, OP, changes_version
from applier.changefeed.row_block import ColumnBlock, Ints
from applier.changefeed.table import TableVersion
from applier.changefeed.ts import times
from applier.order.latest import last_per_key, numbers
from applier.order.reduce import KEYED_SCHEMA, WireValues, block_rows, data_of, table_of, values_of

pc: Any = pyarrow.compute

_OPS = pa.array([op.name.lower() for op in sorted(Op)])
_IMAGES = pa.array(["before", "after"])


@dataclass(slots=True)
class ChangesGroup:
    """Images of the changes of one table version with a key, each of which is a row.

    Where it `keeps_old`, the old row of each update is one; else only where the update takes it from its key.
    """

    version: TableVersion
    keeps_old: bool
    _rows: list[tuple[Any, ...]] = field(default_factory=list)
    _images: list[Image] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, change: RowChange, position: tuple[int, int, int]) -> None:
        """Take one row change, which a group of its table has taken: it has its key."""
        after = change.after
        if change.before is not None and change.op is not Op.INSERT:
            # What the old image leaves out, the change has not touched.
            old = {**(after or {}), **change.before}
            if self.keeps_old or after is None or any(old[name] != after[name] for name in self.version.key):
                self._put(change, position, old, present=False)
        if after is not None:
            self._put(change, position, after, present=True)

    def _put(self, change: RowChange, position: tuple[int, int, int], image: Image, *, present: bool) -> None:
        ts = change.commit_ts
        self._rows.append((ts, Op.INSERT, ts, present, *position, change.op))
        self._images.append(image)

    def columns(self) -> tuple[pa.Table, WireValues]:
        """As of `KeyedGroup`: `present` are images of after, and `op` is the kind of the change."""
        return table_of(self._rows, KEYED_SCHEMA), values_of(self.version, self._images)


@dataclass(slots=True)
class ChangeBlocks:
    """The same of blocks, which have the old rows that are to be kept."""

    version: TableVersion
    _chunks: list[pa.Table] = field(default_factory=list)

    def add(self, block: ColumnBlock, partition: int, offsets: Ints) -> None:
        """Take the rows of a block; `offsets` are those of the messages that the block's places count."""
        if block.before is not None:
            self._chunks.append(block_rows(block, partition, offsets, block.before, present=False))
        present = block.op is not Op.DELETE
        self._chunks.append(block_rows(block, partition, offsets, block.columns, present=present))

    def columns(self) -> tuple[pa.Table, dict[str, pa.Array[Any]]]:
        """See `ChangesGroup`."""
        rows = pa.concat_tables(self._chunks, promote_options="permissive").combine_chunks()
        values = data_of(rows)
        arrays = (column.combine_chunks() for column in values.columns)
        return rows.select(KEYED_SCHEMA.names), dict(zip(values.column_names, arrays, strict=True))


def as_changes(rows: pa.Table, version: TableVersion) -> tuple[TableVersion, pa.Table]:
    """Typed images as rows of the table of changes, each once, and the version that they are written in."""
    own = changes_version(version)
    columns: dict[str, Any] = {
        COMMIT_TS: rows["\0ts"],
        COMMIT_TIME: times(rows["\0ts"]),
        OP: _OPS.take(rows["\0op"].combine_chunks()),
        IMAGE: _IMAGES.take(rows["\0present"].combine_chunks().cast(pa.int8())),
    }
    for name, values in columns.items():
        rows = rows.append_column(name, values)
    rows = _set(rows, "\0present", np.ones(len(rows), bool))
    rows = _set(rows, "\0first_op", np.full(len(rows), Op.INSERT, np.int8))
    return own, last_per_key(rows, own.key)


def _set(rows: pa.Table, name: str, values: np.ndarray) -> pa.Table:
    return rows.set_column(rows.schema.get_field_index(name), name, pa.array(values))


def behind(parts: Sequence[pa.Table], ts: int) -> list[pa.Table]:
    """The rows of parts above a commit ts: those at or below it were taken before."""
    return [part.filter(pa.array(numbers(part, "\0first_ts") > ts)) for part in parts]
