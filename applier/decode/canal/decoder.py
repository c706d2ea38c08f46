"""Decodes one Canal-JSON message, TiCDC's or official Canal's, compressed or not, into its events.

A message is one row change of TiCDC or any number of one kind of official Canal, one DDL, or one watermark. Rows say
the type of each of their columns; `mysqlType` is a Go map in random order, `data` is in the table's order. Without
`enable-tidb-extension`, and from official Canal, rows and DDL have no commit ts and there are no watermarks.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import repeat
from typing import Annotated, TypeAlias

import msgspec

from applier.changefeed.event import Event, Op, Resolved, RowChange, SchemaChange
from applier.changefeed.table import Column, ColumnType, Index, TableName, TableVersion
from applier.changefeed.ts import from_unix_ms
from applier.decode.bounded_cache import BoundedLists
from applier.decode.canal.columns import row_reader
from applier.decode.columnar.groups import GroupedReader, OldRows, TypeHeads
from applier.decode.columnar.json_columns import JsonRows
from applier.decode.decoder import WireForm
from applier.decode.json_messages import JSON_START, PROTOCOL_HINT, Tso, begins_as_json, read_json
from applier.decode.large_messages import ClaimedMessage, LargeMessages, RowMark
from applier.decode.options import DecoderOptions
from applier.decode.row_schemas import SIGNED, Announcer, Description, describe
from applier.errors import DecodeError, IncompleteRow

_Row = dict[str, str | None]

_OPS = {"INSERT": Op.INSERT, "UPDATE": Op.UPDATE, "DELETE": Op.DELETE}
_UPDATE, _DELETE = Op.UPDATE, Op.DELETE  # A member is slow to reach through its class, and this is done for each row.
_MARKERS = frozenset({"GTID", "XACOMMIT", "XAROLLBACK", "MHEARTBEAT"})
"""What official Canal says of transactions and of itself."""

_TYPE = re.compile(r"\s*([A-Za-z]+)\s*(?:\((.*)\))?\s*((?:unsigned|zerofill|signed|\s)*)", re.DOTALL | re.IGNORECASE)
_MEMBER = re.compile(r"'((?:[^']|'')*)'")
_ESCAPE = re.compile(r"''|\\[0nr]")
_PLAIN = {"''": "'", r"\0": "\0", r"\n": "\n", r"\r": "\r"}
_SECONDS = frozenset({"time", "datetime", "timestamp"})


class Extension(msgspec.Struct, gc=False, rename="camel"):
    """TiDB's extension, the member `_tidb`. Rows can have more members (`rowkey`); they say nothing of the row."""

    commit_ts: Tso | None = None
    watermark_ts: Tso | None = None
    only_handle_key: bool = False
    claim_check_location: str | None = None


class CanalEnvelope(
    msgspec.Struct, gc=False, rename={"pk_names": "pkNames", "is_ddl": "isDdl", "mysql_type": "mysqlType"}
):
    """The members of a message that say something; `ts` does not: it is the time of sending, also of sending again.

    `es` is the commit time in milliseconds: too coarse to order rows by, but it shows which came before a DDL.
    """

    type: str
    database: str | None = ""
    table: str | None = ""
    es: Annotated[int, msgspec.Meta(ge=0, le=1 << 44)] | None = None
    pk_names: list[str] | msgspec.UnsetType | None = msgspec.UNSET
    is_ddl: bool | None = False
    sql: str | None = ""
    mysql_type: dict[str, str] | None = None
    data: list[_Row] | None = None
    old: list[_Row | None] | None = None
    extension: Extension | None = msgspec.field(default=None, name="_tidb")


_Seen: TypeAlias = tuple[list[str], dict[str, str] | None, list[str] | msgspec.UnsetType | None, Description]
"""Names, types and key columns as they came, to be recognised by, and what they stand for."""

_ENVELOPES = msgspec.json.Decoder(CanalEnvelope)


class CanalJsonDecoder:
    """Decoder of Canal-JSON. In a feed by offset `es` stands in for the commit ts of messages without the extension."""

    def __init__(self, options: DecoderOptions) -> None:
        self._by_offset = options.by_offset
        self.wire = WireForm(binary="latin1", members="index", zone=options.timezone)
        self.large = LargeMessages(options, begins_as_json)
        self.bulk = GroupedReader(TypeHeads(), self._row_reader)
        self.restart()

    def restart(self) -> None:
        """Begin a pass; see `Decoder.restart`."""
        self._announcer = Announcer()
        self._seen: BoundedLists[tuple[str | None, str | None], _Seen] = BoundedLists()

    def learn(self, version: TableVersion) -> None:
        """Make a table version known, so that no Bootstrap for it is needed."""
        self._announcer.learn(version)

    def decode(self, key: bytes | None, value: bytes | None) -> Sequence[Event]:
        """Decode one message; the key says nothing in this protocol."""
        del key
        envelope = self._read(value)
        op = _OPS.get(envelope.type)
        if op is None or envelope.is_ddl:
            return self._other(envelope)
        commit_ts, extension = 0, envelope.extension
        try:
            commit_ts = self._commit_ts(envelope)
            whole = envelope
            if extension is not None and (extension.claim_check_location is not None or extension.only_handle_key):
                whole = self._whole(envelope, extension, op)
            return self._rows(whole, op, commit_ts)
        except DecodeError as error:
            error.concern(_mark(envelope).name, commit_ts)
            raise

    def _read(self, value: bytes | None) -> CanalEnvelope:
        if not value:
            raise DecodeError("The message has no value.", PROTOCOL_HINT)
        if value[:2] != JSON_START:
            value = self.large.decompress(value)
        return read_json(_ENVELOPES, value, "Canal-JSON")

    def _rows(self, envelope: CanalEnvelope, op: Op, commit_ts: int) -> list[Event]:
        rows = envelope.data
        if not rows:
            what = f"The {envelope.type} of rows of {_title(envelope)} holds no row."
            raise IncompleteRow(what, _row_hint(envelope))
        names = list(rows[0])
        extension = envelope.extension
        is_reduced = extension is not None and extension.only_handle_key and op is not _DELETE
        description = self._recognise(envelope, names, keys_only=is_reduced)
        olds = envelope.old if op is _UPDATE else None
        if op is _UPDATE and (not olds or None in olds):
            # It may have moved a row to another key, and the row under the old one would stay.
            raise IncompleteRow(f"The UPDATE of rows of {_title(envelope)} holds no old row.")
        if len(rows) == 1 and (olds is None or len(olds) == 1):
            return self._change(description, op, commit_ts, rows[0], olds[0] if olds else None, is_reduced=is_reduced)
        if any(list(row) != names for row in rows):
            raise DecodeError(f"The rows of one message of {_title(envelope)} have different columns.", PROTOCOL_HINT)
        if olds is not None and len(olds) != len(rows):
            what = f"An UPDATE of {_title(envelope)} holds {len(rows)} new rows and {len(olds)} old ones."
            raise DecodeError(what, PROTOCOL_HINT)
        pairs = zip(rows, olds or repeat(None), strict=False)
        return [event for row, old in pairs for event in self._change(description, op, commit_ts, row, old)]

    def _change(
        self,
        description: Description,
        op: Op,
        commit_ts: int,
        row: _Row,
        old: _Row | None,
        *,
        is_reduced: bool = False,
    ) -> list[Event]:
        events: list[Event] = []
        if not description.fits(row):
            events += self._announcer.settle(description, row)
        before, after = (row, None) if op is _DELETE else (old, row)
        if old is not None and len(old) != len(row):
            # A column that `old` lacks did not change; one that is null in it was NULL.
            before = {**row, **old}
        name, number = description.version.name, description.number or 0
        events.append(RowChange(name, number, commit_ts, op, before, after, is_reduced))
        return events

    def _whole(self, envelope: CanalEnvelope, extension: Extension, op: Op) -> CanalEnvelope:
        """The message that holds the rows: itself, or the large one that lies in the claim-check storage."""
        if extension.claim_check_location is not None:
            return self.large.claimed(_mark(envelope), extension.claim_check_location, self._claimed)
        if op is not _DELETE:
            self.large.admit_reduced(_mark(envelope))
        if not envelope.pk_names and envelope.data:
            # A table without a primary key has a unique one, else TiCDC would not send rows so: these very columns.
            envelope.pk_names = list(envelope.data[0])
        return envelope

    def _claimed(self, claimed: ClaimedMessage) -> tuple[RowMark | None, CanalEnvelope]:
        large = self._read(claimed.value)
        return None if large.extension is None or len(large.data or ()) != 1 else _mark(large), large

    def _recognise(self, envelope: CanalEnvelope, names: list[str], *, keys_only: bool = False) -> Description:
        """The rows' description, worked out when it is first met."""
        types, key = envelope.mysql_type, envelope.pk_names
        place = (envelope.database, envelope.table)
        for known_names, known_types, known_key, description in self._seen.get(place, ()):
            is_alike = known_names == names and known_types == types and known_key == key
            if is_alike and description.version.keys_only is keys_only:
                return description
        description = _describe(envelope, names, keys_only=keys_only)
        self._seen.keep(place, (names, types, key, description))
        return description

    def _row_reader(self, _head: bytes, _key: bytes | None, value: bytes | None, old_rows: OldRows) -> JsonRows | None:
        """A reader of rows like this one, if it is one whole row and its version has been announced."""
        envelope = self._read(value)
        op, rows, extension = _OPS.get(envelope.type), envelope.data, envelope.extension
        if op is None or envelope.is_ddl or rows is None or len(rows) != 1 or extension is None:
            return None
        if extension.claim_check_location is not None or extension.only_handle_key:
            return None
        description = self._recognise(envelope, list(rows[0]))
        if not description.fits(rows[0]):
            return None
        kept = old_rows(description.version.name)
        return row_reader(value or b"", op, description, envelope.mysql_type or {}, list(rows[0]), kept)

    def _commit_ts(self, envelope: CanalEnvelope) -> int:
        """The commit ts; in a feed by offset, without the extension, its time; else 0 without the extension."""
        extension = envelope.extension
        if extension is not None and extension.commit_ts is not None:
            return extension.commit_ts
        if extension is not None and not self._by_offset:
            raise DecodeError(f"The {envelope.type} message has a member _tidb without a commit ts.", PROTOCOL_HINT)
        if not self._by_offset:
            return 0
        if envelope.es is None:
            raise DecodeError(f"The {envelope.type} message has neither a commit ts nor a time.", PROTOCOL_HINT)
        return from_unix_ms(envelope.es)

    def _other(self, envelope: CanalEnvelope) -> Sequence[Event]:
        extension = envelope.extension
        if envelope.is_ddl:
            if not envelope.sql:
                raise DecodeError("The DDL message holds no statement.", PROTOCOL_HINT)
            database, table = envelope.database or "", envelope.table or ""
            return (SchemaChange(self._commit_ts(envelope), envelope.sql, database, table=table),)
        if envelope.type == "TIDB_WATERMARK":
            if extension is None or extension.watermark_ts is None:
                raise DecodeError("The watermark message holds no watermark.")
            return (Resolved(extension.watermark_ts),)
        if envelope.type in _MARKERS:
            return ()
        raise DecodeError("The message is of a type that Canal-JSON does not have.", PROTOCOL_HINT)


def _describe(envelope: CanalEnvelope, names: list[str], *, keys_only: bool = False) -> Description:
    if envelope.pk_names is msgspec.UNSET:
        raise DecodeError(f"The {envelope.type} of rows of {_title(envelope)} has no member pkNames.", PROTOCOL_HINT)
    types, key = envelope.mysql_type or {}, tuple(envelope.pk_names or ())
    if not envelope.database or not envelope.table:
        raise DecodeError("The message holds a row but does not name its table.", PROTOCOL_HINT)
    if not names or types.keys() != set(names):
        raise DecodeError(f"The columns and the types of a row of {_title(envelope)} do not agree.", PROTOCOL_HINT)
    if not types.keys() >= set(key):
        hint = "The key columns must not be left out by `column-selectors`."
        what = f"The {envelope.type} of a row of {_title(envelope)} lacks key columns."
        raise IncompleteRow(what, hint)
    columns = [Column(name, column_type(types[name]), nullable=name not in key) for name in names]
    indexes = (Index("PRIMARY", key, unique=True, primary=True),) if key else ()
    return describe(TableName(envelope.database, envelope.table), columns, indexes, (), keys_only=keys_only)


def _row_hint(envelope: CanalEnvelope) -> str:
    return "Set binlog_format to ROW upstream: this is a statement, not its rows." if envelope.sql else PROTOCOL_HINT


def _mark(envelope: CanalEnvelope) -> RowMark:
    extension = envelope.extension or Extension()
    row, old = ((rows or (None,))[0] for rows in (envelope.data, envelope.old))
    location = extension.claim_check_location
    return RowMark(envelope.database, envelope.table, envelope.type, extension.commit_ts, location, row, old)


def _title(envelope: CanalEnvelope) -> str:
    return _mark(envelope).title


@lru_cache(maxsize=4096)
def column_type(text: str) -> ColumnType:
    """The type that a `mysqlType` names. What is none of TiDB keeps its text as name; its values are refused later.

    TiCDC writes bare names (`decimal`, `int unsigned`); with `content-compatible`, and official Canal always, full
    types (`decimal(10,2)`, `int(10) unsigned`, `enum('a','b')`).
    """
    match = _TYPE.fullmatch(text)
    if match is None:
        return ColumnType(text)
    name = match[1].lower()
    if name in ("enum", "set"):
        return ColumnType(name, elements=_members(match[2] or ""))
    numbers = [int(number) for number in re.findall(r"[0-9]{1,5}", match[2] or "")]
    unsigned = name in SIGNED and "unsigned" in match[3].lower()
    if name in _SECONDS:
        return ColumnType(name, scale=numbers[0] if numbers else None)
    if name == "decimal" and numbers:
        return ColumnType(name, unsigned, numbers[0], numbers[1] if len(numbers) > 1 else 0)
    return ColumnType(name, unsigned, numbers[0] if numbers else None)


def _members(text: str) -> tuple[str, ...]:
    """Members as TiDB prints them: it doubles quotes and escapes NUL and line ends, but not the backslash itself."""
    return tuple(_ESCAPE.sub(lambda match: _PLAIN[match[0]], member) for member in _MEMBER.findall(text))
