"""Decodes TiCDC's Debezium messages in JSON into events.

A value is `{"payload": …, "schema": …}`, or the payload alone in the same wrapper with `debezium-disable-schema`. A
payload with `ddl` is a DDL, with op `m` a watermark, else a row. Rows with a schema describe themselves. Rows without
one are read with what the DDL before them said of their table: only that distinguishes milliseconds from microseconds.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, TypeVar

import msgspec

from applier.changefeed.event import Event, Image, Op, Resolved, RowChange
from applier.changefeed.table import TableName, TableVersion, fold
from applier.decode.bounded_cache import Bounded
from applier.decode.columnar.groups import GroupedReader, OldRows
from applier.decode.columnar.groups import Reader as RowReader
from applier.decode.debezium.ddl import Described, TableChange, schema_change
from applier.decode.debezium.json_columns import SCHEMA, Head, MessageHeads, rows_reader
from applier.decode.debezium.rows import (
    UNKNOWN_VERSION,
    ConnectField,
    Layout,
    Reader,
    declared_layout,
    held_image,
    little_endian,
    microseconds,
    operation,
    own_version,
    row_change,
)
from applier.decode.decoder import WireForm
from applier.decode.json_messages import MALFORMED, Tso
from applier.decode.large_messages import LargeMessages
from applier.decode.options import DecoderOptions
from applier.decode.row_schemas import Announcer
from applier.errors import DecodeError, IncompleteRow


class _Source(msgspec.Struct, gc=False):
    db: str
    table: str
    commit_ts: Tso


class _Payload(msgspec.Struct, rename={"database": "databaseName", "changes": "tableChanges"}, gc=False):
    source: _Source
    op: str | None = None
    before: dict[str, Any] | None = None
    after: dict[str, Any] | None = None
    ddl: str | None = None
    database: str | None = None
    changes: list[TableChange] | None = None


class _Message(msgspec.Struct, gc=False):
    payload: _Payload
    schema: msgspec.Raw = msgspec.Raw()


class _Image(msgspec.Struct):
    """The declared columns of one of the images; another member of the envelope has other ones, or none."""

    field: str
    fields: tuple[ConnectField, ...] = ()


class _Declared(msgspec.Struct):
    """The envelope that a Connect schema declares."""

    fields: list[_Image] = []


class _Key(msgspec.Struct, gc=False):
    payload: dict[str, Any]
    schema: _KeySchema | None = None


class _KeySchema(msgspec.Struct, gc=False):
    fields: list[_KeyField] | None = None


class _KeyField(msgspec.Struct, gc=False):
    field: str


_Read = TypeVar("_Read")

_MILLISECOND_DIGITS = 3
"""Digits of a DATETIME up to which its values count milliseconds, and beyond which microseconds."""

_HINT = "are protocol and compression right?"

_MESSAGE = msgspec.json.Decoder(_Message)
_DECLARED = msgspec.json.Decoder(_Declared)
_KEY = msgspec.json.Decoder(_Key)


class DebeziumDecoder:
    """Decoder of protocol `debezium`."""

    wire = WireForm(binary="base64", members="label", moved_years=True, double_decimals=True)

    def __init__(self, options: DecoderOptions) -> None:
        self._large = LargeMessages(options, lambda data: data[:1] == b"{")
        self._configured_keys = {fold(name): key for name, key in options.keys.items()}
        self._declared: Bounded[bytes, tuple[ConnectField, ...]] = Bounded()
        self._layouts: Bounded[tuple[TableName, tuple[str, ...]], tuple[bytes, frozenset[str], Layout]] = Bounded()
        self._untyped: Bounded[tuple[TableName, int, tuple[str, ...]], Layout] = Bounded()
        self.bulk = GroupedReader(MessageHeads(), self._row_reader)
        self.restart()

    def restart(self) -> None:
        """Begin a pass; see `Decoder.restart`."""
        self._announcer = Announcer()
        self._described = Described()
        self._untyped.clear()

    def learn(self, version: TableVersion) -> None:
        """Know a version that this decoder emitted, in a `Bootstrap` or as what a DDL left."""
        self._announcer.learn(version)
        self._described.learn(version)

    def decode(self, key: bytes | None, value: bytes | None) -> Sequence[Event]:
        """Decode one message; see `Decoder.decode`. A null value says nothing: deletes are messages of op `d`."""
        if value is None:
            return ()
        payload, schema = _split(self._large.decompress(value))
        source = payload.source
        if payload.ddl is not None:
            if payload.changes is None or payload.database is None:
                raise DecodeError("Its DDL lacks databaseName or tableChanges.", _HINT)
            name, database = TableName(source.db, source.table), payload.database or source.db
            return (schema_change(name, source.commit_ts, payload.ddl, database, payload.changes),)
        if payload.op == "m":
            return (Resolved(source.commit_ts),)
        try:
            return self._row(payload, schema, self._large.decompress(key) if key else b"")
        except DecodeError as error:
            error.concern(TableName(source.db, source.table), source.commit_ts)
            raise

    def _row(self, payload: _Payload, schema: bytes, key: bytes) -> Sequence[Event]:
        name, commit_ts = TableName(payload.source.db, payload.source.table), payload.source.commit_ts
        op = operation(payload.op)
        image = held_image(op, payload.before, payload.after)
        if schema:
            layout = self._declared_layout(name, schema, self._key_columns(name, key, commit_ts, image), image)
        else:
            described = self._described.in_force(name, commit_ts)
            if described is None or any(described.column(column) is None for column in image):
                after = None if op is Op.DELETE else payload.after
                return (RowChange(name, UNKNOWN_VERSION, commit_ts, op, payload.before, after),)
            names = self._key_columns(name, key, commit_ts, image)
            place = (name, described.version, names)
            known = self._untyped.get(place)
            if known is None:
                known = self._untyped[place] = described_layout(described, names)
            layout = known
        change = row_change(layout, op, commit_ts, payload.before, payload.after)
        return self._announcer.events(layout.version, layout.text_decimals, change)

    def _key_columns(self, name: TableName, key: bytes, commit_ts: int, held: Collection[str]) -> tuple[str, ...]:
        """Names of the key columns of a row that holds some columns; its Kafka key, not compressed, is b"" for none.

        TiCDC v8.0 to v8.4 writes no Kafka key, also for a table with a primary key: without one the key is unknown.
        """
        if key:
            return _key_names(key)
        names = self._configured_keys.get(fold(str(name)))
        if names is None:
            version = self._described.in_force(name, commit_ts)
            if version is None:
                raise _keyless(name)
            return version.key
        lost = [column for column in names if column not in held]
        if lost:
            what = f"A row of table {name} has no column {lost[0]}, which its configured key names."
            raise IncompleteRow(what, f"Name the columns of its primary key under [tables.keys]: {name}.")
        return names

    def _declared_layout(self, name: TableName, schema: bytes, key: tuple[str, ...], image: Image) -> Layout:
        # Comparing the schema with the last one of the table is ten times cheaper than hashing its kilobytes.
        known = self._layouts.get((name, key))
        if known is not None and known[0] == schema and known[1] == image.keys():
            return known[2]
        fields = self._declared.get(schema)
        if fields is None:
            fields = self._declared[schema] = _fields(schema)
        layout = declared_layout(name, fields, key, image.keys())
        self._layouts[name, key] = (schema, frozenset(image), layout)
        return layout

    def _row_reader(self, head: Head, key: bytes | None, value: bytes | None, old_rows: OldRows) -> RowReader | None:
        """A reader of rows like this one, if its version was announced."""
        (payload, schema), names = _split(value or b""), _key_names(key or b"")
        name = TableName(payload.source.db, payload.source.table)
        image = held_image(operation(payload.op), payload.before, payload.after)
        layout = self._declared_layout(name, schema, names, image)
        if not self._announcer.knows(layout.version):
            return None
        return rows_reader(head, layout, self._declared.get(schema) or _fields(schema), names, old_rows(name))


def described_layout(described: TableVersion, key: tuple[str, ...]) -> Layout:
    """Layout of rows without a schema, from what a DDL said of their table, and the key columns of their Kafka key."""
    version = described
    if key and set(key) != set(described.key):
        version = own_version(TableVersion(described.name, 0, described.columns, handle_key=key))
    readers = {column.name: _untyped_reader(column.type.name, column.type.scale) for column in described.columns}
    return Layout(version, {column: reader for column, reader in readers.items() if reader is not None})


def _untyped_reader(name: str, scale: int | None) -> Reader | None:
    if name == "datetime" and scale is None:
        return _unknown_unit
    if name == "datetime" and scale is not None and scale <= _MILLISECOND_DIGITS:
        return microseconds
    return little_endian if name == "bit" else None


def _unknown_unit(_count: Any) -> int:
    """Milliseconds or microseconds: only the digits of the column show which."""
    raise ValueError


def _split(value: bytes) -> tuple[_Payload, bytes]:
    """Payload and schema of a value; b"" for no schema.

    The payload comes first and is a tenth of the message. A quote inside a JSON string is always escaped, so what looks
    like the start of the schema is the start of the schema, and its kilobytes need not be parsed again for each row.
    """
    at, what = value.find(SCHEMA), "It is not a Debezium message of TiCDC in JSON"
    if at < 0 or not value.endswith(b"}"):
        message = _read(_MESSAGE, value, what, _HINT)
        return message.payload, bytes(message.schema)
    return _read(_MESSAGE, value[:at] + b"}", what, _HINT).payload, value[at + len(SCHEMA) - 1 : -1]


def _fields(schema: bytes) -> tuple[ConnectField, ...]:
    envelope = _read(_DECLARED, schema, "Its schema is none of Kafka Connect")
    row = next((node for node in envelope.fields if node.field in ("after", "before")), None)
    if row is None:
        raise DecodeError("Its schema declares neither before nor after.")
    return row.fields


def _key_names(key: bytes) -> tuple[str, ...]:
    """Names of the key columns; () of a table without any key, whose Kafka key has an empty payload."""
    found = _read(_KEY, key, "Its key is not a Debezium key of TiCDC in JSON")
    declared = None if found.schema is None else found.schema.fields
    if declared is not None and {column.field for column in declared} != found.payload.keys():
        raise DecodeError("Its key does not hold the columns that its schema declares.")
    return tuple(found.payload)


def _read(decoder: msgspec.json.Decoder[_Read], data: bytes, what: str, hint: str = "") -> _Read:
    try:
        return decoder.decode(data)
    except MALFORMED as error:
        reason = str(error) if isinstance(error, msgspec.MsgspecError) else type(error).__name__
        raise DecodeError(f"{what} ({reason}).", hint) from error


def _keyless(name: TableName) -> IncompleteRow:
    what = f"A row of table {name} has no Kafka key, so its primary key is unknown: TiCDC v8.0 to v8.4 writes none."
    way_out = (
        f'Set "{name}" = ["COLUMN"] under [tables.keys], with [] for a table without any key; or name a folder '
        "with its CREATE TABLE as upstream.schemas; or upgrade TiCDC."
    )
    return IncompleteRow(what, way_out)
