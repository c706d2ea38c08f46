"""Compares two sides of a table: first by digests of chunks, then by the rows of the chunks that differ."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from applier.commands.verify.difference import Differences, differences
from applier.commands.verify.digest import Digest, found
from applier.commands.verify.memory import Memory, Total
from applier.commands.verify.row_hash import RowHash
from applier.commands.verify.sides import Side, SideReader, SnapshotReader, UpstreamReader
from applier.commands.verify.totals import GroupTask, KnownAt, PartTotals, PieceTask, TotalTask, key_of
from applier.decode.tidb.piece_reader import Piece, PieceReader, can_be_cut
from applier.decode.tidb.range_reader import RangeReader
from applier.decode.tidb.table_ranges import Bound
from applier.runtime.tasks.spark import map_in_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MOST_PARTS = 64
"""Parts of TiDB's table, each a task, that are read in pieces."""

_MOST_BYTES = 128 << 20
"""Bytes of rows of chunks that differ, of both sides, that are compared: they are in memory at once."""


@dataclass(frozen=True, slots=True)
class DigestTask:
    """Computes the digest of a part of one of two sides, which its number names, in any process."""

    readers: tuple[SideReader, SideReader]
    hashing: RowHash

    def __call__(self, part: tuple[int, Sequence[Any]]) -> tuple[int, Digest]:
        """The number of the side, and what the part holds."""
        number, pieces = part
        digest = Digest()
        for rows in self.readers[number].read(pieces):
            digest.take(rows, self.hashing)
        return number, digest


@dataclass(frozen=True, slots=True)
class RowsTask:
    """Finds the rows of some chunks in a part of one of two sides, in any process."""

    readers: tuple[SideReader, SideReader]
    hashing: RowHash
    wanted: Any

    def __call__(self, part: tuple[int, Sequence[Any]]) -> tuple[int, pa.Table | None]:
        """The number of the side, and the rows that `digest.found` finds."""
        number, pieces = part
        return number, found(self.readers[number].read(pieces), self.hashing, self.wanted)


@dataclass(frozen=True, slots=True)
class Comparison:
    """What a comparison has found.

    Attributes:
        upstream_rows: Rows of the upstream.
        rows: Rows of the Iceberg table.
        found: How they differ; None where they are equal.
        is_whole: All chunks that differ were looked through, so that no difference is left out of the counts.
    """

    upstream_rows: int
    rows: int
    found: Differences | None = None
    is_whole: bool = True


def compare(
    session: SparkSession,
    name: str,
    sides: tuple[Side, Side],
    key: Sequence[str],
    names: Sequence[str],
    seed: int,
) -> Comparison:
    """Compare the upstream with an Iceberg table of these columns, in jobs of Spark; () is no key.

    Raises what the readers of the sides do, and TransientError where Spark fails.
    """
    readers = (sides[0].reader, sides[1].reader)
    parts = [(number, part) for number, side in enumerate(sides) for part in side.parts]
    hashing = RowHash(tuple(map(names.index, key)), seed)
    upstream, iceberg = Digest(), Digest()
    for number, digest in map_in_tasks(session, f"compare table {name}", DigestTask(readers, hashing), parts):
        (upstream, iceberg)[number].add(digest)
    differing = upstream.differing(iceberg)
    if not len(differing):
        return Comparison(upstream.rows, iceberg.rows)
    wanted = _fitting(differing, upstream, iceberg)
    tables: tuple[list[pa.Table], list[pa.Table]] = ([], [])
    task = RowsTask(readers, hashing, wanted)
    for number, table in map_in_tasks(session, f"find what differs in table {name}", task, parts):
        if table is not None:
            tables[number].append(table)
    shown = differences(_joined(tables[0]), _joined(tables[1]), key, names)
    return Comparison(upstream.rows, iceberg.rows, shown, len(wanted) == len(differing))


def _joined(tables: Sequence[pa.Table]) -> pa.Table | None:
    return pa.concat_tables(tables) if tables else None


def _fitting(differing: Any, upstream: Digest, iceberg: Digest) -> Any:
    """As many of the chunks that differ as fit into memory, the smallest first, and one at least."""
    rows = upstream.counts[differing] + iceberg.counts[differing]
    order = np.argsort(rows, kind="stable")
    width = (upstream.size + iceberg.size) / max(1, upstream.rows + iceberg.rows)
    fitting = int(np.searchsorted(np.cumsum(rows[order]) * width, _MOST_BYTES, side="right"))
    return np.sort(differing[order[: max(1, fitting)]])


class Totals(NamedTuple):
    """The totals of both sides.

    Attributes:
        upstream: Those of TiDB.
        iceberg: Those of the Iceberg table.
        read: Rows of both that were read.
        memory: What is known now.
    """

    upstream: Total
    iceberg: Total
    read: int
    memory: Memory


def totals(
    session: SparkSession,
    name: str,
    sides: tuple[Side, Side],
    bounds: Sequence[Bound],
    key: Sequence[int],
    memory: Memory,
) -> Totals | None:
    """Compute the totals in one job of Spark; where nothing is known, TiDB's table is cut at these bounds first.

    None for a table that is not read in pieces. Raises what the readers do, and TransientError where Spark fails.
    """
    upstream, own = sides[0].reader, sides[1].reader
    if not isinstance(own, SnapshotReader) or not isinstance(upstream, UpstreamReader):
        return None
    ranges = upstream.reader
    if not isinstance(ranges, RangeReader) or not can_be_cut(ranges):
        return None
    hashing = RowHash(tuple(key), memory.seed)
    size = sum(piece.size for part in sides[0].parts for piece in part)
    tasks = PieceTask(upstream, PieceReader(ranges, memory.seed, size), hashing), GroupTask(own, hashing)
    known: Sequence[KnownAt] = memory.known() or [(Piece(*ends), None) for ends in pairwise([None, *bounds, None])]
    step = -(-len(known) // _MOST_PARTS)
    parts: list[tuple[int, Any]] = [(0, known[at : at + step]) for at in range(0, len(known), step)]
    parts += [(1, [(it, memory.groups.get(key_of(it), ())) for it in part]) for part in sides[1].parts]
    found = PartTotals()
    for outcome in map_in_tasks(session, f"compare table {name}", TotalTask(tasks), parts):
        found.add(outcome)
    groups = [group.total for of_file in found.groups.values() for group in of_file]
    now = replace(memory, pieces=found.pieces, groups=found.groups)
    return Totals(_sum(piece.total for piece in found.pieces), _sum(groups), found.read, now)


def _sum(parts: Iterable[Total]) -> Total:
    return reduce(Total.plus, parts, Total())
