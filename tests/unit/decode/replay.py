"""Decoded events and the tables that SQL showed in, their differences out: plain Python, no code of later stages.

Rows are compared change by change: between two watermarks, what the events leave of a key must be what SQL shows of it,
and no key may change without an event. What a DDL does to rows that lie in a table is not the decoder's business, so
changes that a DDL follows before the next watermark are left out.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from applier.changefeed.event import Bootstrap, Image, Op, RowChange, SchemaChange
from applier.changefeed.table import Column, ColumnType, TableName, TableVersion
from applier.changefeed.types import TypeRules
from applier.decode.debezium.json_decoder import DebeziumDecoder
from applier.decode.decoder import Decoder, WireForm
from applier.decode.values.convert import to_array

_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\).*")

Row = tuple[Any, ...]
Deviation = Callable[[TableName, Column, Any], Any]
"""What a protocol makes of a cell that it cannot carry as it is; the cell itself elsewhere."""

EXPECTED_FORM = WireForm(binary="bytes", members="label")
"""How `expected.jsonl` writes values, once its hexadecimal is made bytes."""


@dataclass(slots=True)
class Decoded:
    """What a decoder made of a recording.

    Attributes:
        rows: Row changes by commit ts, deletes first.
        versions: Table versions by name and number.
        ddl: Commit ts of the DDL, ascending.
        described: Versions that a DDL described, by table, in order.
        wire: The decoder's wire form.
        exact_decimals: False compares decimals as the doubles that they came as.
    """

    rows: list[RowChange]
    versions: dict[tuple[TableName, int], TableVersion]
    ddl: list[int]
    described: Mapping[TableName, list[tuple[int, TableVersion]]]
    wire: WireForm
    exact_decimals: bool

    def version(self, change: RowChange) -> TableVersion:
        """The version of a row, with the types that a DDL gave its columns."""
        version = self.versions[change.name, change.version]
        known = self.described.get(change.name, [])
        at = bisect_right([ts for ts, _ in known], change.commit_ts - 1)
        version = version.refined(known[at - 1][1]) if at else version
        return version if self.exact_decimals else _with_doubles(version)


def decode_all(decoder: Decoder, records: Iterable[dict[str, Any]]) -> Decoded:
    """Decode a recording whole."""
    rows, versions, ddl = [], {}, set()
    described: dict[TableName, list[tuple[int, TableVersion]]] = defaultdict(list)
    for record in records:
        for event in decoder.decode(record["key"], record["value"]):
            if isinstance(event, RowChange):
                rows.append(event)
            elif isinstance(event, Bootstrap):
                versions[event.version.name, event.version.version] = event.version
            elif isinstance(event, SchemaChange):
                ddl.add(event.commit_ts)
                if event.after is not None:
                    versions[event.after.name, event.after.version] = event.after
                    described[event.after.name].append((event.commit_ts, event.after))
                    decoder.learn(event.after)
    rows.sort(key=lambda change: (change.commit_ts, change.op is not Op.DELETE))
    ordered = {name: sorted(set(entries), key=lambda entry: entry[0]) for name, entries in described.items()}
    return Decoded(rows, versions, sorted(ddl), ordered, decoder.wire, not isinstance(decoder, DebeziumDecoder))


@dataclass(slots=True)
class Comparison:
    """Compares a decoded recording with its expected tables.

    Attributes:
        decoded: The decoded recording.
        deviation: What the protocol makes of cells.
        rename: Expected names to the protocol's names.
        virtual_is_null: Rows hold virtual generated columns, as NULL, instead of leaving them out.
        compared: Cells compared so far.
        differences: What differs, in words.
    """

    decoded: Decoded
    deviation: Deviation = lambda name, column, cell: cell
    rename: Callable[[str], str] = lambda name: name
    virtual_is_null: bool = False
    compared: int = 0
    differences: list[str] = field(default_factory=list)

    def run(self, snapshots: Sequence[dict[str, Any]], without: Iterable[str] = ()) -> Comparison:
        """Compare each watermark with the one before it.

        Args:
            snapshots: Lines of `expected.jsonl`.
            without: Tables that are not in the feed.
        """
        left_out, applied = set(without), 0
        before: dict[str, Any] = {}
        for snapshot in snapshots:
            upto = snapshot["resolved_ts"]
            barriers = [ts for ts in self.decoded.ddl if applied < ts <= upto]
            start = max(barriers, default=applied)
            changes: dict[TableName, list[RowChange]] = defaultdict(list)
            for change in self.decoded.rows:
                if start < change.commit_ts <= upto:
                    changes[change.name].append(change)
            for text, table in snapshot["tables"].items():
                if text not in left_out:
                    old = None if barriers else before.get(text)
                    self._table(TableName(*map(self.rename, text.split(".", 1))), table, old, changes)
            before, applied = snapshot["tables"], upto
        return self

    def _table(
        self,
        name: TableName,
        table: dict[str, Any],
        old: dict[str, Any] | None,
        changes: Mapping[TableName, list[RowChange]],
    ) -> None:
        events = changes.get(name, [])
        if not events:
            if old is not None and _bag(old["rows"]) != _bag(table["rows"]):
                self.differences.append(f"{name}: SQL shows changes that no event made")
            return
        version = self.decoded.version(next((e for e in reversed(events) if e.after is not None), events[-1]))
        version = _with_precision(version, table)
        columns = {self.rename(column["name"]): n for n, column in enumerate(table["columns"]) if self._is_held(column)}
        key = tuple(map(self.rename, table["primary_key"])) or version.key or _unique_key(version, table)
        wanted = self._expected(version, table, columns)
        previous = self._expected(version, old, columns) if old else None
        if key:
            self._keyed(version, key, events, wanted, previous)
        else:
            self._unkeyed(version, events, wanted, previous)

    def _is_held(self, column: dict[str, Any]) -> bool:
        return self.virtual_is_null or column.get("generated") != "virtual"

    def _expected(
        self, version: TableVersion, table: dict[str, Any], columns: Mapping[str, int]
    ) -> list[dict[str, Any]]:
        rendered = {}
        for name, n in columns.items():
            column, is_virtual = version.column(name), table["columns"][n].get("generated") == "virtual"
            cells = [None if is_virtual else _bytes(row[n]) for row in table["rows"]]
            if column is not None:
                cells = [self.deviation(version.name, column, cell) for cell in cells]
                rendered[name] = self._render(version.name, column, cells, EXPECTED_FORM)
        return [dict(zip(rendered, row, strict=True)) for row in zip(*rendered.values(), strict=True)]

    def _render(self, name: TableName, column: Column, values: list[Any], wire: WireForm) -> list[Any]:
        array, _ = to_array(values, column, wire, TypeRules(), f"{name}.{column.name}")
        return [tuple(value) if isinstance(value, list) else value for value in array.to_pylist()]

    def _image(self, change: RowChange, image: Image, typed: TableVersion) -> dict[str, Any]:
        version, wire = self.decoded.version(change), self.decoded.wire
        columns = [column for column in version.columns if column.name in image]
        assert len(columns) == len(image), (change.name, set(image) - {column.name for column in columns})
        columns = [_precise(column, typed.column(column.name)) for column in columns]
        return {column.name: self._render(change.name, column, [image[column.name]], wire)[0] for column in columns}

    def _keyed(
        self,
        version: TableVersion,
        key: tuple[str, ...],
        events: list[RowChange],
        wanted: list[dict[str, Any]],
        old: list[dict[str, Any]] | None,
    ) -> None:
        name = version.name
        last: dict[Row, dict[str, Any] | None] = {}
        for change in events:
            for image, present in ((change.before, False), (change.after, True)):
                if image is not None and all(column in image for column in key):
                    row = self._image(change, image, version)
                    last[tuple(row[column] for column in key)] = row if present else None
        table = {tuple(row[column] for column in key): row for row in wanted}
        for place, found in last.items():
            self._row(name, place, found, table.get(place))
        if old is not None:
            previous = {tuple(row[column] for column in key): row for row in old}
            untold = [k for k in previous.keys() | table.keys() if previous.get(k) != table.get(k) and k not in last]
            self.differences += [f"{name} {place}: SQL shows a change that no event made" for place in untold]

    def _row(self, name: TableName, place: Row, row: dict[str, Any] | None, wanted: dict[str, Any] | None) -> None:
        if row is None or wanted is None:
            if row is not wanted:
                self.differences.append(f"{name} {place}: decoded {row}, SQL shows {wanted}")
            return
        if row.keys() != wanted.keys():
            self.differences.append(f"{name} {place}: columns {sorted(row.keys() ^ wanted.keys())}")
        for column in row.keys() & wanted.keys():
            self.compared += 1
            if row[column] != wanted[column]:
                self.differences.append(
                    f"{name} {place} {column}: decoded {row[column]!r:.60}, SQL shows {wanted[column]!r:.60}"
                )

    def _unkeyed(
        self,
        version: TableVersion,
        events: list[RowChange],
        wanted: list[dict[str, Any]],
        old: list[dict[str, Any]] | None,
    ) -> None:
        net: Counter[Row] = Counter()
        for change in events:
            if change.before is not None:
                net[_sorted(self._image(change, change.before, version))] -= 1
            if change.after is not None:
                net[_sorted(self._image(change, change.after, version))] += 1
        if old is None:
            return
        shown = Counter(map(_sorted, wanted))
        shown.subtract(Counter(map(_sorted, old)))
        self.compared += len(net)
        differing = [row for row in net.keys() | shown.keys() if net[row] != shown[row]]
        self.differences += [
            f"{version.name}: {net[row]:+} of {row} decoded, {shown[row]:+} shown" for row in differing
        ]


def _with_precision(version: TableVersion, table: dict[str, Any]) -> TableVersion:
    """The version with the precision of its decimals, which a DDL tells where the rows do not."""
    kinds = {column["name"]: _DECIMAL.fullmatch(column["mysql_type"]) for column in table["columns"]}
    exact = {name: (int(match[1]), int(match[2])) for name, match in kinds.items() if match}
    columns = [
        replace(column, type=replace(column.type, length=exact[column.name][0], scale=exact[column.name][1]))
        if column.type.name == "decimal" and column.type.length is None and column.name in exact
        else column
        for column in version.columns
    ]
    return replace(version, columns=tuple(columns))


def _with_doubles(version: TableVersion) -> TableVersion:
    columns = (
        replace(column, type=ColumnType("double")) if column.type.name == "decimal" else column
        for column in version.columns
    )
    return replace(version, columns=tuple(columns))


def _precise(column: Column, typed: Column | None) -> Column:
    return typed if typed is not None and column.type.name == typed.type.name == "decimal" else column


def _unique_key(version: TableVersion, table: dict[str, Any]) -> tuple[str, ...]:
    """A unique index without NULL, where the rows of a protocol do not say that it is the key."""
    for key in table.get("unique_keys", ()):
        columns = [version.column(name) for name in key]
        if all(column is not None and not column.nullable for column in columns):
            return tuple(key)
    return ()


def _bag(rows: list[list[Any]]) -> Counter[str]:
    return Counter(map(repr, rows))


def _sorted(row: dict[str, Any]) -> Row:
    return tuple(sorted(row.items()))


def _bytes(cell: Any) -> Any:
    return bytes.fromhex(cell["hex"]) if isinstance(cell, dict) else cell
