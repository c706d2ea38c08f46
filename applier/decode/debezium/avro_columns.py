"""Many Debezium rows in Avro in, their columns out: the quick way of `debezium_avro.py`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from applier.changefeed.event import Op
from applier.changefeed.row_block import ColumnBlock
from applier.changefeed.table import TableName
from applier.decode.columnar.avro_columns import Head, RowPlan, avro_types, column_plan, held
from applier.decode.columnar.avro_reader import Datums, Flags, Ints, Numbers, ReadRecords, Records, Texts, Values
from applier.decode.columnar.groups import Reader
from applier.decode.debezium.fields import microseconds
from applier.decode.debezium.rows import Layout
from applier.decode.registry.wire_format import HEADER_BYTES, AvroSchema


def head(key: bytes | None, value: bytes | None) -> Head | None:
    """What a message begins with; rows without a key are read one by one."""
    return (key[:HEADER_BYTES], value[:HEADER_BYTES]) if key and value else None


def rows_reader(
    layout: Layout, renamed: Mapping[str, str] | None, record: AvroSchema, form: int, read: ReadRecords
) -> Reader | None:
    """A reader of the rows of one pair of schemas; None if they must be read one by one.

    Args:
        layout: How they are read one by one.
        renamed: Upstream name of each field; None where all are the same.
        record: Schema of an image.
        form: Id of the schema of the values.
        read: Reads values.
    """
    version, types = layout.version, avro_types(record)
    kinds = {column.name: column.type for column in version.columns}
    columns = []
    for written, avro in types.items():
        name = written if renamed is None else renamed[written]
        factor = 1000 if layout.readers.get(name) is microseconds else 1
        is_plain = name not in layout.readers or factor > 1 or (kinds[name].name == "decimal" and avro == "bytes")
        if not is_plain or (factor > 1 and avro not in ("int", "long")):
            return None
        try:
            columns.append(column_plan(written, name, avro, kinds[name], factor=factor))
        except KeyError:
            return None
    plan = RowPlan(version.name, version.version, version.key, form, tuple(columns))
    return DebeziumAvroColumns(plan, read) if plan.is_reducible and not layout.text_decimals else None


@dataclass(frozen=True, slots=True)
class DebeziumAvroColumns:
    """Reads rows of one table.

    Attributes:
        plan: The columns.
        values: Reads values.
    """

    plan: RowPlan
    values: ReadRecords

    def read(
        self, keys: Sequence[bytes | None], values: Sequence[bytes | None], places: Ints
    ) -> tuple[list[ColumnBlock], Flags]:
        """See `Reader`."""
        del keys
        datums = Datums.of([value or b"" for value in values], HEADER_BYTES)
        row = self.values(datums)
        source = row.fields.get("source")
        if not isinstance(source, Records) or source.rows is not None:
            return [], np.ones(len(values), np.bool_)
        stamps = source.fields.get("commit_ts")
        before, after, letters = row.fields.get("before"), row.fields.get("after"), row.fields.get("op")
        if not isinstance(stamps, Numbers) or stamps.present is not None or not isinstance(letters, Texts):
            return [], np.ones(len(values), np.bool_)
        good = datums.is_done() & self._is_mine(source) & (stamps.values >= 0) & (letters.sizes == 1)
        letter = np.where(good, letters.data[letters.starts], 0)
        good &= ~self._odd_after(before, after, letter)
        blocks = []
        for sign, op, image in (("c", Op.INSERT, after), ("u", Op.UPDATE, after), ("d", Op.DELETE, before)):
            rows = np.flatnonzero(good & (letter == ord(sign)))
            if len(rows) and isinstance(image, Records):
                blocks.append(self.plan.block(op, image, rows, places, stamps.values))
        return blocks, ~(good & np.isin(letter, list(b"cud")))

    def _odd_after(self, before: Values, after: Values, letter: Ints) -> Flags:
        """Rows that lack the image that they need, or change their key, or hold a value that is read alone."""
        count = len(letter)
        odd = np.where(letter == ord("d"), self._odd(before, count), self._odd(after, count))
        told = held(before, np.flatnonzero((letter == ord("u")) & ~odd))
        if len(told) and isinstance(before, Records) and isinstance(after, Records):
            odd[told[self.plan.moved(before, after, told)]] = True
        return odd

    def _odd(self, image: Values, count: int) -> Flags:
        return self.plan.odd(image, count) if isinstance(image, Records) else np.ones(count, np.bool_)

    def _is_mine(self, source: Records) -> Flags:
        """Rows that name the table that the schema was met with."""
        name: TableName = self.plan.name
        return _equals(source.fields.get("db"), name.database) & _equals(source.fields.get("table"), name.table)


def _equals(values: Values, text: str) -> Flags:
    expected = np.frombuffer(text.encode(), np.uint8)
    if not isinstance(values, Texts):
        return np.zeros(1, np.bool_)
    same = values.sizes == len(expected)
    if values.present is not None:
        same &= values.present
    places = np.where(same, values.starts, 0)[:, None] + np.arange(len(expected))
    # Of rows of another size something is compared, too; it must only be within the bounds.
    alike = (values.data[np.minimum(places, len(values.data) - 1)] == expected).all(axis=1)
    return np.asarray(same & alike)
