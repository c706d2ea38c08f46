"""Orphan files: files in the folders of a table that no snapshot of the table references.

A file that this table does not reference may be a file of another table. Nothing in the listing says so, and removing
it destroys that table. So a folder is searched only if no other table can have files in it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from applier.errors import ApplierError, TransientError
from applier.sink.iceberg.catalog import Catalog
from applier.sink.iceberg.java import JavaError, translated
from applier.sink.iceberg.location import OWN_LOCATION, FileExtent, normalised
from applier.sink.iceberg.table import Table

Reason: TypeAlias = str
"""Why a folder is left alone, as the end of a sentence."""

_MAX_METADATA = 200
"""Unknown metadata files that are read at most: a folder with more of them is left alone."""

_EVER = 2**62
"""Unix milliseconds after every file's."""

_KNOWN_SECONDS = 3600.0
"""Time for which the tables of a catalog are remembered: each of them is loaded to know where it keeps files."""

_STRAY_SECONDS = 10.0
"""Time after which a search stops to ask tables for their files, a Spark job each. The next search goes on there."""

_MAX_STRAYS = 1000
"""Folders outside a table's location that are remembered at most: a table with more of them may keep files anywhere."""


class Neighbours:
    """Where all tables of a catalog keep files, by a clock whose seconds only grow. Any thread may ask.

    One search may spend `stray_seconds` to ask tables for files outside their location.
    """

    def __init__(
        self, catalog: Catalog, clock: Callable[[], float] = time.monotonic, stray_seconds: float = _STRAY_SECONDS
    ) -> None:
        self._catalog = catalog
        self._clock = clock
        self._stray_seconds = stray_seconds
        self._extents: dict[tuple[str, ...], FileExtent] = {}
        self._strays: dict[tuple[str, str], tuple[str, ...]] = {}
        self._at: float | None = None
        self._lock = threading.Lock()

    def reach(self, table: Table, folder: str) -> tuple[str, ...] | None:
        """Identifier of another table that may keep files in a folder of `table`; None if there is no such table.

        Raises:
            ApplierError: The catalog does not list all its tables, one of them cannot be loaded, or the time did not
                suffice to ask all of them.
        """
        with self._lock:
            if self._at is None or self._clock() - self._at > _KNOWN_SECONDS:
                self._extents = self._read()
                self._at = self._clock()
        others = (item for item in self._extents.items() if item[0] != table.identifier)
        return next((identifier for identifier, extent in others if extent.reaches(folder)), None)

    def _read(self) -> dict[tuple[str, ...], FileExtent]:
        names = [name for namespace in self._catalog.namespaces() for name in self._catalog.list(namespace)]
        loaded = [(name, self._catalog.load(name)) for name in names]
        end = self._clock() + self._stray_seconds
        return {name: self._extent(table, end) for name, table in loaded if table is not None}

    def _extent(self, table: Table, end: float) -> FileExtent:
        """Where a table keeps files. A table whose location was changed still has files at the former one."""
        found = FileExtent.of(table.location, table.properties)
        if table.setting(OWN_LOCATION) == table.location:
            return found
        # Files that come later lie at the location, so a table is asked once for each location.
        known = table.uuid, table.location
        if known not in self._strays:
            if self._clock() >= end:
                raise TransientError("not all of them have been asked for their files yet")
            self._strays[known] = _strays(table)
        return replace(found, writes=(*found.writes, *self._strays[known]))


def listing_refused(table: Table) -> Reason | None:
    """Why the files of a table cannot be listed; None if they can."""
    with translated(f"Cannot ask the FileIO of table {table}"):
        if table.java.own.TableText.lists(table.handle):
            return None
    return "the FileIO of the catalog cannot list files (it lacks SupportsPrefixOperations)"


def folders(table: Table) -> list[str]:
    """The folders of a table that hold files, as far as they lie below its location.

    Not the location itself: the location of another table may lie below it.
    """
    names = [name for name in ("data", "metadata") if table.setting(f"write.{name}.path") is None]
    return [folder for name in names if _has_files(table, folder := f"{table.location}/{name}")]


def shared(table: Table, unknown: Mapping[str, Sequence[str]], neighbours: Neighbours | None) -> Reason | None:
    """Why the folders of a table may hold files of other tables; None if no other table can have files in them.

    The metadata of another table may lie in one folder and its data in the other, so one reason counts for all.
    `unknown` has by folder all files that the table does not reference, however young. The neighbours are asked about a
    table whose location applier did not choose.

    Raises:
        JavaError: Storage did not answer.
    """
    files = [file for found in unknown.values() for file in found]
    return _foreign_metadata(table, files) or _neighbour(table, unknown, neighbours)


def unreferenced(table: Table, folder: str) -> list[str]:
    """All files of a folder that the table does not reference, however young.

    Raises:
        JavaError: Storage did not answer, or the same file is known under two addresses.
    """
    with translated(f"Cannot look for orphan files of table {table}"):
        # The consumer leaves each file where it is, without a call back for each.
        nothing = table.java.constant("java.util.function.Consumer", None)
        action = _action(table, folder, _EVER).deleteWith(nothing)
        return [str(file) for file in table.java.items(action.execute().orphanFileLocations())]


def remove(table: Table, folder: str, before: int) -> int:
    """Remove the unreferenced files of a folder that are older than `before`, in Unix milliseconds, and count them.

    Raises:
        JavaError: Catalog or storage did not answer.
    """
    with translated(f"Cannot remove orphan files of table {table}"):
        return int(_action(table, folder, before).execute().orphanFilesCount())


def storage_time(table: Table) -> int:
    """Unix milliseconds at which storage took the newest metadata file, by the clock of storage.

    Raises:
        JavaError: Storage did not answer, or does not know the file.
    """
    with translated(f"Cannot read the age of the metadata of table {table}"):
        path = table.metadata_file
        times = [int(file.createdAtMillis()) for file in table.java.items(table.handle.io().listPrefix(path))]
        if not times:
            raise JavaError(f"Cannot read the age of the metadata of table {table}", "", "storage does not list it")
        return max(times)


def _foreign_metadata(table: Table, files: Iterable[str]) -> Reason | None:
    """Why unreferenced metadata files among `files` show that another table lies there; None if all are this table's.

    Metadata files of this table that its log has forgotten have its UUID.
    """
    found = [file for file in files if _is_metadata(file)]
    if len(found) > _MAX_METADATA:
        return f"it holds {len(found)} metadata files that the table does not know"
    for file in found:
        owner = _uuid(table, file)
        if owner is None:
            return f"{file} cannot be read, so it may be the metadata of another table"
        if owner != table.uuid:
            return f"{file} is the metadata of another table"
    return None


def _neighbour(table: Table, unknown: Mapping[str, Sequence[str]], neighbours: Neighbours | None) -> Reason | None:
    """Why another table of the catalog may keep files in some of the folders; None if no other one can."""
    # Metadata that this table wrote and forgot, or that its copy wrote: a table registered under a second name.
    is_copied = any(map(_is_metadata, (file for files in unknown.values() for file in files)))
    if table.setting(OWN_LOCATION) == table.location and not is_copied:
        return None
    if neighbours is None:
        return "the location was not chosen for this table alone"
    try:
        found = (other for folder in unknown if (other := neighbours.reach(table, folder)) is not None)
        other = next(found, None)
    except ApplierError as error:
        # A table that cannot be loaded may lie here as well.
        return f"not all tables of the catalog can be read: {error.what}"
    return None if other is None else f"table {'.'.join(other)} keeps files there"


def _is_metadata(file: str) -> bool:
    return file.endswith((".metadata.json", ".metadata.json.gz"))


def _strays(table: Table) -> tuple[str, ...]:
    with translated(f"Cannot list the files of table {table}"):
        iceberg, session = table.java.iceberg, table.java.session
        found: set[str] = set()
        for kind, column in (("ALL_FILES", "file_path"), ("ALL_MANIFESTS", "path"), ("SNAPSHOTS", "manifest_list")):
            files = iceberg.spark.SparkTableUtil.loadMetadataTable(
                session._jsparkSession, table.handle, getattr(iceberg.MetadataTableType, kind)
            )
            # No SQL text holds the location: names of upstream tables are part of it.
            is_inside = files.col(column).startsWith(f"{table.location.rstrip('/')}/")
            outside = files.filter(getattr(table.java.jvm.org.apache.spark.sql.functions, "not")(is_inside))
            folder = table.java.strings([f"regexp_replace({column}, '/[^/]*$', '') AS folder"])
            rows = outside.selectExpr(folder).distinct().limit(_MAX_STRAYS + 1).collectAsList()
            found |= {normalised(str(row.getString(0))) for row in table.java.items(rows)}
    if len(found) > _MAX_STRAYS:
        raise JavaError(f"Cannot list the files of table {table}", "", "they lie in too many folders")
    return tuple(sorted(found))


def _uuid(table: Table, file: str) -> str | None:
    """UUID of the table that a metadata file describes; None if it cannot be read."""
    try:
        with translated(f"Cannot read {file}"):
            metadata = table.java.iceberg.TableMetadataParser.read(table.handle.io(), file)
            return str(metadata.uuid())
    except ApplierError:
        return None


def _action(table: Table, folder: str, before: int) -> Any:
    actions = table.java.iceberg.spark.actions.SparkActions.get(table.java.session._jsparkSession)
    return actions.deleteOrphanFiles(table.handle).location(folder).usePrefixListing(True).olderThan(before)


def _has_files(table: Table, folder: str) -> bool:
    try:
        with translated(f"Cannot list the files of table {table}"):
            return bool(table.handle.io().listPrefix(folder).iterator().hasNext())
    except JavaError as error:
        # Object stores know no folders; others say so where there is none.
        if "FileNotFound" in error.detail:
            return False
        raise
