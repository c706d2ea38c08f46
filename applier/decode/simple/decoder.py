"""Decodes one message of TiCDC's Simple protocol, in JSON or Avro, compressed or not, into its event.

Every message is one event. Rows refer to the schema of their table by (name, version), which DDL and BOOTSTRAP messages
carry; a RENAME or TRUNCATE keeps the version. Columns that a message leaves out (virtual generated ones, and what
`column-selectors` remove) are absent from the images: nothing is known of them.
"""

from __future__ import annotations

from collections.abc import Sequence

from applier.changefeed.event import Bootstrap, Event, Op, Resolved, RowChange, SchemaChange
from applier.changefeed.table import TableName, TableVersion
from applier.decode.bounded_cache import Bounded
from applier.decode.columnar.groups import GroupedReader, OldRows, Reader, TypeHeads
from applier.decode.decoder import WireForm
from applier.decode.json_messages import JSON_START, PROTOCOL_HINT, begins_as_json, read_json
from applier.decode.large_messages import ClaimedMessage, LargeMessages, RowMark
from applier.decode.options import DecoderOptions
from applier.decode.simple import avro_columns, avro_form, json_form
from applier.decode.simple.json_form import SimpleEnvelope, SimpleTableSchema
from applier.decode.values.checksum import RowChecksums
from applier.errors import DecodeError, IncompleteRow

_WHAT = "of the Simple protocol"
_OPS = {"INSERT": Op.INSERT, "UPDATE": Op.UPDATE, "DELETE": Op.DELETE}
_DDL = frozenset({"CREATE", "RENAME", "CINDEX", "DINDEX", "ERASE", "TRUNCATE", "ALTER", "QUERY"})
_AVRO_START = avro_form.ROW[0]


class SimpleDecoder:
    """Decoder of the Simple protocol; JSON and Avro are distinguished by their first bytes."""

    def __init__(self, options: DecoderOptions) -> None:
        self.wire = WireForm(binary="base64", members="index", zone=options.nameless_zone)
        self.large = LargeMessages(options, _is_plain)
        self._checksums = RowChecksums()
        self._names: Bounded[tuple[str, str], TableName] = Bounded()
        self._versions: dict[tuple[TableName, int], TableVersion] = {}
        self._type_heads = TypeHeads()
        self.bulk = GroupedReader(self._head, self._row_reader)

    def restart(self) -> None:
        """Begin a pass; see `Decoder.restart`."""
        self._checksums = RowChecksums()
        self._versions.clear()

    def learn(self, version: TableVersion) -> None:
        """Make a table version known. Rows are decoded without; only their checksums and the quick way need it."""
        self._checksums.learn(version)
        self._versions[version.name, version.version] = version

    def decode(self, key: bytes | None, value: bytes | None) -> Sequence[Event]:
        """Decode one message; the key says nothing in this protocol."""
        del key
        if not value:
            raise DecodeError("The message has no value.", PROTOCOL_HINT)
        envelope = self._read(value)
        op = _OPS.get(envelope.type)
        if op is None:
            _refuse_undated(envelope)
            return self._other(envelope)
        try:
            _refuse_undated(envelope)
            return (self._row(envelope, op),)
        except DecodeError as error:
            error.concern(TableName(envelope.database, envelope.table), envelope.commit_ts)
            raise

    def _read(self, value: bytes) -> SimpleEnvelope:
        if value[:2] != JSON_START:
            value = self.large.decompress(value)
        envelope = read_json(json_form.ENVELOPES, value, _WHAT) if value[:2] == JSON_START else avro_form.read(value)
        if envelope.version != 1:
            hint = "This applier reads version 1; upgrade it."
            raise DecodeError(f"The message is of version {envelope.version} of the Simple protocol.", hint)
        return envelope

    def _row(self, envelope: SimpleEnvelope, op: Op) -> RowChange:
        if envelope.claim_check_location is not None:
            # Before the next: such a message also holds the key columns, and is marked as if there were no more.
            envelope = self.large.claimed(_mark(envelope), envelope.claim_check_location, self._claimed)
        before = None if op is Op.INSERT else envelope.old
        after = None if op is Op.DELETE else envelope.data
        is_reduced = envelope.handle_key_only and op is not Op.DELETE
        if is_reduced:
            self.large.admit_reduced(_mark(envelope))
        if (before if op is Op.DELETE else after) is None:
            raise _incomplete(envelope, "row")
        if op is Op.UPDATE and before is None:
            # It may have moved the row to another key, and the row under the old one would stay.
            raise _incomplete(envelope, "old row")
        pair = (envelope.database, envelope.table)
        name = self._names.get(pair)
        if name is None:
            if not all(pair):
                raise DecodeError("The message holds a row but does not name its table.")
            name = self._names[pair] = TableName(*pair)
        if not envelope.schema_version:
            what = f"The {envelope.type} of a row of {name} does not name its schema version."
            raise DecodeError(what, PROTOCOL_HINT)
        change = RowChange(name, envelope.schema_version, envelope.commit_ts, op, before, after, is_reduced)
        if envelope.checksum is not None:
            self._checksums.verify(change, envelope.checksum)
        return change

    def _head(self, key: bytes | None, value: bytes | None) -> bytes | None:
        """What a message begins with, in JSON or in Avro, which a changefeed may turn to half-way."""
        return avro_columns.head(value) if value and value[0] == _AVRO_START else self._type_heads(key, value)

    def _row_reader(self, _head: bytes, _key: bytes | None, value: bytes | None, old_rows: OldRows) -> Reader | None:
        """A reader of rows like this one, if it is whole and its columns and key are known."""
        envelope = self._read(value or b"")
        op = _OPS.get(envelope.type)
        version = self._versions.get((TableName(envelope.database, envelope.table), envelope.schema_version))
        if op is None or version is None:
            return None
        kept = old_rows(version.name)
        if value and value[0] == _AVRO_START:
            return avro_columns.rows_reader(envelope, version, kept)
        return json_form.row_reader(envelope, op, version, kept)

    def _claimed(self, claimed: ClaimedMessage) -> tuple[RowMark, SimpleEnvelope]:
        large = self._read(claimed.value)
        return _mark(large), large

    def _other(self, envelope: SimpleEnvelope) -> Sequence[Event]:
        if envelope.type == "WATERMARK":
            return (Resolved(envelope.commit_ts),)
        if envelope.type == "BOOTSTRAP":
            if envelope.table_schema is None:
                raise DecodeError("The BOOTSTRAP message holds no table.")
            version = self._version(envelope.table_schema)
            return () if version is None else (Bootstrap(version),)
        if envelope.type in _DDL:
            return (self._schema_change(envelope),)
        hint = "Check that changefeed.protocol names the protocol of the sink, or upgrade the applier."
        raise DecodeError("The message is of a type that the Simple protocol does not have.", hint)

    def _schema_change(self, envelope: SimpleEnvelope) -> SchemaChange:
        if not envelope.sql:
            raise DecodeError("The DDL message holds no statement.", PROTOCOL_HINT)
        schema, previous = envelope.table_schema, envelope.pre_table_schema
        return SchemaChange(
            commit_ts=envelope.commit_ts,
            sql=envelope.sql,
            database="" if schema is None else schema.name.database,
            after=None if schema is None else self._version(schema),
            before=None if previous is None else self._version(previous),
        )

    def _version(self, schema: SimpleTableSchema) -> TableVersion | None:
        if not schema.name.database or not schema.name.table:
            raise DecodeError("The message describes a table without its name.", PROTOCOL_HINT)
        version = schema.to_version(avro=bool(schema.database))
        if version is not None:
            self._checksums.learn(version)
        return version


def _is_plain(value: bytes) -> bool:
    # No snappy block begins as Avro either: no message is as short as 0x16 bytes.
    return begins_as_json(value) or value[:3] in avro_form.KINDS


def _refuse_undated(envelope: SimpleEnvelope) -> None:
    if not envelope.commit_ts and envelope.type != "BOOTSTRAP":
        raise DecodeError(f"The {envelope.type} message has no commit ts.", PROTOCOL_HINT)


def _mark(envelope: SimpleEnvelope) -> RowMark:
    location = envelope.claim_check_location
    row, old = (envelope.old, None) if envelope.type == "DELETE" else (envelope.data, envelope.old)
    return RowMark(envelope.database, envelope.table, envelope.type, envelope.commit_ts, location, row, old)


def _incomplete(envelope: SimpleEnvelope, lacking: str) -> IncompleteRow:
    return IncompleteRow(f"The {envelope.type} of a row of {_mark(envelope).title} holds no {lacking}.")
