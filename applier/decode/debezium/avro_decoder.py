"""Decodes TiCDC's Debezium messages in Avro: the envelope of `json_decoder.py` in Confluent's framing.

Unlike protocol `avro`, names are whole (`source`, `connect.field`), every type is shown, and decimals are exact. Many
rows of one pair of schemas are decoded at once into columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np

from applier.changefeed.event import Event, Op, Resolved
from applier.changefeed.table import TableName, TableVersion
from applier.decode.bounded_cache import Bounded
from applier.decode.columnar.avro_columns import AvroRows, Found, Head, RowPlan, avro_types
from applier.decode.columnar.avro_reader import Datums, Flags, Numbers, ReadRecords, Records, Texts, Values
from applier.decode.columnar.groups import GroupedReader, OldRows, Reader
from applier.decode.debezium.ddl import TableChange, schema_change
from applier.decode.debezium.rows import (
    ConnectField,
    Layout,
    declared_layout,
    held_image,
    microseconds,
    operation,
    own_version,
    row_change,
)
from applier.decode.decoder import WireForm
from applier.decode.options import DecoderOptions
from applier.decode.registry.framing import CONFLUENT, Framing, framing_of
from applier.decode.registry.registries import open_registry
from applier.decode.registry.wire_format import AvroSchema, RegistryReader, SchemaSource
from applier.decode.row_schemas import Announcer
from applier.errors import DecodeError

_CONNECT = {"int": "int32", "long": "int64"}
"""Avro's names of types, where Connect's are others."""


class _AvroSource(msgspec.Struct, gc=False):
    db: str
    table: str
    commit_ts: int


class _SchemaChange(msgspec.Struct, rename={"database": "databaseName", "changes": "tableChanges"}, gc=False):
    source: _AvroSource
    ddl: str
    database: str | None
    changes: list[TableChange]


def build(options: DecoderOptions) -> DebeziumAvroDecoder:
    """A decoder from the changefeed's options; it connects to the registry at the first message."""
    return DebeziumAvroDecoder(open_registry(options.registry), framing_of(options.registry))


def declared_version(schema: AvroSchema, schema_id: int, *, is_key: bool) -> TableVersion:
    """The table that a registered schema of keys, or the envelope of values, describes, under Avro's name for it.

    The id of the schema becomes the number of the version.

    Raises:
        DecodeError: TiCDC did not generate it for this protocol.
    """
    try:
        record = schema if is_key else _row_record(schema)
        table = str(record["name"]).removesuffix("Key" if is_key else "")
        name = TableName(str(record["namespace"]).partition(".")[2], table)
        fields = [field for _, field in _columns(record)]
    except (KeyError, TypeError, ValueError, AttributeError, StopIteration):
        raise _foreign(schema_id) from None
    names = [field.name for field in fields]
    version = declared_layout(name, fields, tuple(names) if is_key else (), names).version
    return replace(version, version=schema_id, keys_only=is_key)


class DebeziumAvroDecoder:
    """Decoder of protocol `debezium-avro`."""

    wire = WireForm(binary="bytes", members="label", moved_years=True)

    def __init__(self, registry: SchemaSource, framing: Framing = CONFLUENT) -> None:
        self._reader = RegistryReader(registry, framing=framing)
        self._announcer = Announcer()
        self._layouts: Bounded[tuple[TableName, int, int], Layout] = Bounded()
        self._last: Bounded[tuple[int, int], Layout] = Bounded()
        self.bulk = GroupedReader(self._head, self._row_reader)

    def restart(self) -> None:
        """Begin a pass; see `Decoder.restart`."""
        self._reader.restart()
        self._announcer = Announcer()
        # The schemas that they were made of may be other ones by then.
        self._layouts.clear()
        self._last.clear()
        self.bulk.forget()

    def learn(self, version: TableVersion) -> None:
        """Know a version that this decoder emitted."""
        self._reader.expect(version.fingerprints)
        self._announcer.learn(version)

    def decode(self, key: bytes | None, value: bytes | None) -> Sequence[Event]:
        """Decode one message; see `Decoder.decode`. A null value says nothing: deletes are messages of op `d`."""
        if value is None:
            return ()
        value_id = self._reader.schema_id(value)
        datum = self._reader.read(value_id, value)
        source = datum.get("source") if isinstance(datum, dict) else None
        if not isinstance(source, dict):
            raise _foreign(value_id)
        if "ddl" in datum:
            return (_schema_change(value_id, datum),)
        commit_ts, op = source.get("commit_ts"), datum.get("op")
        if not isinstance(commit_ts, int) or commit_ts < 0 or not isinstance(op, str):
            raise _foreign(value_id)
        if op == "m":
            return (Resolved(commit_ts),)
        if not isinstance(source.get("db"), str) or not isinstance(source.get("table"), str):
            raise _foreign(value_id)
        name = TableName(source["db"], source["table"])
        try:
            return self._row(key, value_id, datum, name, commit_ts)
        except DecodeError as error:
            error.concern(name, commit_ts)
            raise

    def _row(
        self, key: bytes | None, value_id: int, datum: dict[str, Any], name: TableName, commit_ts: int
    ) -> Sequence[Event]:
        op, before, after = operation(datum["op"]), datum.get("before"), datum.get("after")
        held_image(op, before, after)
        key_id = self._reader.schema_id(key) if key else 0
        layout = self._layouts.get((name, key_id, value_id)) or self._learn_layout(name, key_id, value_id)
        self._last[key_id, value_id] = layout
        change = row_change(layout, op, commit_ts, _upstream(layout, before), _upstream(layout, after))
        return self._announcer.events(layout.version, layout.text_decimals, change)

    def _row_reader(
        self, beginning: Head, _key: bytes | None, _value: bytes | None, old_rows: OldRows
    ) -> Reader | None:
        """A reader of rows of schemas that were met, of the table that was met with them last."""
        key_id, value_id = map(self._reader.schema_id, beginning)
        layout = self._last.get((key_id, value_id))
        if layout is None or not self._announcer.knows(layout.version):
            return None
        writer = self._reader.writer(value_id)
        if writer.read_many is None:
            return None
        start = self._reader.framing.header_bytes
        kept = old_rows(layout.version.name)
        return _rows_reader(layout, _row_record(writer.schema), value_id, writer.read_many, start, kept)

    def _head(self, key: bytes | None, value: bytes | None) -> Head | None:
        """What a message begins with; rows without a key are read one by one."""
        size = self._reader.framing.header_bytes
        return (key[:size], value[:size]) if key and value else None

    def _learn_layout(self, name: TableName, key_id: int, value_id: int) -> Layout:
        try:
            record = _row_record(self._reader.writer(value_id).schema)
            # Without the type, an unsigned column would be read with a sign.
            columns = [column for column in _columns(record) if column[1].tidb]
            if len(columns) < len(record["fields"]):
                raise _foreign(value_id)
            key = tuple(field.name for _, field in _columns(self._reader.writer(key_id).schema)) if key_id else ()
        except (KeyError, TypeError, ValueError, AttributeError, StopIteration):
            raise _foreign(value_id) from None
        fields = [field for _, field in columns]
        layout = declared_layout(name, fields, key, [field.name for field in fields])
        proofs = self._reader.fingerprints(key_id, value_id)
        layout = replace(layout, version=own_version(replace(layout.version, version=0, proofs=proofs)))
        if any(written != field.name for written, field in columns):
            layout = replace(layout, renamed={written: field.name for written, field in columns})
        self._layouts[name, key_id, value_id] = layout
        return layout


def _upstream(layout: Layout, image: dict[str, Any] | None) -> dict[str, Any] | None:
    if image is None or layout.renamed is None:
        return image
    return {layout.renamed[name]: value for name, value in image.items()}


def _schema_change(value_id: int, datum: dict[str, Any]) -> Event:
    try:
        message = msgspec.convert(datum, _SchemaChange)
    except msgspec.ValidationError as error:
        raise _foreign(value_id) from error
    source = message.source
    name, database = TableName(source.db, source.table), message.database or source.db
    return schema_change(name, source.commit_ts, message.ddl, database, message.changes)


def _foreign(value_id: int) -> DecodeError:
    msg = f"Schema id {value_id} is not one that TiCDC generates for protocol debezium-avro."
    return DecodeError(msg, "is the protocol of the changefeed right?")


def _row_record(envelope: AvroSchema) -> AvroSchema:
    """Record of the rows; `before` defines it and `after` refers to it by name."""
    unions = (field["type"] for field in envelope["fields"] if field["name"] in ("before", "after"))
    return next(branch for union in unions for branch in union if isinstance(branch, dict))


def _columns(record: AvroSchema) -> Iterator[tuple[str, ConnectField]]:
    """Name in the datum and declared field of each column."""
    for declared in record["fields"]:
        kinds = declared["type"] if isinstance(declared["type"], list) else [declared["type"]]
        kind = next((branch for branch in kinds if branch != "null"), "null")
        yield declared["name"], _field(declared, kind if isinstance(kind, dict) else {"type": kind})


def _field(declared: dict[str, Any], kind: dict[str, Any]) -> ConnectField:
    parameters = dict(kind.get("connect.parameters", {}))
    if kind.get("logicalType") == "decimal":
        parameters |= {"precision": kind["precision"], "scale": kind.get("scale", 0)}
    written = str(kind["type"])
    return ConnectField(
        name=str(declared.get("connect.field", declared["name"])),
        connect=str(kind.get("connect.type", _CONNECT.get(written, written))),
        semantic=str(kind.get("connect.name", "")),
        tidb=str(declared.get("tidb_type", "")),
        parameters=parameters,
    )


def _rows_reader(
    layout: Layout, record: AvroSchema, form: int, read: ReadRecords, start: int, kept: frozenset[Op]
) -> AvroRows | None:
    """A reader of the rows of one pair of schemas. None if they must be read one by one, or it raises ValueError.

    The record is the schema of an image, the form the id of the schema of the values; datums begin
    at `start`. Old rows are asked for of the `kept` kinds of changes.
    """
    version, types = layout.version, avro_types(record)
    kinds = {column.name: column.type for column in version.columns}
    fields = []
    for written, avro in types.items():
        name = written if layout.renamed is None else layout.renamed[written]
        factor = 1000 if layout.readers.get(name) is microseconds else 1
        is_plain = name not in layout.readers or factor > 1 or (kinds[name].name == "decimal" and avro == "bytes")
        if not is_plain or (factor > 1 and avro not in ("int", "long")):
            return None
        fields.append((written, name, factor))
    if layout.text_decimals:
        return None
    plan = RowPlan.of(version, form, record, fields)
    return AvroRows(plan, lambda datums, _: _rows(read(datums), datums, version.name), start, kept)


def _rows(row: Records, datums: Datums, name: TableName) -> Found:
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
