"""Reduces row changes to the last change of each key and the kind of its first one. Runs in the tasks that decode."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from applier.changefeed.event import Image, Op, RowChange
from applier.changefeed.row_block import ColumnBlock, Ints
from applier.changefeed.table import Keyed, Keyless, TableVersion
from applier.changefeed.types import VIRTUAL
from applier.errors import DecodeError, IncompleteRow
from applier.order.latest import ends, last_per_key

META = "\0"
"""How the names of the columns begin that say of a row where it is from: no name in TiDB has this character."""

KEYED_SCHEMA = pa.schema(
    [
        ("\0first_ts", pa.int64()),
        ("\0first_op", pa.int8()),
        ("\0ts", pa.int64()),
        ("\0present", pa.bool_()),
        ("\0partition", pa.int32()),
        ("\0offset", pa.int64()),
        ("\0index", pa.int32()),
        ("\0op", pa.int8()),
    ]  # type: ignore[arg-type]  # the stubs know no list of fields of several types
)
"""Columns of a part of a table with a key, beside the table's own.

Of the first event of a key commit ts and kind, which shows whether the key was there before; of the last one commit ts,
whether it is an upsert, place and kind.
"""

_REDUCE_ROWS = 10_000
"""Rows beyond twice the keys that are reduced together, so that memory grows with the keys and not the rows."""

KEYLESS_SCHEMA = pa.schema(
    [
        ("\0ts", pa.int64()),
        ("\0present", pa.bool_()),
        ("\0partition", pa.int32()),
        ("\0offset", pa.int64()),
        ("\0index", pa.int32()),
        ("\0replay", pa.bool_()),
        ("\0run", pa.int64()),
        ("\0op", pa.int8()),
    ]  # type: ignore[arg-type]  # as above
)
"""Columns of a part of a table without a key, beside the table's own.

A row of it is added to the table, or taken from it where it is not `present`. It is a `replay` if its partition had
already resolved its commit ts, so that it was sent before. `run` is the number of the run of rows of one commit ts that
it was sent in, among all runs of the table that its partition had: also those of rows that are not due yet. `op` is the
kind of the change that it belongs to.
"""


WireValues: TypeAlias = dict[str, list[Any]]
"""Values of some rows as they were sent, per column."""


@dataclass(slots=True)
class KeyedGroup:
    """Changes of one table version with a key; `latest.ends` says which count, and what `by_place` is.

    Where it `keeps_deleted`, deleted rows keep their images, and a delete must hold the whole row.
    """

    version: TableVersion
    by_place: bool = False
    keeps_deleted: bool = False
    _changes: list[tuple[tuple[Any, ...], int]] = field(default_factory=list)
    _images: list[Image] = field(default_factory=list)
    _codes: dict[Any, int] = field(default_factory=dict)
    _key: Callable[[Image], Any] = field(init=False)

    def __post_init__(self) -> None:
        self._key = itemgetter(*self.version.key)

    def add(self, change: RowChange, position: tuple[int, int, int], *, replay: bool = False, run: int = 0) -> None:
        """Take one row change. `replay` and `run` do not matter here: an equal event changes nothing."""
        del replay, run
        after, before = change.after, change.before
        try:
            if after is None:
                if before is None or (self.keeps_deleted and not self._is_whole(before)):
                    raise IncompleteRow(_no_image(change), OLD_VALUE_HINT)
                if self.keeps_deleted and not change.commit_ts:
                    raise IncompleteRow(
                        f"A delete of table {change.name} has no commit ts, and its row is to stay.", _DATED
                    )
                self._put(self._key(before), change.commit_ts, position, before, present=False, op=Op.DELETE)
                return
            key = self._key(after)
            op = change.op
            if before is not None and op is not Op.INSERT:
                # Raw change events keep key-changing updates whole: the row under the old key would stay for ever.
                old_key = self._key({**after, **before})
                if old_key != key:
                    # The new key was free, unless another change of the same commit ts takes a row away from it.
                    op = Op.INSERT
                    self._put(old_key, change.commit_ts, position, {**after, **before}, present=False, op=Op.DELETE)
            self._put(key, change.commit_ts, position, after, present=True, op=op)
        except KeyError as missing:
            what = f"{change.op.one} of table {change.name} lacks the key column {missing.args[0]!r}."
            raise IncompleteRow(what, _KEY_HINT) from missing
        except TypeError:  # A list or an object has no hash; no protocol has such values in a key.
            what = f"A key column of a row of table {change.name} holds no value of a column."
            raise DecodeError(what, "is the protocol of the changefeed right?") from None

    def _is_whole(self, image: Image) -> bool:
        """Whether an image holds each column that a row can hold."""
        return all(column.name in image for column in self.version.columns if column.generated != VIRTUAL)

    def _put(self, key: Any, ts: int, position: tuple[int, int, int], image: Image, *, present: bool, op: Op) -> None:
        code = self._codes.setdefault(key, len(self._codes))
        self._changes.append(((ts, op, ts, present, *position, op), code))
        self._images.append(image)
        if len(self._changes) >= 2 * len(self._codes) + _REDUCE_ROWS:
            self._reduce()

    def _reduce(self) -> None:
        """Keep the last change of each key alone."""
        changes, images = self._changes, self._images
        if len(changes) == len(self._codes):
            return
        codes = np.array([code for *_, code in changes])
        columns = [np.array(column) for column in zip(*(change for change, _ in changes), strict=True)]
        last, first = (found.tolist() for found in ends(codes, *columns, by_place=self.by_place))
        pairs = zip(last, first, strict=True)
        self._changes = [((*changes[begin][0][:2], *changes[end][0][2:]), changes[end][1]) for end, begin in pairs]
        self._images = [images[end] for end in last]

    def columns(self) -> tuple[pa.Table, WireValues]:
        """One row per key: the columns of `KEYED_SCHEMA`, and wire values; of a deleted row only those of the key,
        unless it is kept.
        """
        self._reduce()
        key, pairs = self.version.key, zip(self._changes, self._images, strict=True)
        images = [
            image if change[3] or self.keeps_deleted else {name: image[name] for name in key}
            for (change, _), image in pairs
        ]
        return table_of((change for change, _ in self._changes), KEYED_SCHEMA), values_of(self.version, images)


@dataclass(slots=True)
class KeylessGroup:
    """Changes of one table version without a key: every event counts, none is reduced."""

    version: TableVersion
    _events: list[tuple[Any, ...]] = field(default_factory=list)
    _images: list[Image] = field(default_factory=list)

    def add(self, change: RowChange, position: tuple[int, int, int], *, replay: bool = False, run: int = 0) -> None:
        """Take one row change; an update takes the old image away and adds the new one."""
        if change.op is not Op.INSERT:
            if change.before is None:
                raise IncompleteRow(_no_image(change), OLD_VALUE_HINT)
            self._events.append((change.commit_ts, False, *position, replay, run, change.op))
            self._images.append(change.before)
        if change.after is not None:
            self._events.append((change.commit_ts, True, *position, replay, run, change.op))
            self._images.append(change.after)

    def columns(self) -> tuple[pa.Table, WireValues]:
        """One row per event: the columns of `KEYLESS_SCHEMA`, and wire values."""
        return table_of(self._events, KEYLESS_SCHEMA), values_of(self.version, self._images)


Group: TypeAlias = KeyedGroup | KeylessGroup
"""Changes of one table version as they come."""


def group(version: TableVersion, *, by_place: bool = False, keeps_deleted: bool = False) -> Group:
    """An empty group for a table version; see `last_per_key` for `by_place`, and `KeyedGroup`."""
    match version.shape:
        case Keyed():
            return KeyedGroup(version, by_place, keeps_deleted)
        case Keyless():
            return KeylessGroup(version)


def data_of(rows: pa.Table) -> pa.Table:
    """The table's own columns."""
    return rows.drop_columns([name for name in rows.column_names if name.startswith(META)])


def table_of(rows: Iterable[tuple[Any, ...]], schema: pa.Schema) -> pa.Table:
    """Rows of a schema of this module."""
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    arrays = [pa.array(values, kind) for values, kind in zip(columns, schema.types, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def values_of(version: TableVersion, images: Sequence[Image]) -> WireValues:
    """Values per column, without a column that no image holds: it is not NULL."""
    names = [column.name for column in version.columns]
    held = [name for name in names if any(name in image for image in images)]
    return {name: [image.get(name) for image in images] for name in held}


OLD_VALUE_HINT = (
    "turn on the old values of the protocol (`output-old-value`), and let deletes carry whole rows "
    "(`delete-only-output-handle-key-columns`); or give a table without a key one, and a table whose deletes are soft "
    'deletes = "hard".'
)
_DATED = 'set enable-tidb-extension in the changefeed, or deletes = "hard" for the table.'
_KEY_HINT = "the key columns must not be left out by `column-selectors` or `delete-only-output-handle-key-columns`."


def _no_image(change: RowChange) -> str:
    return f"{change.op.one} of table {change.name} does not hold the old row."


_REDUCE_BLOCK_ROWS = 100_000
"""The same of a `BlockGroup`."""


def block_rows(
    block: ColumnBlock, partition: int, offsets: Ints, values: Mapping[str, pa.Array[Any]], *, present: bool
) -> pa.Table:
    """Values of the rows of a block behind the columns of `KEYED_SCHEMA`; other arguments as of `BlockGroup.add`."""
    count, op = len(block.places), block.op
    stamps, ops = pa.array(block.commit_ts, pa.int64()), pa.array(np.full(count, op, np.int8))
    meta = [
        stamps,
        ops,
        stamps,
        pa.array(np.full(count, present)),
        pa.array(np.full(count, partition, np.int32)),
        pa.array(offsets[block.places], pa.int64()),
        pa.array(np.zeros(count, np.int32) if block.indexes is None else block.indexes.astype(np.int32)),
        ops,
    ]
    return pa.Table.from_arrays([*meta, *values.values()], [*KEYED_SCHEMA.names, *values])


@dataclass(slots=True)
class BlockGroup:
    """Changes of one table version with a key, reduced by column; `by_place` as in `last_per_key`."""

    version: TableVersion
    by_place: bool = False
    _chunks: list[pa.Table] = field(default_factory=list)
    _rows: int = 0
    _survivors: int = 0

    def add(self, block: ColumnBlock, partition: int, offsets: Ints) -> None:
        """Take the rows of a block; `offsets` are those of the messages that the block's places count."""
        # Of a deleted row only the key counts; the other columns become NULL beside rows that have them.
        present = block.op is not Op.DELETE
        values = block.columns if present else {name: block.columns[name] for name in block.key}
        self._chunks.append(block_rows(block, partition, offsets, values, present=present))
        self._rows += len(block.places)
        if self._rows >= 2 * self._survivors + _REDUCE_BLOCK_ROWS:
            self._chunks = [self._reduce()]
            self._rows = self._survivors = self._chunks[0].num_rows

    def columns(self) -> tuple[pa.Table, dict[str, pa.Array[Any]]]:
        """One row per key: the columns of `KEYED_SCHEMA`, and the wire values of the table's own columns."""
        rows = self._reduce()
        values = data_of(rows)
        arrays = (column.combine_chunks() for column in values.columns)
        return rows.select(KEYED_SCHEMA.names), dict(zip(values.column_names, arrays, strict=True))

    def _reduce(self) -> pa.Table:
        rows = pa.concat_tables(self._chunks, promote_options="permissive").combine_chunks()
        self._chunks = []  # The result is a copy; a task would else hold three.
        return last_per_key(rows, self.version.key, by_place=self.by_place)
