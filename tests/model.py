"""A perfect applier in plain Python: recorded messages in, what each table must hold at each watermark out.

It knows the order in which TiCDC's messages mean something, and no code of the stages behind the decoders: watermarks
are computed here, transactions are applied in commit ts order, deletes before upserts. Values become Python values
through `decode/values.py`, as in the row pass. DDL is not followed: `typed` says what a table is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from applier.changefeed.event import Bootstrap, Image, Op, Resolved, RowChange, SchemaChange
from applier.changefeed.table import TableName, TableVersion
from applier.changefeed.types import TypeRules
from applier.decode.decoder import Decoder
from applier.decode.values.convert import to_array

Row = dict[str, Any]
"""Column name to Python value. A column that no image held is absent."""


class Placed(NamedTuple):
    """A row change and where it was read: the number of its message in the order of sending, its place in that."""

    change: RowChange
    message: int
    place: int


@dataclass(slots=True)
class Table:
    """Rows of one table: at most one per key, or a bag where there is no key."""

    key: tuple[str, ...]
    rows: list[Row] = field(default_factory=list)
    by_key: dict[tuple[Any, ...], Row] = field(default_factory=dict)

    @property
    def contents(self) -> list[Row]:
        """All rows, in no order that means anything."""
        return list(self.by_key.values()) if self.key else list(self.rows)

    def put(self, row: Row) -> None:
        """Add a row, or replace the one with its key."""
        if self.key:
            self.by_key[self.of(row)] = row
        else:
            self.rows.append(row)

    def take(self, row: Row) -> None:
        """Remove the row with its key; without a key, one row that is equal in all columns of `row`."""
        if self.key:
            self.by_key.pop(self.of(row), None)
        else:
            self.rows.remove(next(found for found in self.rows if _agree(found, row)))

    def of(self, row: Row) -> tuple[Any, ...]:
        """The key of a row."""
        return tuple(row[name] for name in self.key)


@dataclass(slots=True)
class Model:
    """Applies what a decoder says of messages.

    Args:
        decoder: The decoder.
        typed: Tables whose types and key are known better than rows tell.
        rules: How the type mapping is bent.

    Attributes:
        tables: Contents at `applied`.
        applied: The last watermark.
        schema_changes: All DDL events, in the order of sending.
        bootstraps: All table versions that messages brought.
    """

    decoder: Decoder
    typed: Mapping[TableName, TableVersion] = field(default_factory=dict)
    rules: TypeRules = field(default_factory=TypeRules)
    tables: dict[TableName, Table] = field(default_factory=dict)
    applied: int = 0
    schema_changes: list[SchemaChange] = field(default_factory=list)
    bootstraps: list[TableVersion] = field(default_factory=list)
    _versions: dict[tuple[TableName, int], TableVersion] = field(default_factory=dict)
    _resolved: dict[tuple[str, int], int] = field(default_factory=dict)
    _waiting: list[Placed] = field(default_factory=list)
    _messages: int = 0

    def read(self, record: Mapping[str, Any]) -> bool:
        """Take one message; True if the watermark advanced, and with it the tables."""
        self._messages += 1
        place = (record["topic"], record["partition"])
        self._resolved.setdefault(place, 0)
        for index, event in enumerate(self.decoder.decode(record["key"], record["value"])):
            match event:
                case RowChange():
                    self._waiting.append(Placed(event, self._messages, index))
                case Bootstrap():
                    self.learn(event.version)
                case SchemaChange():
                    self.schema_changes.append(event)
                    if event.after is not None:
                        self.learn(event.after)
                case Resolved():
                    self._resolved[place] = max(self._resolved[place], event.resolved_ts)
        return self._advance()

    def learn(self, version: TableVersion) -> None:
        """Take a table version."""
        self._versions[version.name, version.version] = version
        self.bootstraps.append(version)

    def finish(self) -> None:
        """Apply what is left, for feeds that carry no watermark: the last message of a key wins."""
        waiting, self._waiting = self._waiting, []
        self._apply(waiting)

    def _advance(self) -> bool:
        watermark = min(self._resolved.values())
        if watermark <= self.applied:
            return False
        due = [item for item in self._waiting if self.applied < item.change.commit_ts <= watermark]
        self._waiting = [item for item in self._waiting if item.change.commit_ts > watermark]
        self.applied = watermark
        self._apply(sorted(due, key=lambda item: (item.change.commit_ts, item.message, item.place)))
        return True

    def _apply(self, items: Sequence[Placed]) -> None:
        """Apply changes in their order; inside one transaction the old rows go before the new ones come."""
        olds = self._rows([(item.change, item.change.before) for item in items])
        news = self._rows([(item.change, item.change.after) for item in items])
        start = 0
        for end in range(1, len(items) + 1):
            ts = items[start].change.commit_ts
            if end == len(items) or ts == 0 or items[end].change.commit_ts != ts:
                self._transact(items[start:end], olds[start:end], news[start:end])
                start = end

    def _transact(self, items: Sequence[Placed], olds: Sequence[Row | None], news: Sequence[Row | None]) -> None:
        for item, old, new in zip(items, olds, news, strict=True):
            table = self._table(item.change)
            assert item.change.op is not Op.DELETE or old is not None, "a delete must say which row"
            assert table.key or item.change.op is Op.INSERT or old is not None, "a bag needs the old row"
            # An update that leaves the key alone replaces its row; to take it away here would undo one just put.
            if old is not None and (new is None or not table.key or table.of({**new, **old}) != table.of(new)):
                table.take(old)
        for item, new in zip(items, news, strict=True):
            if new is not None:
                self._table(item.change).put(new)

    def _table(self, change: RowChange) -> Table:
        if change.name not in self.tables:
            self.tables[change.name] = Table(self._version(change).key)
        return self.tables[change.name]

    def _version(self, change: RowChange) -> TableVersion:
        version = self._versions[change.name, change.version]
        known = self.typed.get(change.name)
        return version if known is None else version.refined(known)

    def _rows(self, items: Sequence[tuple[RowChange, Image | None]]) -> list[Row | None]:
        """Images as Python values: one array for each version and column."""
        rows: list[Row | None] = [None if image is None else {} for _, image in items]
        groups: dict[tuple[TableName, int], list[int]] = {}
        for number, (change, image) in enumerate(items):
            if image is not None:
                groups.setdefault((change.name, change.version), []).append(number)
        for numbers in groups.values():
            version = self._version(items[numbers[0]][0])
            for column in version.columns:
                held = [number for number in numbers if column.name in (items[number][1] or {})]
                values = [(items[number][1] or {})[column.name] for number in held]
                array, _ = to_array(values, column, self.decoder.wire, self.rules, f"{version.name}.{column.name}")
                for number, value in zip(held, array.to_pylist(), strict=True):
                    row = rows[number]
                    assert row is not None
                    row[column.name] = tuple(value) if isinstance(value, list) else value
        return rows


def _agree(found: Row, image: Row) -> bool:
    """Whether a row may be the one of an image: a column added since then is in the image only."""
    return all(found.get(name, value) == value for name, value in image.items())


def replay(model: Model, records: Iterable[Mapping[str, Any]], upto: int | None = None) -> Iterator[int]:
    """Feed a model, and stop at each new watermark, at `upto` for good.

    Yields:
        The watermark; the model's tables hold what they must hold at it until the next one is asked for.
    """
    for record in records:
        if model.read(record):
            yield model.applied
            if upto is not None and model.applied >= upto:
                return
