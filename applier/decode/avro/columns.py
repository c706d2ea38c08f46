"""Decodes many rows of the Avro protocol at once into columns; `decoder.py` decodes what does not fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from applier.changefeed.event import Op
from applier.changefeed.table import TableVersion
from applier.decode.avro.schema import BEFORE, CHECKSUM, COMMIT_TS, OP, RecordSchema
from applier.decode.columnar.avro_columns import AvroRows, Found, Head, RowPlan, avro_types, column_plan
from applier.decode.columnar.avro_reader import Datums, Numbers, Records, Texts
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
) -> AvroRows | None:
    """A reader of the rows of one pair of schemas; None if they must be read one by one.

    The record is what `writer` says: the schema of the rows, of deletes that of their keys. `renamed` has the upstream
    name of each column, None to leave it out; it is None altogether where all names stay.
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
    plan = RowPlan(version, version.version, columns)
    if not plan.is_reducible:
        return None
    read = writer.read_many
    if version.keys_only:
        return AvroRows(plan, lambda datums, values: _deletes(read(datums), datums, values), in_keys=True)
    insert = Op.INSERT if record.op_has_default else Op.UPSERT  # Else nothing shows that a row is new.
    return AvroRows(plan, lambda datums, _: _rows(read(datums), datums, insert))


def _deletes(image: Records, datums: Datums, values: Sequence[bytes | None]) -> Found:
    stamps = np.array([int.from_bytes((value or b"")[1:], "big", signed=True) for value in values], np.int64)
    return Found(stamps, datums.is_done(), [(Op.DELETE, True, image)])


def _rows(row: Records, datums: Datums, insert: Op) -> Found:
    none, kinds, ts = np.zeros(len(datums.at), np.int64), row.fields.get(OP), row.fields.get(COMMIT_TS)
    letters = none + ord("c")  # A row may be new where the schema has no kind.
    if isinstance(kinds, Texts):
        letters = np.where(kinds.sizes == 1, kinds.data[kinds.starts], 0).astype(np.int64)
    images = [(op, letters == ord(sign), row) for sign, op in (("c", insert), ("u", Op.UPDATE), ("d", Op.DELETE))]
    return Found(ts.values if isinstance(ts, Numbers) else none, datums.is_done(), images, row.fields.get(BEFORE))
