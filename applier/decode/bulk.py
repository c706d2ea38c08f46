"""Messages of one shape in, their rows by column out: the quick way for what a feed is full of.

Messages that begin with the same bytes, up to the letter of their type, are rows of one table and kind. From one of
them a struct is made that has just these columns, and msgspec checks while it parses that a message has them, too.
Whatever differs in the least, a column more or a flag that is set, is left to the decoder, message by message. So the
quick way decides how fast a row is read, never what it says.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, Protocol, TypeAlias

import msgspec
import pyarrow as pa

from applier.changefeed.event import Op
from applier.changefeed.table import TableName
from applier.decode.dates import ZONED, ZonedText

ENOUGH = 50
"""Messages of one beginning that pay for a struct of their own."""

_MAX_HEADS = 10_000
_LONGEST_HEAD = 1_000


class FixedRow(msgspec.Struct, gc=False):
    """Base of rows with a fixed set of columns."""


@dataclass(frozen=True, slots=True)
class RowShape:
    """The columns of rows of one kind, and how they are read.

    Attributes:
        row: The struct of a row: fields `c0`, `c1`, … under the names of the columns, text or `ZonedText` or None.
        names: The columns.
        zoned: Numbers of those whose values are `ZonedText`.
        key: Names of the key columns, all among `names`.
    """

    row: type[FixedRow]
    names: tuple[str, ...]
    zoned: frozenset[int]
    key: tuple[str, ...]

    def arrays(self, rows: Sequence[FixedRow], names: Sequence[str]) -> list[pa.Array[Any]]:
        """Wire values of some columns, as `to_array` takes them."""
        numbers = [self.names.index(name) for name in names]
        values = zip(*map(attrgetter(*(f"c{number}" for number in [*numbers, 0])), rows), strict=True)
        return [_array(column, is_zoned=number in self.zoned) for number, column in zip(numbers, values, strict=False)]


@dataclass(frozen=True, slots=True)
class RowBlock:
    """Row changes of one table version and kind.

    Attributes:
        name: The table's upstream name.
        version: What the rows refer to.
        op: Insert, update or delete, as all the messages say. No update among them changes a key.
        shape: The columns.
        places: Number of each row's message in what was read.
        commit_ts: TSO of each row.
        rows: The new image of each row, of a delete the old one.
    """

    name: TableName
    version: int
    op: Op
    shape: RowShape
    places: list[int]
    commit_ts: list[int]
    rows: list[FixedRow]

    @property
    def key(self) -> tuple[str, ...]:
        """Names of the key columns."""
        return self.shape.key

    @property
    def form(self) -> Hashable:
        """Blocks of one version and of one form have columns of one type: the same are text with a zone here."""
        return frozenset(self.shape.names[number] for number in self.shape.zoned)

    def part(self, rows: Sequence[int]) -> RowBlock:
        """Some of its rows."""
        places, stamps = [self.places[row] for row in rows], [self.commit_ts[row] for row in rows]
        return replace(self, places=places, commit_ts=stamps, rows=[self.rows[row] for row in rows])


@dataclass(frozen=True, slots=True)
class ColumnBlock:
    """The same where the rows are columns already.

    Attributes:
        name: See `RowBlock`, also for the next four.
        version: What the rows refer to.
        op: Insert, update or delete.
        key: Names of the key columns.
        places: Number of each row's message in what was read.
        commit_ts: TSO of each row.
        form: See `RowBlock`.
        columns: Wire values, as `to_array` takes them; of a delete at least those of the key.
        indexes: Number of each row within its message; empty where each message holds one.
    """

    name: TableName
    version: int
    op: Op
    key: tuple[str, ...]
    places: list[int]
    commit_ts: list[int]
    form: Hashable
    columns: Mapping[str, pa.Array[Any]]
    indexes: Sequence[int] = ()

    def part(self, rows: Sequence[int]) -> ColumnBlock:
        """Some of its rows."""
        taken = pa.array(rows, pa.int64())
        return replace(
            self,
            places=[self.places[row] for row in rows],
            commit_ts=[self.commit_ts[row] for row in rows],
            columns={name: column.take(taken) for name, column in self.columns.items()},
            indexes=[self.indexes[row] for row in rows] if self.indexes else (),
        )


Block: TypeAlias = RowBlock | ColumnBlock


def without(block: Block, places: Collection[int]) -> Block:
    """A block without the rows of some messages."""
    rows = [row for row, place in enumerate(block.places) if place not in places]
    return block if len(rows) == len(block.places) else block.part(rows)


class Bulk(Protocol):
    """Reads what it can of many messages at once. One instance belongs to one decoder."""

    def read(
        self, keys: Sequence[bytes | None], values: Sequence[bytes | None]
    ) -> tuple[Sequence[Block], Sequence[int]]:
        """The rows that can be read at once, and the places of all other messages."""


@dataclass(frozen=True, slots=True)
class RowReader:
    """Reads messages that begin alike.

    Attributes:
        name: Their table.
        version: What their rows refer to.
        op: Their kind.
        shape: The columns of their rows.
        decode: Reads a message into a struct that has just what these messages have.
        commit_ts: Path of the commit ts in it.
        image: Takes the row out of it.
        before: Takes the key columns of the old image of an update out of it, or None where it has none: a struct with
            fields `k0`, `k1`, … that are UNSET where the old image lacks them.
        scales: Columns of decimals whose scale shows only in their text, and the scale that `version` has.
    """

    name: TableName
    version: int
    op: Op
    shape: RowShape
    decode: Callable[[bytes], Any]
    commit_ts: str
    image: Callable[[Any], FixedRow]
    before: Callable[[Any], Any] | None = None
    scales: tuple[tuple[str, int], ...] = ()

    def read(self, values: Sequence[bytes], places: list[int]) -> tuple[RowBlock, list[int]]:
        """The rows of some messages, and the places of those that are not as they seemed."""
        decode = self.decode
        odd: list[int] = []
        try:
            messages: list[Any] = [decode(values[place]) for place in places]
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            messages, places, odd = _one_by_one(decode, values, places)
        rows = [self.image(message) for message in messages]
        strange = self._strange(messages, rows)
        if strange:
            odd += [places[number] for number in strange]
            kept = [number for number in range(len(places)) if number not in strange]
            messages, places = [messages[number] for number in kept], [places[number] for number in kept]
            rows = [rows[number] for number in kept]
        stamps = list(map(attrgetter(self.commit_ts), messages))
        return RowBlock(self.name, self.version, self.op, self.shape, places, stamps, rows), odd

    def _strange(self, messages: list[Any], rows: list[FixedRow]) -> set[int]:
        """Updates that change a key, and rows with decimals of another scale: those are of another version."""
        strange: set[int] = set()
        if self.before is not None:
            numbers = range(len(self.shape.key))
            old = attrgetter(*(f"k{number}" for number in numbers))
            new = attrgetter(*(f"c{self.shape.names.index(name)}" for name in self.shape.key))
            unchanged = msgspec.UNSET if len(numbers) == 1 else (msgspec.UNSET,) * len(numbers)
            for n, (before, row) in enumerate(zip(map(self.before, messages), rows, strict=True)):
                if before is not None and (key := old(before)) != new(row) and key != unchanged:
                    strange.add(n)
        for name, scale in self.scales:
            texts = map(attrgetter(f"c{self.shape.names.index(name)}"), rows)
            strange.update(n for n, text in enumerate(texts) if text is not None and not has_scale(text, scale))
        return strange


class BulkReader:
    """Reads many messages whose value tells by its first bytes what it is; see `Bulk`.

    Args:
        mark: What stands before the first letter of the type, in messages of rows.
        reader: Makes a reader from a message, or gives None: then messages that begin as it does are left alone.
    """

    def __init__(self, mark: bytes, reader: Callable[[bytes], RowReader | None]) -> None:
        self._mark = mark
        self._reader = reader
        self._readers: dict[bytes, RowReader | None] = {}
        self._met: dict[bytes, int] = {}

    def read(self, _keys: Sequence[bytes | None], values: Sequence[bytes | None]) -> tuple[list[RowBlock], list[int]]:
        """See `Bulk`; the keys say nothing."""
        alike, rest = self._grouped(values)
        blocks = []
        for head, places in alike.items():
            reader = self._reader_of(head, values, places)
            if reader is None:
                rest += places
                continue
            block, odd = reader.read(values, places)  # type: ignore[arg-type]  # a message without value has no head
            if 2 * len(odd) > len(places):
                # The table has changed: the next message shows how.
                del self._readers[head]
            rest += odd
            if block.rows:
                blocks.append(block)
        return blocks, sorted(rest)

    def _grouped(self, values: Sequence[bytes | None]) -> tuple[dict[bytes, list[int]], list[int]]:
        mark, size = self._mark, len(self._mark) + 1
        alike: dict[bytes, list[int]] = {}
        rest: list[int] = []
        last, places = b"\0", rest
        for place, value in enumerate(values):
            # Most messages begin as the one before.
            if value is not None and not value.startswith(last):
                at = value.find(mark, 0, _LONGEST_HEAD)
                last, places = (
                    (value[: at + size], alike.setdefault(value[: at + size], [])) if at > 0 else (b"\0", rest)
                )
            (rest if value is None else places).append(place)
        return alike, rest

    def _reader_of(self, head: bytes, values: Sequence[bytes | None], places: list[int]) -> RowReader | None:
        reader = self._readers.get(head)
        if reader is None:
            met = self._met[head] = self._met.get(head, 0) + len(places)
            sample = values[places[-1]]
            if met >= ENOUGH and sample is not None:
                reader = self._reader(sample)
            if reader is not None:
                self._readers[head] = reader
            elif len(self._met) > _MAX_HEADS:
                self._met.clear()
        return reader


def row_shape(names: Sequence[str], key: Sequence[str], zoned: Sequence[str] = ()) -> RowShape:
    """The shape of rows with these columns, no more and no fewer."""
    numbered = list(enumerate(names))
    fields = [(f"c{number}", ZonedText | None if name in zoned else str | None) for number, name in numbered]
    renamed = {f"c{number}": name for number, name in numbered}
    row: Any = msgspec.defstruct("Row", fields, bases=(FixedRow,), gc=False, forbid_unknown_fields=True, rename=renamed)
    places = frozenset(number for number, name in numbered if name in zoned)
    return RowShape(row, tuple(names), places, tuple(key))


def key_columns(key: Sequence[str]) -> type[msgspec.Struct]:
    """The struct of the key columns of an old image: `k0`, `k1`, …, UNSET for those that it lacks."""
    numbered = list(enumerate(key))
    fields: list[tuple[str, Any, Any]] = [(f"k{number}", Any, msgspec.UNSET) for number, _ in numbered]
    return msgspec.defstruct("Key", fields, gc=False, rename={f"k{number}": name for number, name in numbered})


def _one_by_one(
    decode: Callable[[bytes], Any], values: Sequence[bytes], places: list[int]
) -> tuple[list[Any], list[int], list[int]]:
    """Messages that are as expected, their places, and the places of the others."""
    messages, good, odd = [], [], []
    for place in places:
        try:
            messages.append(decode(values[place]))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            odd.append(place)
        else:
            good.append(place)
    return messages, good, odd


def has_scale(text: str, scale: int) -> bool:
    """Whether the text of a decimal has so many digits after the point."""
    return text[-scale - 1 : -scale] == "." if scale else "." not in text


def _array(values: Sequence[Any], *, is_zoned: bool) -> pa.Array[Any]:
    if not is_zoned:
        return pa.array(values, pa.string())
    locations = pa.array([None if value is None else value.location for value in values], pa.string())
    texts = pa.array([None if value is None else value.value for value in values], pa.string())
    return pa.StructArray.from_arrays([locations, texts], fields=list(ZONED), mask=locations.is_null())
