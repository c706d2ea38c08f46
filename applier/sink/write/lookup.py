"""Finds the positions of keys in data files: by binary search, or by a semi-join with the files' key columns."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from applier.changefeed.packing import packed
from applier.sink.format.bounds import Column, SortedKeys, numbers
from applier.sink.format.storage import Storage, read_each
from applier.sink.format.types import Field
from applier.sink.iceberg.files import DataFile
from applier.sink.write.file_index import IndexedFile
from applier.sink.write.key_cache import FILE_ROWS, LARGE, SMALL, GroupKeys, KeyCache, Keys, NumberKeys
from applier.sink.write.parquet import ParquetSource, Positions, ranges

GROUP_ROWS = 5_000_000
"""Rows that one join takes. The hash table of the keys is built once a join, so joining file by file would cost more
than reading; more rows than this only cost memory."""

FEW_ROWS = 200_000
"""Rows that one join takes where two would be faster: another thread costs more than they do."""

Form: TypeAlias = Callable[[pa.Table], pa.Table]
"""Turns columns into a form that a hash join compares rightly."""

_ROW = "\0row"
"""Name of the column that carries the row's number; no TiDB column can be named so."""


def comparable(columns: pa.Table) -> pa.Table:
    """The same columns in a form in which equal keys are equal to a hash join: -0.0 is 0.0."""
    for index, column in enumerate(columns.columns):
        if pa.types.is_floating(column.type):
            zero: Any = pa.scalar(0.0, column.type)
            columns = columns.set_column(index, columns.field(index).name, pc.add(column, zero))
    return columns


def positions_of(
    files: Sequence[IndexedFile],
    keys: pa.Table,
    fields: Sequence[Field],
    storage: Storage,
    threads: int = 0,
    form: Form = comparable,
) -> dict[str, Positions]:
    """Find the rows of some keys, which are named and typed as in the table; dead versions of a row are found as well.

    Groups of files are looked through in some threads; 0 means one a processor. Key columns are compared in a form in
    which equal rows are equal to a hash join. The positions come by path, of files with hits.
    """
    if not files or keys.num_rows == 0:
        return {}
    columns = keys.select([field.name for field in fields])
    sought = [SortedKeys(column) for column in columns.columns]
    search = _Search(tuple(fields), sought, form(columns), form, storage)
    workers = threads or os.cpu_count() or 1
    even = max(FEW_ROWS, sum(indexed.file.records for indexed in files) // workers + 1)
    groups = packed(files, lambda indexed: indexed.file.records, min(GROUP_ROWS, even))
    found: dict[str, Positions] = {}
    if len(groups) == 1 or workers == 1:
        for group in groups:
            found |= search.located(group)
        return found
    with ThreadPoolExecutor(workers) as pool:
        for hits in pool.map(search.located, groups):
            found |= hits
    return found


def read_located(
    storage: Storage, files: Mapping[str, IndexedFile], hits: Mapping[str, Positions], fields: Sequence[Field]
) -> pa.Table:
    """Columns of located rows, file after file in the order of `hits`."""

    def read(path: str) -> pa.Table:
        with ParquetSource(storage, path, files[path].file.size) as source:
            return source.take(hits[path], fields)

    return pa.concat_tables(read_each(storage, read, list(hits)))


def remember(path: str, fields: Sequence[Field], columns: pa.Table) -> None:
    """Keep the key columns of a small file that was just written, which has one row group."""
    if columns.num_rows <= FILE_ROWS:
        names = [field.name for field in fields]
        keys = _keys(columns.select(names), fields)
        if isinstance(keys, pa.Table):
            # A slice would keep all rows that it was cut from; and to be joined with what is read of other files, the
            # columns must allow NULL as those do.
            keys = pa.Table.from_arrays(keys.take(np.arange(keys.num_rows)).columns, names)
        SMALL.put(path, fields, (GroupKeys(0, ((None, None),) * len(names), keys),))


@dataclass(frozen=True, slots=True)
class _Search:
    """What is looked for: the values of each key column that are `sought`, and the keys in the form of their join."""

    fields: tuple[Field, ...]
    sought: Sequence[SortedKeys]
    wanted: pa.Table
    form: Form
    storage: Storage

    def located(self, files: Sequence[IndexedFile]) -> dict[str, Positions]:
        """Positions by path, of those of the files that have hits."""
        hits = defaultdict(list)
        unordered: list[tuple[str, int, pa.Table]] = []
        for indexed, groups in zip(files, read_each(self.storage, self._groups, files), strict=True):
            for group in groups:
                if isinstance(group.keys, pa.Table):
                    unordered.append((indexed.file.path, group.first, group.keys))
                elif group.keys is not None:
                    places = _among(group.keys.ascending, self.sought[0].numbers)
                    rows = places if group.keys.rows is None else group.keys.rows[places].astype(np.int64)
                    hits[indexed.file.path].append(group.first + rows)
        for path, positions in _joined(unordered, self.wanted):
            hits[path].append(positions)
        found = {path: np.sort(np.concatenate(parts)) for path, parts in hits.items()}
        return {path: positions for path, positions in found.items() if len(positions)}

    def _groups(self, indexed: IndexedFile) -> Sequence[GroupKeys]:
        """The row groups that may hold a key, with theirs."""
        path, cache = indexed.file.path, self._cache(indexed)
        known = cache.get(path, self.fields) if cache is not None else None
        if known is None or any(map(self._lacks, known)):
            known = self._read(indexed.file, known)
            if cache is not None:
                cache.put(path, self.fields, known if cache is SMALL else tuple(map(_without_columns, known)))
        return [group for group in known if group.keys is not None]

    def _cache(self, indexed: IndexedFile) -> KeyCache | None:
        """Columns of large files are not kept: they take much memory, and the join is what costs."""
        if self.form is not comparable:
            return None
        return SMALL if indexed.file.records <= FILE_ROWS else LARGE

    def _lacks(self, group: GroupKeys) -> bool:
        return group.keys is None and all(
            keys.holds(*bound) for keys, bound in zip(self.sought, group.bounds, strict=True)
        )

    def _read(self, file: DataFile, known: Sequence[GroupKeys] | None) -> tuple[GroupKeys, ...]:
        # Sorting keys costs more than one join with them, so it pays only if the file is looked through again.
        sorts = known is not None
        with ParquetSource(self.storage, file.path, file.size) as source:
            if known is None:
                known = [
                    GroupKeys(start, tuple(source.bounds(group, field) for field in self.fields), None)
                    for group, (start, _) in enumerate(ranges(source.group_rows))
                ]
            return tuple(
                replace(group, keys=self._keys(source.read(number, self.fields), sorts=sorts))
                if self._lacks(group)
                else group
                for number, group in enumerate(known)
            )

    def _keys(self, columns: pa.Table, *, sorts: bool) -> Keys:
        return _keys(columns, self.fields, sorts=sorts) if self.form is comparable else self.form(columns)


def _keys(columns: pa.Table, fields: Sequence[Field], *, sorts: bool = False) -> Keys:
    """The keys of a row group; numbers have memory of their own."""
    found = _numbers(columns, fields)
    if found is not None and len(found) == columns.num_rows:
        if _ascend(found):
            return NumberKeys(np.array(found), None)
        if sorts:
            order = np.argsort(found, kind="stable")  # Fast where a file holds several sorted runs.
            ascending = found[order]
            if _ascend(ascending):
                return NumberKeys(ascending, order.astype(np.int32))
    return comparable(columns)


def _ascend(values: np.ndarray[Any, Any]) -> bool:
    return bool(np.all(values[1:] > values[:-1]))


def _numbers(columns: pa.Table, fields: Sequence[Field]) -> np.ndarray[Any, np.dtype[np.int64]] | None:
    """The values of a key of one column whose order is that of whole numbers; without NULL, which equals no key."""
    if len(fields) != 1 or not (pa.types.is_integer(fields[0].arrow) or pa.types.is_temporal(fields[0].arrow)):
        return None
    column: Column = columns[fields[0].name]
    return numbers(column)


def _without_columns(group: GroupKeys) -> GroupKeys:
    return replace(group, keys=None) if isinstance(group.keys, pa.Table) else group


def _among(ascending: np.ndarray[Any, Any], wanted: np.ndarray[Any, Any]) -> Positions:
    """Where the wanted values are in the ascending ones; both are sorted and hold no value twice."""
    if not len(ascending):
        return ascending
    # Few of the keys lie in one row group: to search for them in it costs far less than the other way round.
    first, last = np.searchsorted(wanted, ascending[0]), np.searchsorted(wanted, ascending[-1], "right")
    near = wanted[first:last]
    if len(near) <= len(ascending):
        places = np.searchsorted(ascending, near)
        return np.asarray(places[ascending[places] == near])
    places = np.searchsorted(near, ascending)
    return np.flatnonzero(near[np.minimum(places, len(near) - 1)] == ascending)


def _joined(pieces: Sequence[tuple[str, int, pa.Table]], wanted: pa.Table) -> Iterator[tuple[str, Positions]]:
    """Hits of pieces of files, which are given as the path, the position of the first row and the columns."""
    if not pieces:
        return
    columns = pa.concat_tables([table for _, _, table in pieces])
    edges = np.cumsum([0, *(table.num_rows for _, _, table in pieces)])
    numbered = columns.append_column(_ROW, pa.array(np.arange(edges[-1])))
    # One thread: several groups of files are joined at once, and Acero's pool would be shared by all of them.
    hits = numbered.join(wanted, wanted.column_names, join_type="left semi", use_threads=False)
    rows = np.sort(hits[_ROW].to_numpy())
    cuts = np.searchsorted(rows, edges)
    for index, (path, first, _) in enumerate(pieces):
        if cuts[index] < cuts[index + 1]:
            yield path, rows[cuts[index] : cuts[index + 1]] - edges[index] + first
