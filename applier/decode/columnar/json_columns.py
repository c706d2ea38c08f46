"""The fast path of JSON: messages of one table and kind become a struct of just its columns, then arrays.

`msgspec` checks while it parses that a message has these members and no others. Anything else falls back to the
decoder, message by message: the fast path decides how quickly a row is read, never what it says. A protocol describes
its messages by a `JsonRows`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from applier.changefeed.event import Op
from applier.changefeed.row_block import ColumnBlock, Ints
from applier.changefeed.table import TableVersion
from applier.decode.columnar.groups import OldRows
from applier.decode.json_messages import MALFORMED
from applier.decode.row_schemas import has_scale
from applier.decode.values.dates import ZONED, zoned


@dataclass(frozen=True, slots=True)
class JsonColumn:
    """How the values of one column are read.

    Attributes:
        name: The column.
        kind: What they become.
        types: What they may be beside None: exactly what is read one by one. None where the struct checks them.
        reader: Turns each value that is not None into one of `kind`; None where they are already.
    """

    name: str
    kind: pa.DataType
    types: frozenset[type] | None = None
    reader: Callable[[Any], Any] | None = None

    def array(self, values: Sequence[Any]) -> pa.Array[Any]:
        """All values. Raises one of `groups.UNFIT` if one of them is not as it must be."""
        if self.types is not None and not self.types >= set(map(type, values)) - {type(None)}:
            raise TypeError
        if self.reader is not None:
            read = self.reader
            values = [None if value is None else read(value) for value in values]
        if self.kind == ZONED:
            return zoned(values)
        return pa.array(values, self.kind)


@dataclass(frozen=True, slots=True)
class JsonRows:
    """How messages of one table and kind are read; see `groups.Reader`.

    Raises ValueError for rows that no key can reduce.

    Attributes:
        version: What the rows refer to.
        op: Their kind.
        columns: The columns, in the order of the fields of `row_struct`.
        decode: Reads key and value of a message.
        commit_ts: Takes the commit ts out of what was read.
        row: Takes the row out of it: a `row_struct`.
        old: Takes the old image of an update out of it: an `old_struct`, or None where the message has none.
        cell: Where the value lies within the field of a column: "" for the field itself.
        scales: Columns of decimals whose scale shows only in their text, and the scale that the version has.
        marked: Numbers of the columns whose cell must have a flag `h`.
        kept: Kinds of changes whose old rows are asked for. If that of updates is, the `old_struct` has all columns in
            their order, else those of the key.
    """

    version: TableVersion
    op: Op
    columns: tuple[JsonColumn, ...]
    decode: Callable[[Any, Any], Any]
    commit_ts: Callable[[Any], int]
    row: Callable[[Any], Any]
    old: Callable[[Any], Any] | None = None
    cell: str = ""
    scales: Mapping[str, int] | None = None
    marked: Collection[int] = ()
    kept: frozenset[Op] = frozenset()

    def __post_init__(self) -> None:
        # Equal floats may be written in two ways.
        exact = {column.name for column in self.columns if column.kind != pa.float64() and column.reader is not str}
        if not self.version.key or not exact.issuperset(self.version.key):
            raise ValueError

    def suits(self, old_rows: OldRows) -> bool:
        """See `groups.Reader`."""
        return self.kept == old_rows(self.version.name)

    def read(
        self, keys: Sequence[bytes | None], values: Sequence[bytes | None], places: Ints
    ) -> tuple[list[ColumnBlock], npt.NDArray[np.bool_]]:
        """See `groups.Reader`."""
        messages, odd = self._messages(keys, values)
        rows = list(map(self.row, messages))
        strange = self._strange(messages, rows)
        if strange:
            odd[np.flatnonzero(~odd)[sorted(strange)]] = True
            messages = [message for number, message in enumerate(messages) if number not in strange]
            rows = [row for number, row in enumerate(rows) if number not in strange]
        if not rows:
            return [], odd
        version = self.version
        # Of a deleted row only the key counts; the other columns become NULL beside rows that have them.
        is_whole = self.op is not Op.DELETE or self.op in self.kept
        names = [column.name for column in self.columns] if is_whole else version.key
        cells = self._cells(rows, names)
        columns = self._arrays(names, cells)
        stamps = np.array(list(map(self.commit_ts, messages)), np.int64)
        form = frozenset((column.name, str(column.kind)) for column in self.columns if column.kind != pa.string())
        block = ColumnBlock(version.name, version.version, self.op, version.key, places[~odd], stamps, form, columns)
        return [replace(block, before=self._before(messages, names, cells))], odd

    def _before(
        self, messages: Sequence[Any], names: Sequence[str], after: Sequence[Sequence[Any]]
    ) -> dict[str, pa.Array[Any]] | None:
        """Old rows, if they are asked for; what an old image leaves out did not change."""
        if self.old is None or self.op not in self.kept:
            return None
        olds = list(map(self.old, messages))
        if olds[0] is None:  # So is each: see `_strange`.
            return None
        read = attrgetter(*(f"k{number}{self.cell}" for number in range(len(names))), f"k0{self.cell}")
        cells = [
            [new if old is msgspec.UNSET else old for old, new in zip(old_values, new_values, strict=True)]
            if msgspec.UNSET in old_values
            else old_values
            for old_values, new_values in zip(zip(*map(read, olds), strict=True), after, strict=True)
        ]
        return self._arrays(names, cells)

    def _messages(
        self, keys: Sequence[bytes | None], values: Sequence[bytes | None]
    ) -> tuple[list[Any], npt.NDArray[np.bool_]]:
        """What the messages hold, without those that are not as they seemed, and which these are."""
        odd = np.zeros(len(values), np.bool_)
        try:
            return list(map(self.decode, keys, values)), odd
        except MALFORMED:
            messages = []
        for number, (key, value) in enumerate(zip(keys, values, strict=True)):
            try:
                messages.append(self.decode(key, value))
            except MALFORMED:
                odd[number] = True
        return messages, odd

    def _strange(self, messages: Sequence[Any], rows: Sequence[Any]) -> set[int]:
        """Updates that change a key, or alone lack an old row, and rows with the flags or scales of another version."""
        strange = set[int]()
        if self.old is not None:
            key, is_kept = self.version.key, self.op in self.kept
            count, held = len(key), [column.name for column in self.columns] if is_kept else list(key)
            old, new = attrgetter(*(f"k{held.index(name)}{self.cell}" for name in key)), self._values(key)
            unchanged = msgspec.UNSET if count == 1 else (msgspec.UNSET,) * count
            olds = list(map(self.old, messages))
            for n, (before, row) in enumerate(zip(olds, rows, strict=True)):
                if before is not None and (former := old(before)) != new(row) and former != unchanged:
                    strange.add(n)
            if is_kept and None in olds and any(olds):
                strange.update(n for n, before in enumerate(olds) if before is None)
        for name, scale in (self.scales or {}).items():
            texts = list(map(self._values([name]), rows))
            # Mostly all of them have it, and one by one they would be asked in twice the time.
            if not (scale and {text[-scale - 1 : -scale] for text in texts if text is not None} <= {"."}):
                strange.update(n for n, text in enumerate(texts) if text is not None and not has_scale(text, scale))
        for number in self.marked:
            flags = map(attrgetter(f"c{number}.h"), rows)
            strange.update(n for n, is_marked in enumerate(flags) if not is_marked)
        return strange

    def _values(self, names: Sequence[str]) -> attrgetter[Any]:
        numbers = {column.name: number for number, column in enumerate(self.columns)}
        return attrgetter(*(f"c{numbers[name]}{self.cell}" for name in names))

    def _cells(self, rows: Sequence[Any], names: Sequence[str]) -> list[Sequence[Any]]:
        """The values of some columns, and those of the first one again, which makes a row a tuple always."""
        return list(zip(*map(self._values([*names, names[0]]), rows), strict=True))

    def _arrays(self, names: Sequence[str], cells: Sequence[Sequence[Any]]) -> dict[str, pa.Array[Any]]:
        by_name = {column.name: column for column in self.columns}
        return {name: by_name[name].array(found) for name, found in zip(names, cells, strict=False)}


def row_struct(names: Sequence[str], kinds: Sequence[Any]) -> Any:
    """A struct with just these members: fields `c0`, `c1`, … of the given kinds.

    Raises:
        ValueError: msgspec does not take a name.
    """
    fields: list[Any] = [(f"c{number}", kind) for number, kind in enumerate(kinds)]
    renamed = {f"c{number}": name for number, name in enumerate(names)}
    return msgspec.defstruct("Row", fields, gc=False, forbid_unknown_fields=True, rename=renamed)


def old_struct(names: Sequence[str], kinds: Sequence[Any], default: Any = msgspec.UNSET) -> Any:
    """A struct of some columns of an old image, of the given kinds: fields `k0`, `k1`, …; the image may have others.

    The default is what a column is that the image lacks.
    """
    fields: list[Any] = [(f"k{number}", kind, default) for number, kind in enumerate(kinds)]
    return msgspec.defstruct("Old", fields, gc=False, rename={f"k{n}": name for n, name in enumerate(names)})
