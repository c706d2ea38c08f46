"""Measures and repairs the fragmentation of a table: each kind of maintenance is one unit of work behind the fence."""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import date
from functools import partial
from typing import Any, Literal, TypeAlias, TypeVar, cast

from pyroaring import BitMap64

from applier.changefeed import history
from applier.runtime import failpoints
from applier.runtime.logs import logger
from applier.sink.commit.stamp import Stamp
from applier.sink.control.control import unix_ms
from applier.sink.iceberg import maintenance as iceberg
from applier.sink.iceberg import orphans
from applier.sink.iceberg.commit import commit
from applier.sink.iceberg.files import DataFile, JavaStorage
from applier.sink.iceberg.orphans import Neighbours
from applier.sink.iceberg.table import Table
from applier.sink.write import merge as merging
from applier.sink.write.file_groups import bytes_of
from applier.sink.write.file_index import FileIndex, read_index
from applier.sink.write.file_writer import TARGET_BYTES
from applier.sink.write.merge import Merge
from applier.sink.write.table_writer import TableWriter

Task = Literal["changes", "compact", "manifests", "expire", "orphans"]

Counts: TypeAlias = dict[str, int]
"""What a unit of work did: `days` of changes that are gone, `compacted` data files, `vectors` (delete files) that are
gone, `manifests` that were brought together, `expired` snapshots, `orphans` removed."""

Dead: TypeAlias = dict[str, tuple[frozenset[tuple[str, Any]], BitMap64]]
"""Dead positions by path of a data file, and the identities of the delete files that they are of."""

ORPHANS_REMOVED_AT = "applier-maintenance.orphans-removed-at"
"""Table property: Unix milliseconds of the last search for orphan files. It is no part of the stamp."""

_SMALL = 0.75
"""Share of the target size below which Iceberg takes a file for small."""

_HOUR = 3_600_000

_LARGE_BYTES = 16 << 20
"""Bytes of files from which on no two merges of this process are made at a time: their rows are in memory."""

_LARGE_MERGE = threading.Lock()

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Thresholds:
    """From where on work pays.

    Attributes:
        small_files: Small data files in one partition; or position delete files of format 2 in all.
        deleted_share: Dead rows, as a share of the rows in a file or in the table.
        deleted_rows: Dead rows below which their share does not count: little is read in vain.
        manifests: Manifests of the head.
        snapshots: Snapshots to keep; older ones expire.
        snapshot_hours: Age at which the others expire as well.
        orphan_hours: Age of a file that no snapshot knows.
        unit_bytes: Bytes that one compaction reads, about; a table that needs more takes several.
    """

    small_files: int = 50
    deleted_share: float = 0.1
    deleted_rows: int = 10_000
    manifests: int = 100
    snapshots: int = 500
    snapshot_hours: float = 24.0
    orphan_hours: float = 72.0
    unit_bytes: int = 256 << 20


@dataclass(frozen=True, slots=True)
class Wear:
    """What slows readers of a table down.

    Attributes:
        small_files: Small data files of the partition that has most of them.
        delete_files: Position delete files; deletion vectors cost next to nothing each and do not count.
        deleted: Dead rows.
        rows: All rows, dead ones included.
        file_bytes: Mean size of a data file.
    """

    small_files: int
    delete_files: int
    deleted: int
    rows: int
    file_bytes: float

    def has_dead_rows(self, limits: Thresholds) -> bool:
        """Whether enough rows are dead for a compaction to pay."""
        return self.deleted >= limits.deleted_rows and self.deleted >= limits.deleted_share * self.rows

    def share(self, limits: Thresholds) -> float:
        """How worn it is, as a share of the wear from which on a compaction pays."""
        dead = self.deleted / max(1.0, limits.deleted_share * self.rows) if self.has_dead_rows(limits) else 0.0
        return max(self.small_files / limits.small_files, self.delete_files / limits.small_files, dead)

    def needs_compaction(self, limits: Thresholds) -> bool:
        """Whether a compaction pays."""
        return self.share(limits) >= 1


def wear(files: FileIndex, target_bytes: int) -> Wear:
    """How worn the snapshot of an index is, where the table wants data files of `target_bytes`."""
    small: Counter[tuple[object, ...]] = Counter()
    deletes: dict[tuple[object, ...], tuple[bool, int]] = {}
    size = 0
    for indexed in files.files.values():
        file = indexed.file
        size += file.size
        if file.size < _SMALL * target_bytes:
            small[file.spec_id, *map(str, file.partition)] += 1
        for delete in file.deletes:
            # One position delete file may hold the rows of many data files.
            deletes[merging.identity(delete)] = delete.is_vector, int(delete.json["record-count"])
    return Wear(
        small_files=max(small.values(), default=0),
        delete_files=sum(not is_vector for is_vector, _ in deletes.values()),
        deleted=sum(rows for _, rows in deletes.values()),
        rows=files.rows,
        file_bytes=size / max(1, len(files.files)),
    )


@dataclass(frozen=True, slots=True)
class Upkeep:
    """The maintenance of a table that has rows and a stamp. Rows and stamp stay what they are.

    What only time changes (`expire`, `remove_orphans`), and what prepares a compaction (`merge`), may run beside steps,
    with a writer of its own; all else takes its turn between two steps.

    Every method may raise CheckpointConflict, if a newer applier holds the table, and TransientError, after which the
    table shows the same rows as before. Without the neighbours, the tables of the catalog, orphans of a table whose
    location applier did not choose are left alone. A table of changes keeps them for some days; for good with None.
    """

    writer: TableWriter
    limits: Thresholds
    neighbours: Neighbours | None = None
    days: int | None = None

    @property
    def worn(self) -> float:
        """How worn the table is, as a share of what pays, as far as the files of its head are known without asking."""
        known = self.writer.index
        return 0.0 if known is None else wear(known, self._target).share(self.limits)

    @property
    def snapshots(self) -> int:
        """Snapshots that the table keeps, as last read."""
        return iceberg.snapshot_count(self.writer.table)

    @property
    def first_day(self) -> int:
        """The first day, since 1970 in UTC, whose changes stay, by the clock of the feed alone; 0 where all do."""
        known = self.writer.known
        return 0 if self.days is None or known is None else history.first_day(known.resolved_ts, self.days)

    @property
    def has_many_manifests(self) -> bool:
        """Whether the head has more manifests than pay."""
        return iceberg.manifests(self.writer.table) >= self.limits.manifests

    @property
    def orphans_removed_at(self) -> int | None:
        """Unix milliseconds of the last search for orphan files; None if it is unknown."""
        found = self.writer.table.setting(ORPHANS_REMOVED_AT)
        return None if found is None else int(found)

    def compact(self) -> Counts:
        """Rewrite small files and files with dead rows, as far as one unit goes; nothing where it does not pay."""
        self.writer.look()
        merge = self.merge(self.dead_positions)
        return self.by_iceberg() if merge is None else self.take_in(merge)

    @property
    def dead_positions(self) -> Dead:
        """What this writer knows of deletion vectors, for a `merge` beside it."""
        known = self.writer.index
        files = [] if known is None else list(known.files.values())
        return {each.file.path: (_identities(each.file), each.deleted) for each in files if each.deleted}

    def merge(self, known: Dead) -> Merge | None:
        """Write files anew, as far as one unit goes, for `take_in`; an empty merge where that does not pay.

        Nothing is committed. `known` dead positions are not read again.

        Returns:
            None where it is left to `by_iceberg`.
        """
        table, storage, limits = self.writer.table, self.writer.storage, self.limits
        files = read_index(str(table), self.writer.head, (), table.scan)
        found = wear(files, self._target)
        if not found.needs_compaction(limits):
            return Merge(table.uuid, table.schema.id, ())
        if (isinstance(storage, JavaStorage) and not table.schema.shadows) or not merging.is_plain(table):
            return None
        # Tasks take a group each; one process all of them, one after the other.
        size, rows = limits.unit_bytes, math.inf
        if table.java.tasks is None:
            size, rows = min(size, merging.MOST_BYTES), merging.MOST_ROWS
        for path, (deletes, dead) in known.items():
            indexed = files.files.get(path)
            if indexed is not None and _identities(indexed.file) == deletes:
                indexed.deleted = dead
        spec_id, fewest = int(table.spec_json["spec-id"]), min(5, limits.small_files)
        chosen = merging.groups(files, spec_id, _SMALL * self._target, fewest, size, rows)
        if found.has_dead_rows(limits):
            chosen += merging.with_dead_rows(files, spec_id, limits.deleted_share, chosen, limits.unit_bytes)
        is_large = sum(map(bytes_of, chosen)) > _LARGE_BYTES
        with _LARGE_MERGE if is_large else nullcontext():
            staged = merging.stage(table, storage, chosen) if chosen else None
        failpoints.reach("files-merged")
        return staged

    def take_in(self, merge: Merge) -> Counts:
        """Commit what was merged, with the rows that died since; nothing where the table has been written anew."""
        table = self.writer.table

        def put(stamp: Stamp, head: int) -> Counts:
            files = read_index(str(table), head, (), table.scan)
            for path, known in (self.writer.index or FileIndex(None, ())).files.items():
                files.files[path].deleted = known.deleted
            change = merge.change(table, self.writer.storage, files)
            if change is None:
                return {}
            change = replace(change, summary=stamp.summary(), properties=stamp.entries())
            commit(table, change, head, lambda: failpoints.reach("compaction-sent"))
            return {"compacted": len(change.rewritten), "vectors": len(change.replaced)}

        return self._fenced(put) if merge.parts else {}

    def by_iceberg(self) -> Counts:
        """Let Iceberg's own action, a job of Spark, rewrite what `merge` does not know how to."""
        table = self.writer.table

        def rewrite(stamp: Stamp, head: int) -> Counts:
            found = wear(read_index(str(table), head, (), table.scan), self._target)
            if table.schema.shadows or not found.needs_compaction(self.limits):
                return {}
            done = iceberg.compact(table, self._options(found), stamp, head)
            return {"compacted": done.data_files, "vectors": done.delete_files}

        return self._fenced(rewrite)

    def drop_days(self) -> Counts:
        """Drop the files of whole days of changes before the first one that stays; no file is written anew.

        The commit that takes them out also says from where on the table has all.
        """
        table = self.writer.table

        def drop(stamp: Stamp, head: int) -> Counts:
            first = self.first_day
            old = partial(_before, table, first)
            gone = old(read_index(str(table), head, (), table.scan))
            if not gone:
                return {}
            since = max(history.before(first), int(table.setting(history.COMPLETE_FROM) or 0))
            self.writer.drop(old, replace(stamp, extra={**stamp.extra, history.COMPLETE_FROM: str(since)}))
            # The stamp of the commit lacks what the table says beside its progress.
            self.writer.reload()
            return {"days": len({str(file.partition) for file in gone})}

        return self._fenced(drop)

    def rewrite_manifests(self) -> Counts:
        """Bring all manifests of data files together."""
        before = iceberg.manifests(self.writer.table)
        self._fenced(lambda stamp, head: iceberg.rewrite_manifests(self.writer.table, stamp, head))
        return {"manifests": before - iceberg.manifests(self.writer.table)}

    def expire(self, cut: int | None, now: int | None = None) -> Counts:
        """Drop old snapshots, but neither the one that a cut through all tables names nor any that came after it.

        The cut is the snapshot that the newest checkpoint lists; None if it lists none of this table. `now` is in Unix
        milliseconds.
        """
        if self._shares_files:
            return {}

        def drop(_: Stamp, __: int) -> int:
            times = iceberg.snapshot_times(self.writer.table)
            before = self._oldest(times, cut, now)
            if any(at < before for at in times.values()):
                iceberg.expire(self.writer.table, before)
                failpoints.reach("snapshots-expired")
            return len(times) - self.snapshots

        return {"expired": self._fenced(drop)}

    def remove_orphans(self, now: int | None = None) -> Counts:
        """Remove files that no snapshot references, from folders that no other table can have files in; `now` is in
        Unix milliseconds.
        """
        if self._shares_files:
            return {}
        clock = unix_ms() if now is None else now
        table = self.writer.table

        def remove(_: Stamp, __: int) -> Counts:
            removed, reason = 0, orphans.listing_refused(table)
            if reason is None:
                # A clock that runs ahead of storage would make files old that were written just now.
                before = min(clock, orphans.storage_time(table)) - int(self.limits.orphan_hours * _HOUR)
                removed = sum(orphans.remove(table, folder, before) for folder in self._searched())
            else:
                self._say_left_alone(reason)
            iceberg.set_property(table, ORPHANS_REMOVED_AT, str(clock))
            return {"orphans": removed}

        return self._fenced(remove)

    @property
    def _shares_files(self) -> bool:
        """Whether the owner says that other tables use the table's files; Iceberg refuses to remove any then."""
        return (self.writer.table.setting("gc.enabled") or "true").lower() != "true"

    def _searched(self) -> list[str]:
        """Folders that hold orphan files, unless files of another table may lie in any of them."""
        table = self.writer.table
        unknown = {folder: orphans.unreferenced(table, folder) for folder in orphans.folders(table)}
        found = [folder for folder, files in unknown.items() if files]
        reason = orphans.shared(table, unknown, self.neighbours) if found else None
        if reason is None:
            return found
        self._say_left_alone(reason, files=sum(map(len, unknown.values())))
        return []

    def _say_left_alone(self, reason: orphans.Reason, **known: int) -> None:
        table = self.writer.table
        logger().warning("orphans left alone", table=str(table), folder=table.location, because=reason, **known)

    @property
    def _target(self) -> int:
        return int(self.writer.table.setting("write.target-file-size-bytes") or TARGET_BYTES)

    def _options(self, found: Wear) -> dict[str, str]:
        limits = self.limits
        options = {
            "min-input-files": str(min(5, limits.small_files)),
            "delete-ratio-threshold": str(limits.deleted_share),
            "max-files-to-rewrite": str(max(limits.small_files, int(limits.unit_bytes / max(1.0, found.file_bytes)))),
        }
        if self.writer.table.format_version >= 3:
            return options
        # A position delete file of format 2 counts for no single file, so Iceberg cannot count shares; and one that
        # is as young as a rewritten file would count for it still.
        threshold = 1 if found.has_dead_rows(limits) else limits.small_files
        return options | {
            "delete-file-threshold": str(threshold),
            "use-starting-sequence-number": "false",
            "remove-dangling-deletes": "true",
        }

    def _oldest(self, times: dict[int, int], cut: int | None, now: int | None) -> int:
        """Unix milliseconds before which snapshots expire."""
        newest = sorted(times.values(), reverse=True)
        before = (unix_ms() if now is None else now) - int(self.limits.snapshot_hours * _HOUR)
        if len(newest) > self.limits.snapshots:
            before = max(before, newest[self.limits.snapshots - 1])
        return before if cut is None else min(before, times.get(cut, before))

    def _fenced(self, work: Callable[[Stamp, int], _T]) -> _T:
        """Do work on the table as it is now, if it is still ours, and read it again afterwards, also if it failed."""
        self.writer.look()
        try:
            return work(cast("Stamp", self.writer.own_stamp), cast("int", self.writer.head))
        finally:
            self.writer.look()


def _identities(file: DataFile) -> frozenset[tuple[str, Any]]:
    return frozenset(map(merging.identity, file.deletes))


def _before(table: Table, first: int, files: FileIndex) -> list[DataFile]:
    """Data files that hold changes of days before the first one alone; others than those by day show no day."""
    day = next((field.id for field in table.schema.fields if field.name == history.COMMIT_TIME), None)
    places = {
        spec["spec-id"]: place
        for spec in table.specs_json
        for place, part in enumerate(spec["fields"])
        if (part["source-id"], part["transform"]) == (day, "day")
    }
    found = [indexed.file for indexed in files.files.values() if indexed.file.spec_id in places]
    days = ((file, file.partition[places[file.spec_id]]) for file in found)
    return [file for file, text in days if text is not None and _number(text) < first]


def _number(day: str) -> int:
    return (date.fromisoformat(day) - date(1970, 1, 1)).days


def properties_of_new(*, is_far: bool) -> dict[str, str]:
    """Properties of a table that is created: it has no orphans yet, and its metadata files do not pile up.

    Nor do manifests, which commits bring together: each that holds a vector or a file that a commit takes out is
    written again. Where storage `is_far`, each is a request, and `CachingFileIO` sends none that is merged at once; on
    a disk the merge itself costs more than the files.
    """
    return {
        ORPHANS_REMOVED_AT: str(unix_ms()),
        "write.metadata.delete-after-commit.enabled": "true",
        "commit.manifest.min-count-to-merge": "3" if is_far else "10",
        # What is written again stays small, however many files the table has.
        "commit.manifest.target-size-bytes": str(1 << 20),
    }
