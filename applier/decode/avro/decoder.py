"""Decodes TiCDC's Avro messages into events.

The first byte of a value shows what it is: 0 a row in Confluent's framing, 3 one in Glue's; and with
`avro-enable-watermark` 1 a DDL, 2 a watermark, 3 with nine bytes a delete. Without that option, and in TiCDC before
v8.5.7 and v26.3.4 with it, a delete is a null value without a commit ts. Deletes name their row by the Kafka key alone.

A row refers to the pair of its key's and its value's schema id (`row_version`), because the value's schema does
not say which columns are the key. A delete refers to the key's schema, a table version with `keys_only`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np

from applier.changefeed.event import Event, Image, Op, Resolved, RowChange, SchemaChange
from applier.changefeed.table import TableName, TableVersion, fingerprint
from applier.decode.avro.checksum import AvroChecksums
from applier.decode.avro.names import OriginalNames
from applier.decode.avro.namesakes import Shown
from applier.decode.avro.schema import BEFORE, CHECKSUM, COMMIT_TS, OP, RecordSchema, record_schema
from applier.decode.avro.whole_rows import WholeRows, refused
from applier.decode.columnar.avro_columns import AvroRows, Found, Head, RowPlan
from applier.decode.columnar.avro_reader import Datums, Numbers, Records, Texts
from applier.decode.columnar.groups import GroupedReader, OldRows, Reader
from applier.decode.decoder import WireForm
from applier.decode.json_messages import MALFORMED, Tso
from applier.decode.options import DecoderOptions
from applier.decode.registry.framing import CONFLUENT, GLUE, Framing, framing_of
from applier.decode.registry.registries import open_registry
from applier.decode.registry.subjects import Subjects, SubjectSource
from applier.decode.registry.wire_format import RegistryReader, SchemaSource, WriterSchema
from applier.decode.row_schemas import Announcer
from applier.errors import DecodeError, IncompleteRow
from applier.runtime.decimals import of_unscaled
from applier.runtime.figures import counted

_DDL, _WATERMARK, _DELETE = 1, 2, 3
_MARKER_BYTES = 9
_OPS = {"c": Op.INSERT, "u": Op.UPDATE, "d": Op.DELETE, "": Op.UPSERT}
_NO_KEY_HINT = (
    "TiCDC gives a table whose only key is a unique index no Kafka key: set avro-include-before-value=true, "
    "or give the table a primary key."
)


class _Ddl(msgspec.Struct):
    query: str
    commit_ts: Tso = msgspec.field(name="commitTs")
    schema: str = ""
    table: str = ""


_DDL_DECODER = msgspec.json.Decoder(_Ddl)


def build(options: DecoderOptions) -> AvroDecoder:
    """A decoder from the changefeed's options; it connects to the registry at the first message."""
    registry = open_registry(options.registry)
    return AvroDecoder(registry, options.timezone, registry, framing_of(options.registry))


def row_version(key: int, value: int) -> int:
    """Version number of a row, of the numbers of the schemas of key and value; value 0 for a delete by its key."""
    return key << 31 | value


@dataclass(frozen=True, slots=True)
class _Layout:
    """How to turn the datums of one pair of schemas into images.

    Attributes:
        version: What its rows refer to.
        record: The schema of the datums.
        renamed: New name of each column, None to leave it out; None altogether where all names stay.
        text_decimals: Columns, by their new names, of decimals that come as text.
        lacking: What is known of columns that its rows lack; empty where they are whole.
    """

    version: TableVersion
    record: RecordSchema
    renamed: dict[str, str | None] | None
    text_decimals: tuple[str, ...]
    lacking: str = ""

    def image(self, datum: dict[str, Any]) -> Image:
        """The image in a datum of columns only; takes it over."""
        for name, scale in self.record.scales.items():
            unscaled = datum[name]
            if unscaled is not None:
                datum[name] = of_unscaled(int.from_bytes(unscaled, "big", signed=True), scale)
        if self.renamed is None:
            return datum
        renamed = ((self.renamed[name], value) for name, value in datum.items())
        return {name: value for name, value in renamed if name is not None}


class AvroDecoder:
    """Decoder of protocol `avro`.

    Before TiCDC v7.1 an update could be sent as an insert. Its schemas have an op field without a default; of v7.1
    itself the same is true with `enable-old-value=false`, which must not be combined with this decoder.

    TIMESTAMP text is written in the IANA zone of the TiCDC servers. The other schemas of a table come from `subjects`;
    None where only ids are known.
    """

    def __init__(
        self,
        registry: SchemaSource,
        zone: str = "UTC",
        subjects: SubjectSource | None = None,
        framing: Framing = CONFLUENT,
    ) -> None:
        self.wire = WireForm(binary="bytes", members="label", zone=zone)
        self._reader = RegistryReader(registry, framing=framing)
        self._subject_source = subjects
        self.bulk = GroupedReader(self._head, self._row_reader)
        self.restart()

    def restart(self) -> None:
        """Begin a pass; see `Decoder.restart`."""
        self._reader.restart()
        self._names = OriginalNames()
        self._layouts: dict[tuple[int, int], _Layout] = {}
        self._dated: dict[tuple[int, int, int], _Layout] = {}
        self._checksums = AvroChecksums(self.wire.zone)
        self._subjects = Subjects(self._subject_source)
        self._whole = WholeRows(self._subjects)
        self._announcer = Announcer()
        self.bulk.forget()

    def learn(self, version: TableVersion) -> None:
        """Know a version that this decoder emitted, or take names from one that a DDL described.

        Only a described version lists indexes, and all its tables have some: TiCDC refuses tables without a key.
        """
        self._reader.expect(version.fingerprints)
        if not version.indexes:
            self._announcer.learn(version)
            return
        self._names.learn(version)
        self._whole.learn(version)
        self._forget_layouts()

    def describe(
        self,
        shown: Shown,
        typed: Mapping[TableName, Sequence[TableVersion | None]],
        cuts: Mapping[TableName, Sequence[int]],
    ) -> None:
        """See `NamedByDdl`."""
        self._names.describe(shown, typed, cuts)
        self._whole.has_watermarks = shown.has_watermarks
        self._forget_layouts()

    def at(self, topic: str) -> None:
        """See `NamedByDdl`."""
        if topic != self._names.topic and self._names.shown.namesakes:
            self._forget_layouts()
        self._names.topic = topic

    def _forget_layouts(self) -> None:
        self._layouts.clear()
        self._dated.clear()
        self.bulk.forget()

    def owners(self, topic: str, value: bytes | None) -> frozenset[TableName]:
        """Tables whose rows a topic holds, by its subject; none for a DDL or a watermark, which concern others.

        Raises:
            TransientError: The registry could not be reached.
        """
        if value and value[0] in (_DDL, _WATERMARK):
            return frozenset()
        try:
            records = [record_schema(0, schema) for schema in self._subjects.of_topic(topic)]
            return frozenset(self._names.table(record.name) for record in records)
        except DecodeError:
            return frozenset()

    def decode(self, key: bytes | None, value: bytes | None) -> Sequence[Event]:
        """Decode one message; see `Decoder.decode`."""
        if value is None:
            return self._delete(key, 0)
        if self._reader.framing.holds(value):
            return self._row(key, value)
        kind = value[0] if value else -1
        if kind == _DDL:
            return (_schema_change(value),)
        if kind in (_WATERMARK, _DELETE) and len(value) == _MARKER_BYTES:
            ts = int.from_bytes(value[1:], "big", signed=True)
            if ts < 0:
                raise DecodeError(f"Its {'resolved' if kind == _WATERMARK else 'commit'} ts is no TSO.")
            return (Resolved(ts),) if kind == _WATERMARK else self._delete(key, ts)
        if any(other.holds(value) for other in (CONFLUENT, GLUE)):
            self._reader.schema_id(value)
        start = value[:2].hex() or "nothing"
        what = f"It begins with {start} and has {counted(len(value), 'byte')}, which is no message of TiCDC's avro."
        raise DecodeError(what, "is the protocol right?")

    def _row(self, key: bytes | None, value: bytes) -> Sequence[Event]:
        value_id = self._reader.schema_id(value)
        key_id = self._reader.schema_id(key) if key else 0
        layout = None
        try:
            layout = self._layouts.get((key_id, value_id)) or self._layout_of(key_id, value_id, value)
            return self._events(layout, self._reader.read(value_id, value))
        except DecodeError as error:
            error.concern(None if layout is None else layout.version.name, self._commit_ts(value_id, value))
            raise

    def _commit_ts(self, value_id: int, value: bytes) -> int:
        """Commit ts of a row that is refused; 0 where it shows none."""
        with suppress(DecodeError):
            datum = self._reader.read(value_id, value)
            commit_ts = datum.get(COMMIT_TS) if isinstance(datum, dict) else None
            return max(0, commit_ts) if isinstance(commit_ts, int) else 0
        return 0

    def _events(self, layout: _Layout, datum: dict[str, Any]) -> Sequence[Event]:
        extension = {name: datum.pop(name) for name in layout.record.extension}
        change = _row_change(layout, datum, extension)
        if layout.lacking and change.op is not Op.DELETE:
            raise refused(layout.version.name, layout.lacking)
        if CHECKSUM in extension and change.after is not None:
            self._checksums.verify(layout.version, change.commit_ts, change.after, extension)
        return self._announcer.events(layout.version, layout.text_decimals, change)

    def _delete(self, key: bytes | None, commit_ts: int) -> Sequence[Event]:
        layout = None
        try:
            if not key:
                raise IncompleteRow("A delete has no Kafka key, so it names no row.", _NO_KEY_HINT)
            key_id = self._reader.schema_id(key)
            layout = self._layouts.get((key_id, 0)) or self._layout_of(key_id, 0, commit_ts)
            image, version = layout.image(self._reader.read(key_id, key)), layout.version
            change = RowChange(version.name, version.version, commit_ts, Op.DELETE, image, None)
            return self._announcer.events(layout.version, layout.text_decimals, change)
        except DecodeError as error:
            error.concern(None if layout is None else layout.version.name, commit_ts)
            raise

    def _row_reader(
        self, beginning: Head, _key: bytes | None, _value: bytes | None, old_rows: OldRows
    ) -> Reader | None:
        """A reader of rows of schemas that were met and whose version was announced."""
        key_id, value_id = (self._reader.schema_id(part) if part else 0 for part in beginning)
        layout = self._layouts.get((key_id, value_id))
        if layout is None or layout.lacking or not self._announcer.knows(layout.version):
            return None
        writer, start = self._reader.writer(value_id or key_id), self._reader.framing.header_bytes
        kept = old_rows(layout.version.name)
        return _rows_reader(layout.version, layout.record, layout.renamed, writer, start, kept)

    def _head(self, key: bytes | None, value: bytes | None) -> Head | None:
        """What a message begins with; the value of a delete, which says no more than its commit ts, counts as empty."""
        size = self._reader.framing.header_bytes
        if value is None or (len(value) == _MARKER_BYTES and value[0] == _DELETE):
            return (key[:size], b"") if key else None
        return ((key or b"")[:size], value[:size]) if self._reader.framing.holds(value) else None

    def _record(self, number: int) -> RecordSchema:
        return record_schema(number, self._reader.writer(number).schema)

    def _layout_of(self, key_id: int, value_id: int, dated: bytes | int) -> _Layout:
        """The layout of a pair of schemas, made at its first row, which shows its commit ts if that counts."""
        record = self._record(value_id or key_id)
        if not (changes := self._names.changes(record.name)):
            layout = self._layouts[key_id, value_id] = self._made(record, key_id, value_id, 0)
            return layout
        ts = dated if isinstance(dated, int) else self._reader.read(value_id, dated).get(COMMIT_TS, 0)
        place = self._names.place(record.name, ts)
        if place is None:
            raise self._names.undated(record.name)
        key = key_id, value_id, bisect_left(changes, place)
        if key not in self._dated:
            self._dated[key] = self._made(record, key_id, value_id, place)
        return self._dated[key]

    def _made(self, record: RecordSchema, key_id: int, value_id: int, ts: int) -> _Layout:
        number = row_version(self._reader.number(key_id), self._reader.number(value_id))
        proofs = self._reader.fingerprints(key_id, value_id)
        key = tuple(column.name for column in self._record(key_id).columns) if key_id else ()
        layout = self._layout(record, number, key, ts, keys_only=not value_id)
        layout = replace(layout, version=replace(layout.version, schemas=proofs))
        if value_id and {column.name for column in record.columns} == set(key):
            version = layout.version
            lacking = self._whole.lacking(version.name, version.key, record, value_id)
            layout = replace(layout, version=replace(version, keys_only=bool(lacking)), lacking=lacking)
        if CHECKSUM in record.extension:
            self._checksums.learn(layout.version)
        return layout

    def _layout(self, record: RecordSchema, number: int, key: tuple[str, ...], ts: int, *, keys_only: bool) -> _Layout:
        """Layout with upstream names; columns of other names are another version."""
        name = self._names.table(record.name, ts)
        renamed = self._names.columns(name, [column.name for column in record.columns], ts)
        named = ((column, renamed[column.name]) for column in record.columns)
        columns = tuple(replace(column, name=new) for column, new in named if new is not None)
        handle = tuple(renamed.get(column) or column for column in key)
        decimals = tuple(renamed[column] or column for column in record.text_decimals)
        same = all(old == new for old, new in renamed.items())
        if not same:
            number = fingerprint(msgspec.json.encode([number, sorted(renamed.items())]))
        version = TableVersion(name, number, columns, handle_key=handle, keys_only=keys_only)
        return _Layout(version, record, None if same else renamed, decimals)


def _row_change(layout: _Layout, datum: dict[str, Any], extension: dict[str, Any]) -> RowChange:
    version, commit_ts, before = layout.version, extension.get(COMMIT_TS, 0), extension.get(BEFORE)
    letter = extension.get(OP, "")
    op = _OPS.get(letter)
    if op is None:
        raise DecodeError(f"Its {OP} is {letter!r:.20}, which is neither c, u nor d.")
    if op is Op.INSERT and not layout.record.op_has_default:
        op = Op.UPSERT
    if commit_ts < 0:
        raise DecodeError(f"Its {COMMIT_TS} is negative.")
    image = layout.image(datum)
    if op is Op.DELETE:
        return RowChange(version.name, version.version, commit_ts, op, image, None)
    old = None if before is None else layout.image(before)
    return RowChange(version.name, version.version, commit_ts, op, old, image)


def _schema_change(value: bytes) -> SchemaChange:
    try:
        ddl = _DDL_DECODER.decode(value[1:])
    except MALFORMED as error:
        raise DecodeError("It begins with the mark of a DDL, but what follows is none.") from error
    return SchemaChange(ddl.commit_ts, ddl.query, ddl.schema, table=ddl.table)


def _rows_reader(
    version: TableVersion,
    record: RecordSchema,
    renamed: Mapping[str, str | None] | None,
    writer: WriterSchema,
    start: int,
    kept: frozenset[Op],
) -> AvroRows | None:
    """A reader of the rows of one pair of schemas. None if they must be read one by one, or it raises ValueError.

    The record is what `writer` says: the schema of the rows, of deletes that of their keys. `renamed` has the upstream
    name of each column, None to leave it out; it is None altogether where all names stay. Datums begin at `start`.
    Old rows are asked for of the `kept` kinds of changes.
    """
    if writer.read_many is None or record.text_decimals or CHECKSUM in record.extension:
        return None
    names = renamed or {column.name: column.name for column in record.columns}
    fields = [(written, name, 1) for written, name in names.items() if name is not None]
    plan = RowPlan.of(version, version.version, writer.schema, fields)
    read = writer.read_many
    if version.keys_only:
        return AvroRows(plan, lambda datums, values: _deletes(read(datums), datums, values), start, kept, in_keys=True)
    insert = Op.INSERT if record.op_has_default else Op.UPSERT  # Else nothing shows that a row is new.
    return AvroRows(plan, lambda datums, _: _rows(read(datums), datums, insert), start, kept)


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
