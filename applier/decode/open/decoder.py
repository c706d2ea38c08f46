"""Decodes one message of TiCDC's Open protocol, with one event or many, compressed or not, into its events.

The key holds a version and the keys of all events, the value their values, each behind its length. Rows say the type
code and flags of each column; there is no word of precision, scale, or members of an enum: DDL shows those.

A row with a new image alone is an INSERT, or, with `output-old-value` off or `only-output-updated-columns` and no
change, an UPDATE. Nothing distinguishes them, so it is an UPSERT; in a table without a handle key it can only be taken
for an INSERT.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

import msgspec

from applier.changefeed.event import Event, Op, Resolved, RowChange, SchemaChange
from applier.changefeed.table import TableName, TableVersion
from applier.decode.bounded_cache import BoundedLists
from applier.decode.columnar.groups import OldRows
from applier.decode.columnar.groups import Reader as RowReader
from applier.decode.decoder import WireForm
from applier.decode.json_messages import PROTOCOL_HINT, Tso, begins_as_json, read_json
from applier.decode.large_messages import ClaimedMessage, LargeMessages, RowMark
from applier.decode.open.cells import UNREADABLE, Cell, Reader, keys, reader, to_column
from applier.decode.open.columns import Head, OpenBulk, rows_reader
from applier.decode.options import DecoderOptions
from applier.decode.row_schemas import Announcer, Description, describe
from applier.errors import BatchRefused, DecodeError, IncompleteRow

_WHAT = "of the Open protocol"
_VERSION = struct.pack(">Q", 1)
_LENGTH = struct.Struct(">Q")
_ROW, _DDL, _RESOLVED = 1, 2, 3
_KEYS_ONLY = -1
"""Stands behind the codes of a row that is reduced to its key: they may be those of a whole one."""

_ALL_OLD_VALUES = "Set only-output-updated-columns to false in the changefeed, or give the table a primary key."


class EventKey(msgspec.Struct, gc=False):
    """The key of an event: commit ts or resolved ts, names, kind, and what became of a large row."""

    ts: Tso
    t: int
    scm: str = ""
    tbl: str = ""
    ohk: bool = False
    ccl: str | None = None


class Row(msgspec.Struct, gc=False):
    """The value of a row event: new, previous and deleted image.

    With `only-output-updated-columns`, TiCDC writes a column that became NULL into `p` without its name: its members
    are no objects, and its value is lost.
    """

    u: dict[str, Cell] | None = None
    p: dict[str, Cell | str | int | float | bool | None] | None = None
    d: dict[str, Cell] | None = None


class DdlValue(msgspec.Struct, gc=False):
    """The value of a DDL event."""

    q: str


class _Seen(NamedTuple):
    """A description as it came, to be recognised by, and what it stands for."""

    names: list[str]
    codes: list[int]
    description: Description
    readers: list[tuple[str, Reader]]
    has_key: bool


_KEYS = msgspec.json.Decoder(EventKey)
_ROWS = msgspec.json.Decoder(Row, float_hook=str)
_STATEMENTS = msgspec.json.Decoder(DdlValue)


class OpenDecoder:
    """Decoder of the Open protocol."""

    def __init__(self, options: DecoderOptions) -> None:
        # TiCDC of the new architecture escapes by the column's own type, and may write flags of an older column.
        self.wire = WireForm(binary="escaped", members="index", zone=options.timezone)
        self.large = LargeMessages(options, begins_as_json)
        self.bulk = OpenBulk(_split, self._row_reader)
        self.restart()

    def restart(self) -> None:
        """Begin a pass; see `Decoder.restart`."""
        self._announcer = Announcer()
        self._seen: BoundedLists[tuple[str, str], _Seen] = BoundedLists()

    def learn(self, version: TableVersion) -> None:
        """Make a table version known, so that no Bootstrap for it is needed."""
        self._announcer.learn(version)

    def decode(self, key: bytes | None, value: bytes | None) -> Sequence[Event]:
        """Decode one message: its events in their order."""
        pairs = _split(key, value)
        if len(pairs) == 1:
            return list(self._event(read_json(_KEYS, pairs[0][0], _WHAT), pairs[0][1]))
        events: list[Event | DecodeError] = []
        for event_key, body in pairs:
            try:
                events += self._event(read_json(_KEYS, event_key, _WHAT), body)
            except DecodeError as error:
                events.append(error)
        first = next((event for event in events if isinstance(event, DecodeError)), None)
        if first is not None and not first.tables:
            raise first
        if first is not None:
            raise BatchRefused(first.what, first.hint, events) from first
        return cast("list[Event]", events)

    def _event(self, key: EventKey, body: bytes) -> Sequence[Event]:
        if key.t == _ROW:
            try:
                return self._row(key, body)
            except DecodeError as error:
                error.concern(TableName(key.scm, key.tbl), key.ts)
                raise
        if key.t == _DDL:
            statement = read_json(_STATEMENTS, self.large.decompress(body), _WHAT)
            if not statement.q:
                raise DecodeError("The DDL event holds no statement.", PROTOCOL_HINT)
            return (SchemaChange(key.ts, statement.q, key.scm, table=key.tbl),)
        if key.t == _RESOLVED:
            return (Resolved(key.ts),)
        raise DecodeError(f"The event is of type {key.t}, which the Open protocol does not have.", PROTOCOL_HINT)

    def _row(self, key: EventKey, body: bytes) -> Sequence[Event]:
        if key.ccl is not None:
            # Before `ohk`: the value of such an event also holds the key columns only.
            key, row = self.large.claimed(_mark(key, self._read(body)), key.ccl, self._claimed)
        else:
            row = self._read(body)
        cells = row.d if row.u is None else row.u
        if not cells or (row.u is not None and row.d is not None):
            what = f"An event of a row of {key.scm}.{key.tbl} holds no row."
            raise IncompleteRow(what, PROTOCOL_HINT)
        if _is_reduced(key, row):
            self.large.admit_reduced(_mark(key, row))
        return self._change(key, row, cells)

    def _read(self, body: bytes) -> Row:
        return read_json(_ROWS, _with_signed_zeros(self.large.decompress(body)), _WHAT)

    def _claimed(self, claimed: ClaimedMessage) -> tuple[RowMark | None, tuple[EventKey, Row]]:
        """The large event, which lies in the claim-check storage as a message of its own."""
        events = _split(claimed.key, claimed.value)
        key, row = read_json(_KEYS, events[0][0], _WHAT), self._read(events[0][1])
        return _mark(key, row) if len(events) == 1 else None, (key, row)

    def _change(self, key: EventKey, row: Row, cells: dict[str, Cell]) -> Sequence[Event]:
        is_reduced = _is_reduced(key, row)
        seen = self._recognise(key, cells, keys_only=is_reduced)
        image = _image(cells, seen, key)
        description = seen.description
        name = description.version.name
        bootstraps = () if description.fits(image) else self._announcer.settle(description, image)
        version = description.number or 0
        if row.u is None:
            return (*bootstraps, RowChange(name, version, key.ts, Op.DELETE, image, None))
        if row.p is None:
            op = Op.UPSERT if seen.has_key else Op.INSERT
            return (*bootstraps, RowChange(name, version, key.ts, op, None, image, is_reduced))
        before = _before(row.p, image, seen, key)
        return (*bootstraps, RowChange(name, version, key.ts, Op.UPDATE, before, image, is_reduced))

    def _recognise(self, key: EventKey, cells: dict[str, Cell], *, keys_only: bool = False) -> _Seen:
        """The row's description, worked out when it is first met."""
        names, codes = list(cells), [cell.t | cell.h << 8 | cell.f << 9 for cell in cells.values()]
        codes += [_KEYS_ONLY] if keys_only else []
        for seen in self._seen.get((key.scm, key.tbl), ()):
            if seen.codes == codes and seen.names == names:
                return seen
        if not key.scm or not key.tbl:
            raise DecodeError("The event holds a row but does not name its table.", PROTOCOL_HINT)
        columns = [to_column(name, cell) for name, cell in cells.items()]
        indexes, handle_key = keys(cells)
        readers = [(name, read) for name, cell in cells.items() if (read := reader(cell)) is not None]
        description = describe(TableName(key.scm, key.tbl), columns, indexes, handle_key, keys_only=keys_only)
        seen = _Seen(names, codes, description, readers, bool(indexes or handle_key))
        self._seen.keep((key.scm, key.tbl), seen)
        return seen

    def _row_reader(
        self, beginning: Head, event_key: bytes | None, body: bytes | None, old_rows: OldRows
    ) -> RowReader | None:
        """A reader of rows like this one, if it is whole and its version was announced."""
        key, row = read_json(_KEYS, event_key or b"", _WHAT), read_json(_ROWS, body or b"", _WHAT)
        cells = row.d if row.u is None else row.u
        if key.t != _ROW or key.ccl is not None or key.ohk or not cells:
            return None
        seen = self._recognise(key, cells)
        description = seen.description
        if not description.fits(_image(cells, seen, key)):
            return None
        return rows_reader(beginning, description, cells, old_rows(description.version.name))


def _is_reduced(key: EventKey, row: Row) -> bool:
    """Whether a row that is not deleted holds its handle key alone."""
    return key.ohk and row.u is not None


def _split(key: bytes | None, value: bytes | None) -> Sequence[tuple[bytes, bytes]]:
    """Key and value of each event of a message."""
    if not key or not value or not key.startswith(_VERSION) or len(key) == len(_VERSION):
        raise DecodeError("The message does not begin as one of the Open protocol, version 1, does.", PROTOCOL_HINT)
    start = len(_VERSION) + _LENGTH.size
    event_key, body = key[start:], value[_LENGTH.size :]
    if key[len(_VERSION) : start] == _LENGTH.pack(len(event_key)) and value[: _LENGTH.size] == _LENGTH.pack(len(body)):
        return ((event_key, body),)
    events, at, place = [], len(_VERSION), 0
    while at < len(key):
        event_key, at = _framed(key, at)
        body, place = _framed(value, place)
        events.append((event_key, body))
    if place != len(value):
        raise DecodeError("The message holds more values than keys of events.")
    return events


def _framed(data: bytes, start: int) -> tuple[bytes, int]:
    """The bytes behind the length at `start`, and where they end."""
    begin = start + _LENGTH.size
    if begin <= len(data):
        end = begin + _LENGTH.unpack_from(data, start)[0]
        if end <= len(data):
            return data[begin:end], end
    raise DecodeError("The message is cut short.", PROTOCOL_HINT)


def _with_signed_zeros(body: bytes) -> bytes:
    """Go writes the double -0.0 as `-0`, which is read as an integer without a sign.

    The quote before the colon cannot lie inside a string, where it would be escaped.
    """
    if b'"v":-0' in body:
        return body.replace(b'"v":-0,', b'"v":-0.0,').replace(b'"v":-0}', b'"v":-0.0}')
    return body


def _image(cells: Mapping[str, Cell], seen: _Seen, key: EventKey) -> dict[str, Any]:
    image = {name: cell.v for name, cell in cells.items()}
    for name, read in seen.readers:
        value = image.get(name)
        if value is not None:
            try:
                image[name] = read(value)
            except UNREADABLE:
                # Its text, and so its place in a traceback, may hold the value.
                raise DecodeError(f"A value of {key.scm}.{key.tbl}.{name} is not encoded as its type is.") from None
    return image


def _before(previous: Mapping[str, Any], after: dict[str, Any], seen: _Seen, key: EventKey) -> dict[str, Any]:
    """The old image. A column that `p` lacks did not change, unless its name was lost on the way to NULL."""
    named = {name: cell for name, cell in previous.items() if isinstance(cell, Cell)}
    known = after
    if len(named) < len(previous):
        if not seen.has_key:
            what = f"An UPDATE of {key.scm}.{key.tbl} lost the old value of a column that became NULL."
            raise IncompleteRow(what, _ALL_OLD_VALUES)
        known = {name: value for name, value in after.items() if value is not None}
    before = _image(named, seen, key)
    return before if len(before) == len(after) else {**known, **before}


def _mark(key: EventKey, row: Row) -> RowMark:
    image = row.d if row.u is None else row.u
    values, old = (
        {name: cell.v for name, cell in (cells or {}).items() if isinstance(cell, Cell)} for cells in (image, row.p)
    )
    return RowMark(key.scm, key.tbl, f"{key.t} {'d' if row.u is None else 'u'}", key.ts, key.ccl, values, old)
