"""Many rows of the Avro protocol in, their columns out: the quick way of `avro.py`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from applier.changefeed.event import Op
from applier.changefeed.row_block import ColumnBlock
from applier.changefeed.table import TableVersion
from applier.decode.avro.schema import BEFORE, CHECKSUM, COMMIT_TS, OP, RecordSchema
from applier.decode.columnar.avro_columns import Head, RowPlan, avro_types, column_plan, held
from applier.decode.columnar.avro_reader import Datums, Flags, Ints, Numbers, ReadRecords, Records, Texts, Values
from applier.decode.columnar.groups import Reader
from applier.decode.registry.wire_format import HEADER_BYTES, WriterSchema

_DELETE = 3
_MARKER_BYTES = 9


def head(key: bytes | None, value: bytes | None) -> Head | None:
    """What a message begins with; the value of a delete, which says no more than its commit ts, counts as empty."""
    if value is None or (len(value) == _MARKER_BYTES and value[0] == _DELETE):
        return (key[:HEADER_BYTES], b"") if key else None
    return ((key or b"")[:HEADER_BYTES], value[:HEADER_BYTES]) if value[:1] == b"\0" else None


def rows_reader(
    version: TableVersion, record: RecordSchema, renamed: Mapping[str, str | None] | None, writer: WriterSchema
) -> Reader | None:
    """A reader of the rows of one pair of schemas; None if they must be read one by one.

    Args:
        version: What the rows refer to.
        record: What their schema says; of deletes the schema of their keys.
        renamed: Upstream name of each column, None to leave it out; None altogether where all names stay.
        writer: That schema.
    """
    if writer.read_many is None or record.text_decimals or CHECKSUM in record.extension:
        return None
    types = avro_types(writer.schema)
    names = renamed or {column.name: column.name for column in record.columns}
    kept = [(written, name) for written, name in names.items() if name is not None]
    kinds = {column.name: column.type for column in version.columns}
    try:
        columns = tuple(column_plan(written, name, types[written], kinds[name]) for written, name in kept)
    except KeyError:
        return None
    plan = RowPlan(version.name, version.version, version.key, version.version, columns)
    if not plan.is_reducible:
        return None
    made: Reader = AvroDeletes(plan, writer.read_many)
    return made if version.keys_only else AvroColumns(plan, writer.read_many, record.op_has_default)


@dataclass(frozen=True, slots=True)
class AvroDeletes:
    """Reads deletes, of which the key is a datum.

    Attributes:
        plan: The key columns.
        keys: Reads keys.
    """

    plan: RowPlan
    keys: ReadRecords

    def read(
        self, keys: Sequence[bytes | None], values: Sequence[bytes | None], places: Ints
    ) -> tuple[list[ColumnBlock], Flags]:
        """See `Reader`."""
        datums = Datums.of([key or b"" for key in keys], HEADER_BYTES)
        image = self.keys(datums)
        stamps = np.array([int.from_bytes((value or b"")[1:], "big", signed=True) for value in values], np.int64)
        good = datums.is_done() & ~self.plan.odd(image, len(keys)) & (stamps >= 0)
        return [self.plan.block(Op.DELETE, image, np.flatnonzero(good), places, stamps)], ~good


@dataclass(frozen=True, slots=True)
class AvroColumns:
    """Reads rows: inserts, updates, and deletes with their old image.

    Attributes:
        plan: The columns.
        values: Reads values.
        has_inserts: That a row is new can be determined.
    """

    plan: RowPlan
    values: ReadRecords
    has_inserts: bool

    def read(
        self, keys: Sequence[bytes | None], values: Sequence[bytes | None], places: Ints
    ) -> tuple[list[ColumnBlock], Flags]:
        """See `Reader`."""
        count = len(values)
        datums = Datums.of([value or b"" for value in values], HEADER_BYTES)
        row = self.values(datums)
        letters, stamps = _letters(row.fields.get(OP), count), _stamps(row.fields.get(COMMIT_TS), count)
        good = datums.is_done() & ~self.plan.odd(row, count) & (stamps >= 0)
        updates = np.flatnonzero(good & (letters == ord("u")))
        before = row.fields.get(BEFORE)
        told = held(before, updates)
        if isinstance(before, Records) and len(told):
            good[told[self.plan.moved(before, row, told)]] = False
        blocks = []
        for letter, op in (("c", Op.INSERT if self.has_inserts else Op.UPDATE), ("u", Op.UPDATE), ("d", Op.DELETE)):
            rows = np.flatnonzero(good & (letters == ord(letter)))
            if len(rows):
                blocks.append(self.plan.block(op, row, rows, places, stamps))
        return blocks, ~(good & np.isin(letters, list(b"cud")))


def _letters(values: Values, count: int) -> Ints:
    """Letter of each row's kind; that of an update where there is none, 0 where it is no letter."""
    if not isinstance(values, Texts):
        return np.full(count, ord("u"))
    letters = np.where(values.sizes == 1, values.data[values.starts], 0).astype(np.int64)
    return np.where(values.sizes == 0, ord("u"), letters)


def _stamps(values: Values, count: int) -> Ints:
    return values.values if isinstance(values, Numbers) else np.zeros(count, np.int64)
