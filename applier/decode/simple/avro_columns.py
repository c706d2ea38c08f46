"""Decodes many rows of Simple in Avro at once into columns; `decoder.py` decodes what does not fit.

A row is a map from names to values, in another order in each message. So of all rows the first entries are read
together, then the second ones, and each value goes to the place that its name says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from applier.changefeed.event import Op
from applier.changefeed.table import TableVersion
from applier.changefeed.types import BINARIES, INTEGERS
from applier.decode.columnar.avro_columns import AvroRows, ColumnPlan, Found, RowPlan
from applier.decode.columnar.avro_reader import Datums, Flags, Ints, Numbers, Records, Texts, Values, Zoned, real, sized
from applier.decode.simple.avro_form import ROW
from applier.decode.simple.json_form import SimpleEnvelope
from applier.decode.values.dates import ZONED

_FIRST = b"\x02"
"""Version 1 of the protocol."""

_WORD = 8
_NULL, _LONG, _FLOAT, _DOUBLE, _STRING, _BYTES, _ZONED, _UNSIGNED = range(0, 16, 2)
"""Bytes that name a branch of a value's union: twice its index."""

_INTEGERS = frozenset({*INTEGERS, "year", "enum", "set", "bit"})
_KINDS: dict[str, tuple[int, pa.DataType]] = {
    **dict.fromkeys(_INTEGERS, (_LONG, pa.int64())),
    **dict.fromkeys(BINARIES, (_BYTES, pa.binary())),
    "float": (_FLOAT, pa.float64()),
    "double": (_DOUBLE, pa.float64()),
    "timestamp": (_ZONED, ZONED),
}
_TEXT = (_STRING, pa.string())


def head(value: bytes) -> bytes | None:
    """What a row begins with: version, database and table; None for anything else."""
    if not value.startswith(ROW + _FIRST):
        return None
    start = at = len(ROW) + len(_FIRST)
    for _ in range(2):
        size = value[at : at + 1]
        if not size or size[0] & 0x81:
            return None
        at += 1 + (size[0] >> 1)
    return value[start:at]


def rows_reader(sample: SimpleEnvelope, version: TableVersion, kept: frozenset[Op]) -> AvroRows | None:
    """A reader of rows with the columns of a sample, and the old rows of the `kept` kinds of changes.

    None if they must be read one by one, or it raises ValueError.
    """
    names = list(sample.data or sample.old or ())
    types = {column.name: column.type for column in version.columns}
    if any(name not in types for name in names):
        return None
    kinds = [_KINDS.get(types[name].name, _TEXT) for name in names]
    columns = tuple(ColumnPlan(name, name, kind) for name, (_, kind) in zip(names, kinds, strict=True))
    plan = RowPlan(version, "avro", columns)
    branches = np.array([branch for branch, _ in kinds])
    # A number beyond 63 bits comes as an unsigned one.
    wraps = np.array([types[name].name == "bigint" and types[name].unsigned for name in names])
    find = SimpleAvroColumns(plan, _Names.of(names), branches, wraps).find
    return AvroRows(plan, find, len(ROW) + len(_FIRST), kept)


@dataclass(frozen=True, slots=True)
class _Names:
    """Names as words of bytes, filled with zeros, and their sizes in bytes, to be found by them.

    The order is that of the names by the sum of their words; the sums are ascending.
    """

    words: np.ndarray
    sizes: Ints
    order: Ints
    sums: np.ndarray

    @staticmethod
    def of(names: Sequence[str]) -> _Names:
        encoded = [name.encode() for name in names]
        width = -(-max(map(len, encoded)) // _WORD) * _WORD
        words = np.frombuffer(b"".join(name.ljust(width, b"\0") for name in encoded), "<u8").reshape(len(names), -1)
        sizes = np.array([len(name) for name in encoded])
        sums = _sums(words, sizes)
        order = np.argsort(sums, kind="stable")
        return _Names(words, sizes, order, sums[order])

    def found(self, texts: Texts) -> tuple[Ints, Flags]:
        """Number of each text among the names, and whether it is one of them."""
        width = self.words.shape[1] * _WORD
        places = np.arange(width)
        at = np.minimum(texts.starts[:, None] + places, len(texts.data) - 1)
        raw = np.where(places < texts.sizes[:, None], texts.data[at], 0).astype(np.uint8)
        words = raw.view("<u8")
        nearest = np.minimum(np.searchsorted(self.sums, _sums(words, texts.sizes)), len(self.sums) - 1)
        numbers = self.order[nearest]
        return numbers, (self.words[numbers] == words).all(axis=1) & (self.sizes[numbers] == texts.sizes)


def _sums(words: np.ndarray, sizes: Ints) -> np.ndarray:
    factors = np.array([0x9E3779B97F4A7C15 * (2 * n + 1) & (1 << 64) - 1 for n in range(words.shape[1])], np.uint64)
    return np.asarray((words * factors).sum(axis=1, dtype=np.uint64) + sizes.astype(np.uint64))


@dataclass(frozen=True, slots=True)
class SimpleAvroColumns:
    """Reads rows of one table version: the branch that the values of each column come in, and its name.

    Columns that wrap are those whose values may also come as unsigned numbers.
    """

    plan: RowPlan
    names: _Names
    branches: Ints
    wraps: Flags

    def find(self, datums: Datums, _values: Sequence[bytes | None]) -> Found:
        """See `AvroRows`."""
        kinds, stamps = self._envelope(datums)
        after, before = self._optional(datums), self._optional(datums)
        branches = ((0, Op.INSERT, after), (2, Op.UPDATE, after), (4, Op.DELETE, before))
        images = [(op, kinds == branch, image) for branch, op, image in branches]
        return Found(stamps, datums.is_done(), images, before)

    def _envelope(self, datums: Datums) -> tuple[Ints, Ints]:
        """Kind and commit ts of each row; one with anything special is odd."""
        for _ in range(2):  # database and table, which all have in common
            datums.advance(datums.longs())
        datums.longs()
        kinds = datums.data[datums.advance(1)].astype(np.int64)
        stamps = datums.longs()
        datums.longs()
        datums.odd |= datums.longs() != self.plan.version.version
        datums.odd |= datums.data[datums.advance(1)] != _NULL  # a claim check
        rows = np.flatnonzero(datums.data[datums.advance(1)] != _NULL)
        part = datums.part(rows)  # those with a handleKeyOnly, which must be false
        part.odd |= part.data[part.advance(1)] != 0
        datums.rejoin(rows, part)
        datums.odd |= datums.data[datums.advance(1)] != _NULL  # a checksum
        return kinds, stamps

    def _optional(self, datums: Datums) -> Records:
        branch = datums.data[datums.advance(1)]
        datums.odd |= (branch != 0) & (branch != 2)
        rows = np.flatnonzero(branch == 2)
        part = datums.part(rows)
        image = self._map(part)
        datums.rejoin(rows, part)
        return Records(image, rows)

    def _map(self, datums: Datums) -> dict[str, Values]:
        width, count = len(self.branches), len(datums.at)
        datums.odd |= datums.longs() != width
        found = _Found(datums.data, width, count)
        for _ in range(width):
            numbers, known = self.names.found(sized(datums))
            branch = datums.data[datums.advance(1)].astype(np.int64)
            usual = (branch == self.branches[numbers]) | (branch == _NULL)
            usual |= self.wraps[numbers] & (branch == _UNSIGNED)
            datums.odd |= ~known | ~usual | found.seen[numbers, np.arange(count)]
            found.take(datums, numbers, np.where(datums.odd, _NULL, branch))
        datums.odd |= datums.longs() != 0
        return {
            plan.field: found.values(number, int(self.branches[number]))
            for number, plan in enumerate(self.plan.columns)
        }


class _Found:
    def __init__(self, data: np.ndarray, width: int, count: int) -> None:
        self._data = data
        self.seen = np.zeros((width, count), np.bool_)
        self._present = np.zeros((width, count), np.bool_)
        # Numbers; or where a text begins and its size, of a timestamp those of its zone and then its own.
        self._cells = np.zeros((4, width, count), np.int64)

    def take(self, datums: Datums, numbers: Ints, branches: Ints) -> None:
        """Read one value of each row."""
        self.seen[numbers, np.arange(len(numbers))] = True
        for branch in np.unique(branches).tolist():
            if branch == _NULL:
                continue
            rows = np.flatnonzero(branches == branch)
            part = datums.part(rows)
            for place, cells in enumerate(_cells(part, branch)):
                self._cells[place, numbers[rows], rows] = cells
            self._present[numbers[rows], rows] = True
            datums.rejoin(rows, part)

    def values(self, number: int, branch: int) -> Values:
        """Values of one column."""
        first, second, third, fourth = self._cells[:, number]
        present = self._present[number]
        if branch in (_LONG, _FLOAT, _DOUBLE):
            return Numbers(first if branch == _LONG else first.view(np.float64), present)
        if branch == _ZONED:
            return Zoned(Texts(self._data, first, second, present), Texts(self._data, third, fourth, present))
        return Texts(self._data, first, second, present)


def _cells(datums: Datums, branch: int) -> list[Ints]:
    """What is kept of values of one branch."""
    if branch in (_LONG, _UNSIGNED):
        return [datums.longs()]
    if branch in (_FLOAT, _DOUBLE):
        return [real(4 if branch == _FLOAT else 8)(datums).values.view(np.int64)]
    texts = [sized(datums) for _ in range(2 if branch == _ZONED else 1)]
    return [cells for text in texts for cells in (text.starts, text.sizes)]
