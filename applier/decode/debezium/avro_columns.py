"""Decodes many Debezium rows in Avro at once into columns; `avro_decoder.py` decodes what does not fit."""

from __future__ import annotations

import numpy as np

from applier.changefeed.event import Op
from applier.changefeed.table import TableName
from applier.decode.columnar.avro_columns import AvroRows, Found, Head, RowPlan, avro_types, column_plan
from applier.decode.columnar.avro_reader import Datums, Flags, Numbers, ReadRecords, Records, Texts, Values
from applier.decode.debezium.fields import microseconds
from applier.decode.debezium.rows import Layout
from applier.decode.registry.wire_format import HEADER_BYTES, AvroSchema


def head(key: bytes | None, value: bytes | None) -> Head | None:
    """What a message begins with; rows without a key are read one by one."""
    return (key[:HEADER_BYTES], value[:HEADER_BYTES]) if key and value else None


def rows_reader(layout: Layout, record: AvroSchema, form: int, read: ReadRecords) -> AvroRows | None:
    """A reader of the rows of one pair of schemas; None if they must be read one by one.

    The record is the schema of an image, the form the id of the schema of the values.
    """
    version, types = layout.version, avro_types(record)
    kinds = {column.name: column.type for column in version.columns}
    columns = []
    for written, avro in types.items():
        name = written if layout.renamed is None else layout.renamed[written]
        factor = 1000 if layout.readers.get(name) is microseconds else 1
        is_plain = name not in layout.readers or factor > 1 or (kinds[name].name == "decimal" and avro == "bytes")
        if not is_plain or (factor > 1 and avro not in ("int", "long")):
            return None
        try:
            columns.append(column_plan(written, name, avro, kinds[name], factor=factor))
        except KeyError:
            return None
    plan = RowPlan(version, form, tuple(columns))
    rows = AvroRows(plan, lambda datums, _: _found(read(datums), datums, version.name))
    return rows if plan.is_reducible and not layout.text_decimals else None


def _found(row: Records, datums: Datums, name: TableName) -> Found:
    """The rows of the table that the schema was met with."""
    source, letters = row.fields.get("source"), row.fields.get("op")
    if not isinstance(source, Records) or source.rows is not None or not isinstance(letters, Texts):
        raise ValueError
    stamps = source.fields.get("commit_ts")
    if not isinstance(stamps, Numbers) or stamps.present is not None:
        raise ValueError
    is_mine = _equals(source.fields.get("db"), name.database) & _equals(source.fields.get("table"), name.table)
    good = datums.is_done() & is_mine & (letters.sizes == 1)
    letter = np.where(good, letters.data[letters.starts], 0)
    before, after = row.fields.get("before"), row.fields.get("after")
    kinds = (("c", Op.INSERT, after), ("u", Op.UPDATE, after), ("d", Op.DELETE, before))
    return Found(stamps.values, good, [(op, letter == ord(sign), image) for sign, op, image in kinds], before)


def _equals(values: Values, text: str) -> Flags:
    expected = np.frombuffer(text.encode(), np.uint8)
    if not isinstance(values, Texts):
        return np.zeros(1, np.bool_)
    same = values.sizes == len(expected)
    if values.present is not None:
        same &= values.present
    places = np.where(same, values.starts, 0)[:, None] + np.arange(len(expected))
    # Rows of another size are compared with something as well; it must only be within the bounds.
    alike = (values.data[np.minimum(places, len(values.data) - 1)] == expected).all(axis=1)
    return np.asarray(same & alike)
