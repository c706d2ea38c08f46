"""Stages the batches of a window: here, or in the tasks that decoded their rows, chosen once for the window.

In tasks Spark brings the rows of a key together, and the driver learns of files and positions alone. What a task does
is what this process does with a batch of its own: fit, merge and stage (`batches.batch`, `sink.write.stage`).
"""

from __future__ import annotations

import platform
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from applier.changefeed.change_batch import Changes
from applier.changefeed.packing import packed
from applier.changefeed.table import Keyless, TableName
from applier.consume.source import KeptRows, PieceId
from applier.errors import ApplierError, OutsideRefused, TableMismatch, TransientError, worst
from applier.order.merge import IMAGE, together
from applier.order.pieces import Pieces, Share, shares, within
from applier.pipeline.batches.batch import Batch, Fit, Merging
from applier.pipeline.scan.task_result import Part, read_pieces
from applier.pipeline.scan.window_scan import WindowScan
from applier.pipeline.tables.target_tables import TargetTables
from applier.runtime.places import Places, Where
from applier.sink.format.types import TableSchema
from applier.sink.iceberg.files import JavaStorage
from applier.sink.write.stage import Stage, StagedBatch
from applier.sink.write.table_writer import TableWriter

SHARE_BYTES = 32 << 20
"""Bytes of rows that a task stages at once: about a second of work."""

SPLIT_ROWS = 250_000
"""Rows of a table that a range of its keys has at least."""

_MOST_RANGES = 64

LEAST_SHARE_BYTES = 2 << 20
"""Bytes of rows below which another task costs more than they do."""

_AGAIN = "the window is read again."

_OWN_RIGHTS = "let the machines of the cluster reach the storage with the rights of the driver: see docs/cluster.md."

Outcome: TypeAlias = StagedBatch | ApplierError | None
"""What a task made of its share of a batch; None if no change is left of it."""


@dataclass(slots=True)
class RowsHere:
    """Rows of a batch that are in this process, or are brought to it; fitted and merged here."""

    parts: Sequence[Part]
    fits: Sequence[Fit]
    merging: Merging
    kept: KeptRows | None = None
    _changes: Changes | None = field(default=None, init=False)

    @property
    def is_empty(self) -> bool:
        """Whether they change no row."""
        return self._merged().is_empty

    def staged(self, plan: Stage) -> StagedBatch:
        """What became of them; may be asked again, with another plan.

        Raises:
            TableMismatch, ValueRefused, SchemaChangeRefused, TransientError: They cannot be staged.
        """
        return plan.run(self._merged())

    def let_go(self) -> None:
        """They are committed: what is kept of them for another attempt may go, as other tables still wait."""
        self._changes = None

    def _merged(self) -> Changes:
        if self._changes is None:
            bodies = {} if self.kept is None else self.kept.collect()
            parts = [part if part.rows is not None else part.brought(bodies) for part in self.parts]
            fitted = [fit.fitted(part.here) for fit, part in zip(self.fits, parts, strict=True)]
            self._changes = self.merging.merged(fitted)
        return self._changes


@dataclass(frozen=True, slots=True)
class StagerHere:
    """Stages the batches of a window in this process, a table at a time."""

    kept: KeptRows | None = None

    def rows(self, batch: Batch, fits: Sequence[Fit], merging: Merging, writer: TableWriter) -> BatchRows:
        """The rows of a batch, for the table of a writer."""
        del writer
        return RowsHere(batch.parts, fits, merging, self.kept)

    def stage_ahead(self, every: Sequence[BatchRows]) -> None:
        """Bring rows that tasks keep here, once for all threads."""
        if self.kept is not None and every:
            self.kept.collect()


@dataclass(frozen=True, slots=True)
class ShareTask:
    """Stages a share of a batch, in any process.

    Attributes:
        fits: By task and part what fits the rows.
        wanted: Pieces of each part with their marks, and whether only some of their rows belong to the share.
        splits: As of `pieces.cut`.
    """

    fits: Mapping[tuple[int, int], Fit]
    wanted: Mapping[tuple[int, int], Sequence[tuple[int, int, bool]]]
    merging: Merging
    stage: Stage
    share: Share
    splits: Sequence[int]
    size: float

    def __call__(self, bodies: Mapping[PieceId, pa.Buffer]) -> Outcome:
        """What becomes of the share; an error is returned, as Spark would try the task again and lose what it says."""
        try:
            changes = self.merging.merged([fit.fitted(self._rows(place, bodies)) for place, fit in self.fits.items()])
            if changes.is_empty:
                return None
            sample, staged = self.stage.new_keys, self.stage.run(changes)
            return staged if sample is None else staged._replace(credit=sample.credit)
        except ApplierError as error:
            if isinstance(error, TransientError | OutsideRefused):
                # The storage may be out of reach of this machine alone.
                error.what = f"In a task on {platform.node()}: {error.what}"
                error.hint = error.hint or _OWN_RIGHTS
            return error

    def _rows(self, place: tuple[int, int], bodies: Mapping[PieceId, pa.Buffer]) -> pa.Table:
        shape = self.merging.shape
        own = partial(within, key=self.merging.key or (IMAGE,), splits=self.splits, share=self.share)
        pieces = read_pieces(self.wanted[place], place, bodies, own)
        rows = pa.concat_tables([piece.replace_schema_metadata(None) for piece in pieces])
        return together(rows) if isinstance(shape, Keyless) and self.share.is_all else rows


@dataclass(frozen=True, slots=True)
class Work:
    """What all tasks of a job do: by target the shares, each with the number of its batch."""

    targets: Sequence[Sequence[tuple[int, ShareTask]]]

    def __call__(self, target: int, bodies: Mapping[PieceId, pa.Buffer]) -> list[tuple[int, Outcome]]:
        """What becomes of the shares of a target."""
        return [(number, share(bodies)) for number, share in self.targets[target]]


@dataclass(slots=True)
class RowsInTasks:
    """Rows of a batch that stay in tasks; see `RowsHere`.

    Attributes:
        plan: How it was, or will be, staged; None where that is left to the attempts to commit.
        outcome: What became of it by this plan.
    """

    stager: StagerInTasks
    batch: Batch
    fits: Sequence[Fit]
    merging: Merging
    plan: Stage | None
    outcome: Outcome = field(default=None)

    @property
    def is_empty(self) -> bool:
        """See `RowsHere`; as the first job has shown."""
        return self.plan is not None and self.outcome is None

    def staged(self, plan: Stage) -> StagedBatch:
        """See `RowsHere`."""
        if self.plan is None or plan != replace(self.plan, needs_rows=plan.needs_rows):
            # A share whose rows keep values of those that they replace writes them anew for another head. Beside them
            # the other shares' rows would be lost, as what is written takes the place of all rows of earlier attempts.
            self.plan = replace(plan, needs_rows=True)
            self.stager.stage_ahead([self])
        if isinstance(self.outcome, ApplierError):
            raise self.outcome
        return self.outcome or StagedBatch([], {}, 0)

    def let_go(self) -> None:
        """See `RowsHere`: none are here."""

    def take(self, outcome: Outcome) -> None:
        """Take note of what became of it, and of what its look for new keys has cost."""
        self.outcome = outcome
        sample = self.plan.new_keys if self.plan else None
        if isinstance(outcome, StagedBatch) and outcome.credit is not None and sample is not None:
            sample.credit = outcome.credit

    def shares(self, most_bytes: float) -> Iterator[ShareTask]:
        """The tasks that stage it together; one of them, another for each snapshot, looks new keys up."""
        if (plan := self.plan) is None:
            return
        parts = [part.away for part in self.batch.parts]
        by_place = {(part.task, part.part): (part, fit) for part, fit in zip(parts, self.fits, strict=True)}
        splits = self.stager.splits.get(self.batch.name, ()) if self.merging.key else ()
        if not self.merging.key:
            # Each share looks for its rows in all files: more shares than slots would take longer than one.
            most_bytes = max(most_bytes, sum(part.size for part in parts) / self.stager.kept.slots)
        found = shares(parts, most_bytes) if _may_part(parts, self.merging.key, plan.layout.schema) else [Share()]
        sampled = (plan.index.snapshot_id or 0) % len(found)
        for at_share, share in enumerate(found):
            wanted = {
                place: [(number, part.marks[number], is_coarse) for number, is_coarse in part.of(share)]
                for place, (part, _) in sorted(by_place.items())
            }
            wanted = {place: pieces for place, pieces in wanted.items() if pieces}
            fits = {place: by_place[place][1] for place in wanted}
            size = sum(
                by_place[at][0].row_bytes * by_place[at][0].rows[piece]
                for at, pieces in wanted.items()
                for piece, _, _ in pieces
            )
            new_keys = plan.new_keys if at_share == sampled else None
            stage = replace(plan, threads=1, new_keys=new_keys)
            if wanted:
                yield ShareTask(fits, wanted, self.merging, stage, share, splits, size)


@dataclass(frozen=True, slots=True)
class StagerInTasks:
    """Stages in the tasks that keep the rows of a window; see `StagerHere`."""

    kept: KeptRows
    splits: Mapping[TableName, Sequence[int]]
    size: float

    def rows(self, batch: Batch, fits: Sequence[Fit], merging: Merging, writer: TableWriter) -> BatchRows:
        """See `StagerHere`; the files of some tables are reached by Java alone, and tasks have none.

        Rows that were read from TiDB are here, and all others of their table are brought to them.
        """
        if isinstance(writer.storage, JavaStorage) or any(part.rows is not None for part in batch.parts):
            return RowsHere(batch.parts, fits, merging, self.kept)
        plan = None
        # What another writer or an answer that is lost makes fail here, an attempt plans on what is there then.
        with suppress(TransientError, TableMismatch):
            plan = writer.plan(merging.key, exact=merging.exact)
        return RowsInTasks(self, batch, fits, merging, plan)

    def stage_ahead(self, every: Sequence[BatchRows]) -> None:
        """Stage in one job for all tables, as a job each would cost more than what most of them bring.

        Raises:
            TransientError: A task could not go on; the window is to be read again.
        """
        batches = [rows for rows in every if isinstance(rows, RowsInTasks)]
        if len(batches) < len(every):
            self.kept.collect()
        most_bytes = max(LEAST_SHARE_BYTES, min(SHARE_BYTES, self.size / self.kept.slots))
        work = [(number, share) for number, rows in enumerate(batches) for share in rows.shares(most_bytes)]
        if not work:
            return
        targets = packed(work, lambda item: item[1].size, most_bytes)
        answers = self.kept.stage(_routes(targets), Work(targets))
        if answers.keys() != set(range(len(targets))):
            raise TransientError("Spark gave no answer for a part of the rows.", _AGAIN)
        outcomes: list[list[Outcome]] = [[] for _ in batches]
        for number, outcome in chain.from_iterable(answers.values()):
            outcomes[number].append(outcome)
        for rows, found in zip(batches, outcomes, strict=True):
            rows.take(_sum(found))


BatchRows: TypeAlias = RowsHere | RowsInTasks
"""The rows of one batch, fitted and merged where they are."""

Stager: TypeAlias = StagerHere | StagerInTasks
"""Stages the batches of a window."""


def stager_of(scan: WindowScan, places: Places) -> Stager:
    """Where the rows of a window are staged: in the tasks that keep them, unless they are few; see `Places.of_rows`."""
    if scan.kept is None:
        return StagerHere()
    size = scan.results.size
    if places.of_rows(size).where is Where.HERE:
        return StagerHere(scan.kept)
    return StagerInTasks(scan.kept, scan.job.limits.splits, size)


def _may_part(parts: Sequence[Pieces], key: Sequence[str] | None, schema: TableSchema) -> bool:
    """Whether rows that are equal in their table were cut as equal ones: by its key, or, without one, by all columns.

    The columns of a table without a key may be fewer than those of the feed, or have less digits.
    """
    told = [dict(part.columns) for part in parts]
    fields = [(schema.field(name), kind) for columns in told for name, kind in columns.items() if name != IMAGE]
    return all(columns.keys() == {*key} if key else IMAGE in columns for columns in told) and all(
        field is not None and _keeps_apart(kind, field.arrow) for field, kind in fields
    )


def _keeps_apart(kind: pa.DataType, shown: pa.DataType) -> bool:
    """Whether values that differ in the feed differ in a column, too: `1.0` and `1.00` are one decimal."""
    is_parsed = pa.types.is_string(kind) and pa.types.is_decimal(shown)
    return kind == shown or not (is_parsed or pa.types.is_floating(shown))


def _sum(outcomes: Sequence[Outcome]) -> Outcome:
    """What became of a batch; what cannot pass counts most, then an error that may."""
    errors = [each for each in outcomes if isinstance(each, ApplierError)]
    if errors:
        return worst(errors)
    found = [each for each in outcomes if isinstance(each, StagedBatch)]
    return StagedBatch.sum(found) if found else None


def _routes(targets: Sequence[Sequence[tuple[int, ShareTask]]]) -> npt.NDArray[np.int32]:
    found = dict.fromkeys(
        (*place, piece, target)
        for target, every in enumerate(targets)
        for _, share in every
        for place, pieces in share.wanted.items()
        for piece, _, _ in pieces
    )
    return np.array(list(found), np.int32)


def splits(targets: TargetTables, names: Iterable[TableName]) -> dict[TableName, Sequence[int]]:
    """Where ranges of the keys of large tables begin, so that each task looks keys up in its share of the files.

    Of the tables that a step has written so far; keys that are no whole numbers have no ranges.
    """
    by_place = {targets.identifier(name): name for name in names}
    found = dict[TableName, Sequence[int]]()
    for writer in targets.writers:
        name, index = by_place.get(writer.table.identifier), writer.index
        if name is not None and index is not None and index.columns:
            found[name] = _splits([(file.lower[0], file.file.records) for file in index.files.values()])
    return found


def _splits(files: Sequence[tuple[object, int]]) -> Sequence[int]:
    """Ranges of about equal numbers of rows, by the lowest key of each file and its rows."""
    known = sorted((low, rows) for low, rows in files if isinstance(low, int) and not isinstance(low, bool))
    count = min(_MOST_RANGES, sum(rows for _, rows in known) // SPLIT_ROWS)
    if count < 2:
        return ()
    ends = np.cumsum([rows for _, rows in known])
    edges = np.linspace(0, ends[-1], count + 1)[1:-1]
    return sorted({known[int(at)][0] for at in np.searchsorted(ends, edges)})
