"""Decodes files of TiCDC's storage sink in CSV into events; the key of the message is the schema file of their rows.

The form is that of TiCDC's documentation ("TiCDC CSV Protocol") and of `pkg/sink/codec/csv/csv_message.go` and
`pkg/sink/cloudstorage/table_definition.go` of pingcap/tiflow: operation, table, schema, commit ts, with
output-old-value whether it is an update, and the columns in the order of the schema file. Numbers and bits stand bare,
all else within quotes: dates and decimals as text, enums and sets by their labels, bytes in base64 or hex.
"""

from __future__ import annotations

import binascii
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, NamedTuple

import msgspec
import pyarrow as pa

from applier.changefeed.event import Event, Op, RowChange
from applier.changefeed.schema_key import SCHEMA_KEY
from applier.changefeed.table import Column, ColumnType, Index, TableName, TableVersion
from applier.changefeed.types import BINARIES, INTEGERS
from applier.decode.bounded_cache import Bounded
from applier.decode.columnar.groups import Bulk
from applier.decode.decoder import WireForm
from applier.decode.dump.csv_form import CsvForm
from applier.decode.dump.csv_rows import read_csv
from applier.decode.json_messages import PROTOCOL_HINT, read_json
from applier.decode.options import DecoderOptions
from applier.decode.row_schemas import HIDDEN, SIGNED, Announcer, Description, describe
from applier.decode.storage.decoder import SchemaFile, resolved_behind, schema_change
from applier.errors import BatchRefused, DecodeError

_FORM = CsvForm(has_header=False, escapes=False, binary="base64")
"""TiCDC's defaults."""

_BARE = frozenset({*INTEGERS, "year", "float", "double", "bit"})
"""Types whose values stand without quotes."""

_OPS = {"I": Op.INSERT, "U": Op.UPDATE, "D": Op.DELETE}
_HEAD = ("\0op", "\0table", "\0schema", "\0ts")
_IS_UPDATE = "\0update"
_MAX_TS = 1 << 63

_FORM_HINT = (
    "give the keys of [source.storage.csv] the values of [sink.csv] of the changefeed. The sink needs "
    "include-commit-ts=true there, and output-field-header=false. TiCDC's new architecture writes decimals, dates and "
    "JSON without quotes, and tables with a virtual generated column lack it: let it write such tables with "
    "protocol=canal-json."
)
_CUT_HINT = (
    "Once the file is whole, start `applier run -c FILE` again. TiCDC needs terminator CR LF or LF in [sink], and in a "
    "folder of a file system flush-concurrency=1 in [sink.cloud-storage-config]."
)
_OLD_HINT = "Set output-old-value=true in [sink.csv] of the changefeed, and output_old_value in [source.storage.csv]."

_Number = Annotated[str, msgspec.Meta(pattern=r"^[0-9]{1,10}$")]


class StoredColumn(msgspec.Struct, rename="pascal"):
    """A column of a schema file. TiCDC writes the name of its name with a blank behind it; its documentation without.

    Numbers are text; None where TiCDC does not show them.
    """

    column_type: str
    column_name: str = ""
    spaced_name: str = msgspec.field(default="", name="ColumnName ")
    column_precision: _Number | None = None
    column_length: _Number | None = None
    column_scale: _Number | None = None
    column_nullable: str = "true"
    column_is_pk: str = "false"

    @property
    def name(self) -> str:
        """Its name as upstream."""
        return self.spaced_name or self.column_name

    @property
    def type(self) -> ColumnType:
        """Its type; the members of enums and sets do not show."""
        name, *attributes = self.column_type.lower().split() or [""]
        size, scale = self.column_precision or self.column_length, self.column_scale
        is_unsigned = name in SIGNED and "unsigned" in attributes
        return ColumnType(name, is_unsigned, None if size is None else int(size), None if scale is None else int(scale))


class TableFile(SchemaFile):
    """A schema file with the columns of its table, in the order in which rows hold them."""

    table_columns: list[StoredColumn] | None = None


_FILES = msgspec.json.Decoder(TableFile)


class _Row(NamedTuple):
    op: Op
    commit_ts: int
    is_update: bool
    image: dict[str, Any]


@dataclass(frozen=True, slots=True)
class _CsvTable:
    """What a schema file says of the fields of a row."""

    description: Description
    columns: tuple[str, ...]
    quoted: frozenset[str]

    @property
    def version(self) -> TableVersion:
        return self.description.version


class StoredCsv:
    """Decoder of files in CSV."""

    bulk: Bulk | None = None

    def __init__(self, options: DecoderOptions) -> None:
        self._form = options.csv or _FORM
        self._has_old = options.csv_old_values
        self._layouts: Bounded[bytes, _CsvTable] = Bounded()
        self.wire = WireForm(binary="bytes", members="label", zone=options.timezone)
        self.restart()

    def restart(self) -> None:
        """Begin a pass; see `Decoder.restart`."""
        self._announcer = Announcer()

    def learn(self, version: TableVersion) -> None:
        """See `Decoder`."""
        self._announcer.learn(version)

    def decode(self, key: bytes | None, value: bytes | None) -> Sequence[Event]:
        """Decode one file; its key is `SCHEMA_KEY` for a schema file, else the schema file of its rows."""
        if key == SCHEMA_KEY:
            return schema_change(value)
        layout = self._layout(key or b"")
        try:
            return self._events(layout, value or b"")
        except DecodeError as error:
            error.concern(layout.version.name)
            raise

    def _layout(self, key: bytes) -> _CsvTable:
        if (known := self._layouts.get(key)) is not None:
            return known
        file = read_json(_FILES, key, "one of CSV with the schema file of TiCDC's storage sink")
        shown = [column for column in file.table_columns or () if not column.name.startswith(HIDDEN)]
        names = tuple(column.name for column in shown)
        if not (file.schema and file.table and shown) or "" in names or len({*names}) < len(names):
            raise DecodeError("The schema file of its rows does not describe a table.", PROTOCOL_HINT)
        columns = [Column(one.name, one.type, nullable=one.column_nullable != "false") for one in shown]
        key_columns = tuple(one.name for one in shown if one.column_is_pk == "true")
        indexes = (Index("PRIMARY", key_columns, unique=True, primary=True),) if key_columns else ()
        description = describe(TableName(file.schema, file.table), columns, indexes, ())
        quoted = frozenset(column.name for column in columns if column.type.name not in _BARE)
        self._layouts[key] = found = _CsvTable(description, names, quoted)
        return found

    def _events(self, layout: _CsvTable, data: bytes) -> list[Event]:
        if not data:
            return []
        if not data.endswith((b"\r", b"\n")):
            # Half a number would pass for another one.
            raise DecodeError("Its last row has no end, as if TiCDC had not written the file as a whole.", _CUT_HINT)
        events: list[Event | DecodeError] = [*self._announcer.settle(layout.description, {})]
        number, pending = layout.description.number or 0, None
        for place, row in enumerate(self._rows(layout, data), start=1):
            try:
                change, pending = self._change(layout, number, row, pending)
            except DecodeError as error:
                error.what, pending = f"Row {place}: {error.what}", None
                events.append(error)
                continue
            events += change
        if pending is not None:
            events.append(DecodeError("The last row is the old values of an update.", _FORM_HINT))
        bad = next((event for event in events if isinstance(event, DecodeError)), None)
        if bad is not None:
            raise BatchRefused(bad.what, bad.hint, events)
        found = [event for event in events if not isinstance(event, DecodeError)]
        return [*found, *resolved_behind(found)]

    def _change(
        self, layout: _CsvTable, number: int, row: _Row | DecodeError, old: _Row | None
    ) -> tuple[list[RowChange], _Row | None]:
        """The change that a row ends, and the row if another one follows that ends it."""
        if isinstance(row, DecodeError):
            raise row
        op, before, after = row.op, None, row.image
        is_new = row.is_update and op is Op.INSERT
        if (old is not None) is not is_new or (old is not None and old.commit_ts != row.commit_ts):
            raise DecodeError("The old and the new values of an update do not follow each other.", _FORM_HINT)
        if op is Op.DELETE:
            if row.is_update:
                return [], row
            return [RowChange(layout.version.name, number, row.commit_ts, op, after, None)], None
        if old is not None:
            op, before = Op.UPDATE, old.image
        elif op is Op.UPDATE and not layout.version.key:
            what = f"It is an update of {layout.version.name}, which has no primary key, without its old values."
            raise DecodeError(what, _OLD_HINT)
        return [RowChange(layout.version.name, number, row.commit_ts, op, before, after)], None

    def _rows(self, layout: _CsvTable, data: bytes) -> Iterator[_Row | DecodeError]:
        head = (*_HEAD, _IS_UPDATE) if self._has_old else _HEAD
        try:
            table = read_csv(data, self._form, (*head, *layout.columns), {*_HEAD[:3], *layout.quoted})
        except ValueError as error:
            what = f"The file is not CSV as [source.storage.csv] has it: {_in_words(error)}."
            raise DecodeError(what, _FORM_HINT) from None
        ops, *heads = (_texts(table[name]) for name in head)
        names = heads[:2]
        stamps, updates = heads[2], heads[3] if self._has_old else ["false"] * len(ops)
        values = [self._values(table[name], name, layout) for name in layout.columns]
        for place, (op, stamp, update) in enumerate(zip(ops, stamps, updates, strict=True)):
            name = TableName(names[1][place] or "", names[0][place] or "")
            problem = _problem(op, name, stamp, update, layout)
            if problem:
                yield DecodeError(problem, _FORM_HINT)
                continue
            image = {column: found[place] for column, found in zip(layout.columns, values, strict=True)}
            yield _Row(_OPS[op or ""], int(stamp or 0), update == "true", image)

    def _values(self, column: Any, name: str, layout: _CsvTable) -> list[Any]:
        found = layout.version.column(name)
        if found is None or found.type.name not in BINARIES:
            return _texts(column)
        decode = _BYTES[self._form.binary or "base64"]
        try:
            return [None if value is None else decode(value) for value in column.to_pylist()]
        except binascii.Error:
            what = f"Column {name} holds a value that is not {self._form.binary}."
            hint = "Set binary_encoding_method in [source.storage.csv] to that of [sink.csv] of the changefeed."
            raise DecodeError(what, hint) from None


def _problem(op: str | None, name: TableName, stamp: str | None, update: str | None, layout: _CsvTable) -> str:
    if op not in _OPS:
        return "The first field is none of I, U and D."
    if name != layout.version.name:
        return f"It is not of {layout.version.name}, whose schema file its folder has."
    if stamp is None or not (stamp.isascii() and stamp.isdigit() and 0 < int(stamp) < _MAX_TS):
        return "The fourth field is no commit ts."
    if update not in ("true", "false"):
        return "The fifth field is neither true nor false."
    return ""


def _texts(column: pa.ChunkedArray[Any]) -> list[str | None]:
    # What is not UTF-8 is refused where the values get their types.
    values: list[bytes | None] = column.to_pylist()
    return [None if value is None else value.decode("utf-8", "surrogateescape") for value in values]


def _in_words(error: ValueError) -> str:
    """A problem that the reader of an export found, in TiCDC's words."""
    what = str(error).replace("delimiter", "quote").replace("null_value", "null")
    return ": ".join([*getattr(error, "__notes__", ()), what])


_BYTES: dict[str, Callable[[bytes], bytes]] = {
    "base64": partial(binascii.a2b_base64, strict_mode=True),
    "hex": binascii.a2b_hex,
}
