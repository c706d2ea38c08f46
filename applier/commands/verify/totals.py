"""Computes the totals of both sides of a table from what is remembered, and from the rows that changed since."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from applier.commands.verify.memory import KnownGroup, KnownPiece, Total
from applier.commands.verify.row_hash import RowHash
from applier.commands.verify.sides import SnapshotReader, UpstreamReader, dead_between
from applier.decode.tidb.piece_reader import Piece, PieceReader
from applier.sink.write.deletes import load_deleted
from applier.sink.write.file_index import IndexedFile
from applier.sink.write.parquet import Positions, ranges

KnownAt: TypeAlias = tuple[Piece, KnownPiece | None]


@dataclass(slots=True)
class PartTotals:
    """What a task, or all of them, found: pieces, groups by `key_of` their file, and the rows that were read."""

    pieces: list[KnownPiece] = field(default_factory=list)
    groups: dict[str, Sequence[KnownGroup]] = field(default_factory=dict)
    read: int = 0

    def add(self, other: PartTotals) -> None:
        """Take in what the next task found."""
        self.pieces += other.pieces
        self.groups |= other.groups
        self.read += other.read


@dataclass(frozen=True, slots=True)
class PieceTask:
    """Finds the totals of some pieces of TiDB's table, in any process."""

    reader: UpstreamReader
    pieces: PieceReader
    hashing: RowHash

    def __call__(self, part: Sequence[KnownAt]) -> PartTotals:
        """Those that are known and have the same checksum still are as they were; others are read, and cut anew."""
        known = [(piece, one) for piece, one in part if one is not None and one.checksum is not None]
        sums = dict(zip([piece for piece, _ in known], self.pieces.checksums([p for p, _ in known]), strict=True))
        same = {piece: one for piece, one in known if sums[piece] == one.checksum}
        found = PartTotals()
        for is_same, run in groupby((piece for piece, _ in part), same.__contains__):
            pieces = list(run)
            if is_same:
                found.pieces += [same[piece] for piece in pieces]
            else:
                # Neighbours that changed together cost one connection.
                found.add(self._read(Piece(pieces[0].low, pieces[-1].high)))
        return found

    def _read(self, piece: Piece) -> PartTotals:
        read = [KnownPiece(piece.low, None, Total())]
        for bound, rows in self.pieces.read(piece):
            total = total_of(self.reader.conformed(rows), self.hashing)
            if bound is None:
                read[-1] = read[-1]._replace(total=read[-1].total.plus(total))
            else:
                read.append(KnownPiece(bound, None, total))
        ends = [*(one.low for one in read[1:]), piece.high]
        sums = self.pieces.checksums([Piece(one.low, end) for one, end in zip(read, ends, strict=True)])
        # If SQL counts other rows between two bounds, they are no bounds of what was read.
        are_same = [one is not None and one.rows == own.total.rows for one, own in zip(sums, read, strict=True)]
        kept = [
            own._replace(checksum=one if same else None) for own, one, same in zip(read, sums, are_same, strict=True)
        ]
        return PartTotals(kept, {}, sum(own.total.rows for own in read))


@dataclass(frozen=True, slots=True)
class GroupTask:
    """Finds the totals of the row groups of data files, in any process; `known` has those of some, by path."""

    reader: SnapshotReader
    hashing: RowHash

    def __call__(self, part: Sequence[tuple[IndexedFile, Sequence[KnownGroup]]]) -> PartTotals:
        """Groups that are known and have the same dead rows still are as they were; others are read."""
        load_deleted([indexed for indexed, _ in part], self.reader.storage)
        found = PartTotals()
        for indexed, known in part:
            own = list(self._living(indexed, [group.rows for group in known]))
            if not known or any(_digest(dead) != group.dead for dead, group in zip(own, known, strict=True)):
                found.add(self._read(indexed, known))
            else:
                found.groups[key_of(indexed)] = known
        return found

    def _read(self, indexed: IndexedFile, known: Sequence[KnownGroup]) -> PartTotals:
        groups, read = list[KnownGroup](), 0
        with self.reader.opened(indexed) as source:
            sizes = source.group_rows
            for group, dead in enumerate(self._living(indexed, sizes)):
                mark = _digest(dead)
                if group < len(known) and (known[group].rows, known[group].dead) == (sizes[group], mark):
                    groups.append(known[group])
                    continue
                total = total_of(self.reader.living(source, group, dead), self.hashing)
                groups.append(KnownGroup(sizes[group], mark, total))
                read += total.rows
        return PartTotals([], {key_of(indexed): groups}, read)

    @staticmethod
    def _living(indexed: IndexedFile, sizes: Sequence[int]) -> Iterator[Positions]:
        return (dead_between(indexed, start, end) for start, end in ranges(sizes))


@dataclass(frozen=True, slots=True)
class TotalTask:
    """Does the work of one of the two on a part, which its number names, in any process."""

    tasks: tuple[PieceTask, GroupTask]

    def __call__(self, part: tuple[int, Any]) -> PartTotals:
        """What it found."""
        number, work = part
        return self.tasks[number](work)


def key_of(indexed: IndexedFile) -> str:
    """What a data file is known by."""
    return f"{indexed.file.size} {indexed.file.path}"


def total_of(rows: pa.Table, hashing: RowHash) -> Total:
    """The total of some rows."""
    return Total(rows.num_rows, int(hashing.of(rows)[0].sum(dtype=np.uint64)))


def _digest(dead: Positions) -> str:
    return hashlib.blake2b(dead.astype("<i8").tobytes(), digest_size=16).hexdigest()
