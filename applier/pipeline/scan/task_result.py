"""What a decode task found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import cast

import pyarrow as pa
import pyarrow.compute as pc

from applier.changefeed.fate import Fate, Fates
from applier.changefeed.message import TopicPartition
from applier.changefeed.table import TableName, TableVersion
from applier.consume.source import PieceId
from applier.errors import DecodeError, TransientError
from applier.order.barrier import Barrier
from applier.order.merge import IMAGE, hashed, together
from applier.order.pieces import PIECE_BYTES, SOURCE, Pieces, cut, marked
from applier.order.reduce import data_of
from applier.pipeline.scan.sample import Sample


@dataclass(frozen=True, slots=True)
class Part:
    """Reduced rows of one table version and segment, from one task.

    Attributes:
        version: The version they are written in, with the types that count.
        topic: Topic that they were read from.
        first_ts: Lowest commit ts of its rows; None if it has none.
        last_ts: Highest commit ts of its rows; 0 if it has none.
        shows_image: Whether a row is an image, and not a delete.
        size: Bytes of its rows in memory, about.
        rows: Columns of `KEYED_SCHEMA` or `KEYLESS_SCHEMA`, and the table's own; None where they are in a task.
        pieces: What is known of them there; None where they are here.
        is_reduced: Its rows are the keys of rows that TiDB has. They are here, until whole rows take their place.
    """

    version: TableVersion
    topic: str
    first_ts: int | None
    last_ts: int
    shows_image: bool
    size: float
    rows: pa.Table | None
    pieces: Pieces | None = None
    is_reduced: bool = False

    @classmethod
    def of(cls, version: TableVersion, rows: pa.Table, topic: str = "", *, is_reduced: bool = False) -> Part:
        """A part of rows that are here."""
        first = rows["\0first_ts" if "\0first_ts" in rows.column_names else "\0ts"]
        last, shows = pc.max(rows["\0ts"]).as_py() or 0, bool(pc.any(rows["\0present"]).as_py())
        return cls(version, topic, pc.min(first).as_py(), last, shows, rows.nbytes, rows, None, is_reduced)

    def is_of(self, name: TableName) -> bool:
        """Whether it has rows of the table itself, and not those of its table of changes."""
        return self.version.name.folded == name.folded

    @property
    def count(self) -> int:
        """How many rows it has."""
        return sum(self.away.rows) if self.rows is None else self.rows.num_rows

    @property
    def here(self) -> pa.Table:
        """Its rows, which are in this process."""
        return cast("pa.Table", self.rows)

    @property
    def away(self) -> Pieces:
        """What is known of its rows, which are in a task."""
        return cast("Pieces", self.pieces)

    @property
    def shows_columns(self) -> bool:
        """Whether its rows show which columns their table has: deletes may hold no more than its key."""
        version = self.version
        if version.keys_only or any(column.name not in version.key for column in version.columns):
            return not version.keys_only
        return self.shows_image

    def apart(self, task: int, number: int, splits: Sequence[int], piece_rows: int) -> tuple[Part, list[pa.Table]]:
        """The part without its rows, and the pieces of them; arguments as of `Pieces` and `pieces.cut`."""
        version, key = self.version, self.version.key
        source = f"{self.topic} {version.name} {version.version}"
        rows = self.here.replace_schema_metadata({SOURCE: source.encode()})
        own = data_of(rows).schema if not key else [rows.schema.field(name) for name in key]
        columns = tuple((column.name, column.type) for column in own)
        row_bytes = rows.nbytes / max(1, rows.num_rows)
        most_rows = max(1, min(piece_rows, int(PIECE_BYTES / max(1, row_bytes))))
        if not key:
            rows, key, splits = hashed(rows), (IMAGE,), ()
            columns = ((IMAGE, pa.int64()), *columns)
        places, tables = zip(*cut(rows, key, splits, most_rows), strict=True)
        ranges, levels, numbers = zip(*places, strict=True)
        counts = tuple(table.num_rows for table in tables)
        marks = tuple(marked(table) for table in tables)
        pieces = Pieces(task, number, columns, ranges, levels, numbers, counts, marks, row_bytes)
        return replace(self, rows=None, pieces=pieces), list(tables)

    def brought(self, bodies: Mapping[PieceId, pa.Buffer]) -> Part:
        """The part with its rows, of which all pieces were brought here.

        Raises:
            TransientError: They are not those of the part.
        """
        pieces = self.away
        wanted = [(number, mark, False) for number, mark in enumerate(pieces.marks)]
        rows = pa.concat_tables(read_pieces(wanted, (pieces.task, pieces.part), bodies))
        rows = rows if self.version.key else together(rows)
        return replace(self, rows=rows.replace_schema_metadata(None), pieces=None)


def read_pieces(
    wanted: Iterable[tuple[int, int, bool]],
    place: tuple[int, int],
    bodies: Mapping[PieceId, pa.Buffer],
    within: Callable[[pa.Table], pa.Table] = lambda rows: rows,
) -> Iterator[pa.Table]:
    """The rows of pieces of a part that were brought to this process; a part is a task and a number in it.

    `wanted` has the number and the mark of each piece, and whether only some of its rows are wanted, which `within`
    chooses.

    Raises:
        TransientError: A piece is not there, or is another one.
    """
    for piece, mark, is_coarse in wanted:
        body = bodies.get((*place, piece))
        rows = None if body is None else pa.ipc.open_stream(body).read_all()
        if rows is None or marked(rows) != mark:
            # A lost task that is run again may number its parts otherwise, as its decoder has learnt more or less:
            # rows of another table would be taken for those of this one.
            raise TransientError("Rows of a lost task were made again, and not as before.", "the window is read again.")
        yield within(rows) if is_coarse else rows


@dataclass(frozen=True, slots=True)
class Waiting:
    """Rows whose table version is not known yet; nothing at or above `commit_ts` may be applied."""

    name: TableName
    version: int
    commit_ts: int
    rows: int
    partition: TopicPartition


@dataclass(frozen=True, slots=True)
class BadMessage:
    """A message that cannot be decoded, or whose row does not fit its table.

    Attributes:
        tables: Tables that its rows may be of; () where they are not known.
    """

    partition: TopicPartition
    offset: int
    error: DecodeError
    tables: tuple[TableName, ...] = ()


MEASURES = ("messages", "entries", "bytes", "zero_dates")


@dataclass(slots=True)
class TaskResult:
    """What one decode task found, or all those of a row pass.

    Attributes:
        parts: Reduced rows by table and segment.
        barriers: DDL messages, copies and those above the watermark included.
        versions: Table versions that messages brought.
        topics: The topic of each table, as its rows and BOOTSTRAP messages show it.
        read: Messages per partition.
        torn: Partitions that several tasks have each read a part of.
        resolved: Highest resolved ts per partition.
        held: Lowest offset per partition that is not applied at the watermark and must be read again.
        waiting: Rows without a known version, by table, version and partition.
        late: By table the DDL of earlier steps that rows lie before which came behind them; see `Late.point`.
        bad: Messages that could not be used.
        has_unplaced: It met a message that cannot be used and shows no commit ts, whatever became of it.
        measures: `messages`, `entries` (changes, and messages without one), their `bytes`, `zero_dates`.
        fates: What becomes of the entries. Those of a bad message have none before another pass.
        samples: The newest row of each table, where `DecodeTask.samples` asks for it.
    """

    parts: dict[tuple[TableName, int], list[Part]] = field(default_factory=dict)
    barriers: list[Barrier] = field(default_factory=list)
    versions: dict[tuple[TableName, int], TableVersion] = field(default_factory=dict)
    topics: dict[TableName, str] = field(default_factory=dict)
    read: Counter[TopicPartition] = field(default_factory=Counter)
    torn: set[TopicPartition] = field(default_factory=set)
    resolved: dict[TopicPartition, int] = field(default_factory=dict)
    held: dict[TopicPartition, int] = field(default_factory=dict)
    waiting: dict[tuple[TableName, int, TopicPartition], Waiting] = field(default_factory=dict)
    late: dict[TableName, set[int]] = field(default_factory=dict)
    bad: list[BadMessage] = field(default_factory=list)
    has_unplaced: bool = False
    measures: Counter[str] = field(default_factory=lambda: Counter(dict.fromkeys(MEASURES, 0)))
    fates: Fates = field(default_factory=Counter)
    samples: dict[TableName, Sample] = field(default_factory=dict)

    @property
    def counts(self) -> dict[str, int]:
        """The measures, and how many entries have each fate."""
        found = Counter(dict.fromkeys(map(str, Fate), 0))
        for (fate, _), count in self.fates.items():
            found[str(fate)] += count
        return {**self.measures, **found}

    @property
    def held_rows(self) -> int:
        """How many row changes are read again later."""
        return sum(count for (fate, name), count in self.fates.items() if fate is Fate.HELD and name is not None)

    @property
    def has_rows(self) -> bool:
        """Whether it met due rows, also such that were passed over: other names may make them another table's."""
        passed = (Fate.LEFT_OUT, Fate.HAD, Fate.DOUBTED)
        return bool(self.parts or self.bad or any(fate in passed for fate, _ in self.fates))

    @property
    def misread(self) -> set[str]:
        """Topics with a torn partition whose rows count by what came before them, and not by commit ts and place alone.

        Rows without a key are counted by runs, which a tear would halve, and behind the watermarks of their partition.
        A row without a commit ts follows whatever came before it.
        """
        parts = chain.from_iterable(self.parts.values())
        counted = {part.topic for part in parts if part.first_ts == 0 or not part.version.shape.is_idempotent}
        return counted.intersection(place.topic for place in self.torn)

    def apart(self, task: int, splits: Mapping[TableName, Sequence[int]], piece_rows: int) -> list[list[pa.Table]]:
        """Leave the rows out, and return them: for each part its pieces; see `Part.apart`. Reduced rows stay."""
        found = list[list[pa.Table]]()
        for (name, _), parts in self.parts.items():
            for place, part in enumerate(parts):
                if part.is_reduced:
                    continue
                parts[place], pieces = part.apart(task, len(found), splits.get(name, ()), piece_rows)
                found.append(pieces)
        return found

    @property
    def size(self) -> float:
        """Bytes of all rows in memory, about."""
        return sum(part.size for parts in self.parts.values() for part in parts)

    def lowest(self) -> dict[TableName, int]:
        """The lowest commit ts of the rows of each table."""
        found: dict[TableName, int] = {}
        for (name, _), parts in self.parts.items():
            for part in parts:
                if (at := part.first_ts) is not None:
                    found[name] = min(at, found.get(name, at))
        return found

    def receive(self, place: TopicPartition, messages: int) -> None:
        """Count messages of a partition."""
        self.read[place] += messages
        self.measures["messages"] += messages
        self.measures["entries"] += messages

    def resolve(self, place: TopicPartition, ts: int) -> None:
        """Note a resolved ts of a partition."""
        self.resolved[place] = max(ts, self.resolved.get(place, 0))

    def hold(self, place: TopicPartition, offset: int) -> None:
        """Note an offset whose message a later step must read again."""
        self.held[place] = min(offset, self.held.get(place, offset))

    def wait(self, rows: Waiting) -> None:
        """Note rows whose table version has not come."""
        where = rows.name, rows.version, rows.partition
        if (known := self.waiting.get(where)) is not None:
            ts, count = min(known.commit_ts, rows.commit_ts), known.rows + rows.rows
            rows = Waiting(rows.name, rows.version, ts, count, rows.partition)
        self.waiting[where] = rows

    @staticmethod
    def sum(results: Iterable[TaskResult]) -> TaskResult:
        """What all tasks of a row pass found."""
        found = TaskResult()
        for one in results:
            for where, parts in one.parts.items():
                found.parts.setdefault(where, []).extend(parts)
            found.barriers += one.barriers
            found.versions |= one.versions
            found.topics |= one.topics
            found.bad += one.bad
            for name, points in one.late.items():
                found.late.setdefault(name, set()).update(points)
            found.torn |= found.read.keys() & one.read.keys()
            found.read.update(one.read)
            for place, ts in one.resolved.items():
                found.resolve(place, ts)
            for place, offset in one.held.items():
                found.hold(place, offset)
            for rows in one.waiting.values():
                found.wait(rows)
            for name, sample in one.samples.items():
                found.samples[name] = sample.newer(found.samples.get(name))
            found.has_unplaced |= one.has_unplaced
            found.fates.update(one.fates)
            found.measures.update(one.measures)
        return found
