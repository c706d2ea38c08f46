"""One message of TiCDC's Simple protocol in, JSON or Avro, compressed or not; its event out.

Every message is one event. Rows refer to the schema of their table by (name, version), which DDL and BOOTSTRAP messages
carry; a RENAME or TRUNCATE keeps the version. Columns that a message leaves out (virtual generated ones, and what
`column-selectors` remove) are absent from the images: nothing is known of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np

from applier.changefeed.event import Bootstrap, Event, Op, Resolved, RowChange, SchemaChange
from applier.changefeed.message import MAX_MESSAGE_BYTES
from applier.changefeed.row_block import Block
from applier.changefeed.table import TableName, TableVersion
from applier.decode.bounded_cache import Bounded
from applier.decode.claim_check import ClaimCheck, optional
from applier.decode.columnar.groups import GroupedReader, Reader
from applier.decode.columnar.structs import Bulk, BulkReader, RowReader
from applier.decode.compression import Compression, decompress
from applier.decode.decoder import Capabilities
from applier.decode.options import DecoderOptions
from applier.decode.simple import avro_columns, avro_form, json_form
from applier.decode.simple.json_form import SimpleEnvelope
from applier.decode.simple.table_schema import SimpleTableSchema
from applier.decode.values.checksum import RowChecksums
from applier.decode.values.wire_format import WireForm
from applier.errors import DecodeError, IncompleteRow

CAPABILITIES = Capabilities(
    resolved_ts="always",
    commit_ts="always",
    ddl="always",
    old_values="always",
    schema="messages",
    exact_decimals=True,
)

_OPS = {"INSERT": Op.INSERT, "UPDATE": Op.UPDATE, "DELETE": Op.DELETE}
_DDL = frozenset({"CREATE", "RENAME", "CINDEX", "DINDEX", "ERASE", "TRUNCATE", "ALTER", "QUERY"})
_JSON_START = b'{"'
_PROTOCOL_HINT = "Check that changefeed.protocol names the protocol of the sink."
_WHOLE_ROWS = (
    "Set large-message-handle-option to claim-check in the changefeed and changefeed.claim_check here, "
    "or raise max-message-bytes, so that messages hold whole rows."
)


def build(options: DecoderOptions) -> SimpleDecoder:
    """The decoder for a changefeed with these options."""
    claim_check = optional(options.claim_check, options.max_bytes)
    return SimpleDecoder(options.timezone, options.compression, claim_check, options.max_bytes)


class SimpleDecoder:
    """Decoder of the Simple protocol; JSON and Avro are distinguished by their first bytes.

    Args:
        timezone: Unused by Simple's own values, which name their zone.
        compression: What the changefeed uses; None detects it from the bytes.
        claim_check: Where large messages lie.
        max_bytes: Size of a decompressed message beyond which it is refused.
    """

    capabilities = CAPABILITIES

    def __init__(
        self,
        timezone: str = "UTC",
        compression: Compression | None = None,
        claim_check: ClaimCheck | None = None,
        max_bytes: int = MAX_MESSAGE_BYTES,
    ) -> None:
        self.wire = WireForm(binary="base64", members="index", zone=timezone)
        self._compression = compression
        self._claim_check = claim_check
        self._max_bytes = max_bytes
        self._checksums = RowChecksums()
        self._names: Bounded[tuple[str, str], TableName] = Bounded()
        self._versions: dict[tuple[TableName, int], TableVersion] = {}
        self.bulk = BothForms(
            BulkReader(json_form.TYPE_MARK, self._row_reader),
            GroupedReader(avro_columns.head, self._avro_reader),
        )

    def learn(self, version: TableVersion) -> None:
        """Make a table version known. Rows are decoded without; only their checksums and the quick way need it."""
        self._checksums.learn(version)
        self._versions[version.name, version.version] = version

    def decode(self, key: bytes | None, value: bytes | None) -> Sequence[Event]:
        """Decode one message; the key says nothing in this protocol."""
        if not value:
            raise DecodeError("The message has no value.", _PROTOCOL_HINT)
        envelope = self._read(value)
        op = _OPS.get(envelope.type)
        if not envelope.commit_ts and envelope.type != "BOOTSTRAP":
            raise DecodeError(f"The {envelope.type} message has no commit ts.", _PROTOCOL_HINT)
        return (self._row(envelope, op),) if op is not None else self._other(envelope)

    def _read(self, value: bytes) -> SimpleEnvelope:
        if value[:2] != _JSON_START:
            value = decompress(value, self._compression, _is_plain, self._max_bytes)
        envelope = json_form.read(value) if value[:2] == _JSON_START else avro_form.read(value)
        if envelope.version != 1:
            hint = "This applier reads version 1; upgrade it."
            raise DecodeError(f"The message is of version {envelope.version} of the Simple protocol.", hint)
        return envelope

    def _row(self, envelope: SimpleEnvelope, op: Op) -> RowChange:
        if envelope.claim_check_location is not None:
            # Before handle_key_only: such a message holds the key columns, too, and is marked as if there was no more.
            envelope = self._claimed(envelope, envelope.claim_check_location)
        before = None if op is Op.INSERT else envelope.old
        after = None if op is Op.DELETE else envelope.data
        if envelope.handle_key_only and op is not Op.DELETE:
            raise _handle_key_only(envelope)
        if (before if op is Op.DELETE else after) is None:
            raise IncompleteRow(
                f"The {envelope.type} of a row of {_table(envelope)} holds no row.", "", _name(envelope)
            )
        if op is Op.UPDATE and before is None:
            # It may have moved the row to another key, and the row under the old one would stay.
            raise IncompleteRow(f"The UPDATE of a row of {_table(envelope)} holds no old row.", "", _name(envelope))
        name = self._name(envelope)
        if not envelope.schema_version:
            what = f"The {envelope.type} of a row of {name} does not name its schema version."
            raise DecodeError(what, _PROTOCOL_HINT)
        change = RowChange(name, envelope.schema_version, envelope.commit_ts, op, before, after)
        if envelope.checksum is not None:
            self._checksums.verify(change, envelope.checksum)
        return change

    def _row_reader(self, value: bytes) -> RowReader | None:
        """A reader of rows like this one, if it is whole and JSON and its columns and key are known."""
        with suppress(DecodeError):
            envelope = json_form.read(value)
            op = _OPS.get(envelope.type)
            version = self._versions.get((TableName(envelope.database, envelope.table), envelope.schema_version))
            if op is not None and version is not None:
                return json_form.row_reader(envelope, op, version)
        return None

    def _avro_reader(self, _head: bytes, _key: bytes | None, value: bytes | None) -> Reader | None:
        """The same for Avro."""
        with suppress(DecodeError):
            envelope = avro_form.read(value or b"")
            version = self._versions.get((TableName(envelope.database, envelope.table), envelope.schema_version))
            names = list(envelope.data or envelope.old or ())
            if version is not None and names:
                return avro_columns.rows_reader(names, version, envelope.schema_version)
        return None

    def _name(self, envelope: SimpleEnvelope) -> TableName:
        pair = (envelope.database, envelope.table)
        name = self._names.get(pair)
        if name is None:
            if not envelope.database or not envelope.table:
                raise DecodeError("The message holds a row but does not name its table.")
            name = self._names[pair] = TableName(*pair)
        return name

    def _claimed(self, envelope: SimpleEnvelope, location: str) -> SimpleEnvelope:
        """The large message in place of the one that stands for it."""
        if self._claim_check is None:
            what = f"A row of {_table(envelope)} lies in the claim-check storage, which is not configured."
            hint = "Set changefeed.claim_check to the changefeed's claim-check-storage-uri."
            raise IncompleteRow(what, hint, _name(envelope))
        large = self._read(self._claim_check.fetch(location).value)
        if _identity(large) != _identity(envelope) or large.claim_check_location is not None:
            name = location.rsplit("/", 1)[-1]
            what = f"The claim-check file {name} does not hold the row of {_table(envelope)} that names it."
            raise DecodeError(what, "Check that changefeed.claim_check is the storage of this very changefeed.")
        return large

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
            raise DecodeError("The DDL message holds no statement.", _PROTOCOL_HINT)
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
            raise DecodeError("The message describes a table without its name.", _PROTOCOL_HINT)
        version = schema.to_version(avro=bool(schema.database))
        if version is not None:
            self._checksums.learn(version)
        return version


class BothForms:
    """The `Bulk` of Simple: of messages in JSON and of those in Avro, which a changefeed may turn to half-way."""

    def __init__(self, texts: Bulk, datums: Bulk) -> None:
        self._texts = texts
        self._datums = datums

    def read(self, keys: Sequence[bytes | None], values: Sequence[bytes | None]) -> tuple[list[Block], Sequence[int]]:
        """See `Bulk`."""
        blocks, rest = self._texts.read(keys, values)
        if all((values[place] or _JSON_START).startswith(_JSON_START) for place in rest):
            return list(blocks), rest
        more, left = self._datums.read([keys[place] for place in rest], [values[place] for place in rest])
        moved = [replace(block, places=np.array(rest)[block.places]) for block in more]
        return [*blocks, *moved], [rest[place] for place in left]


def _is_plain(value: bytes) -> bool:
    # Neither can be the start of a snappy block: `"` as its first tag would copy from before the block, and no message
    # is as short as 0x16 bytes.
    return value[:2] == _JSON_START or value[:3] in avro_form.KINDS


def _identity(envelope: SimpleEnvelope) -> tuple[str, str, str, int]:
    return envelope.database, envelope.table, envelope.type, envelope.commit_ts


def _name(envelope: SimpleEnvelope) -> tuple[str, str]:
    return envelope.database, envelope.table


def _table(envelope: SimpleEnvelope) -> str:
    return f"{envelope.database}.{envelope.table}"


def _handle_key_only(envelope: SimpleEnvelope) -> IncompleteRow:
    return IncompleteRow(
        f"The {envelope.type} of a row of {_table(envelope)} holds key columns only, "
        "because large-message-handle-option is handle-key-only.",
        _WHOLE_ROWS,
        _name(envelope),
    )
