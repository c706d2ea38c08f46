"""Reads from TiDB the rows that messages hold by their key alone, each as of its commit ts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from applier.changefeed.message import TopicPartition
from applier.changefeed.table import TableName, TableVersion, fingerprint
from applier.changefeed.types import TypeRules
from applier.config.login import Login
from applier.consume.window_size import WindowTooLargeError
from applier.decode.large_messages import handle_key_only
from applier.decode.tidb.rows_as_of import RowsAsOf
from applier.decode.tidb.session import KEEP, MomentAhead, MomentGone, Session, session
from applier.decode.tidb.tidb_export import declared
from applier.errors import RELOAD, ApplierError, ConfigError, IncompleteRow, OutsideRefused, ValueRefused
from applier.order.latest import numbers
from applier.order.reduce import META, data_of
from applier.pipeline.scan.task_result import BadMessage, Part, TaskResult
from applier.pipeline.scan.task_versions import DdlMarks

AT_ONCE = 16
"""Rows that one query asks for: each is larger than a message may be."""

_REFUSALS = (ConfigError, MomentGone, OutsideRefused, ValueRefused)
_SAME = f"Name the TiDB of the changefeed in upstream.url. {RELOAD}"


@dataclass(frozen=True, slots=True)
class ReducedRows:
    """Where they are.

    Args:
        login: The TiDB.
        rules: How types map.
        protocol: That of the messages, for errors.
        opened: Opens a session in it.
    """

    login: Login
    rules: TypeRules
    protocol: str
    opened: Callable[[Login], AbstractContextManager[Session]] = session

    def fill(self, found: TaskResult, marks: DdlMarks, most_bytes: int) -> None:
        """Put whole rows in the place of the reduced ones that a row pass found; those that TiDB refuses are bad.

        Raises:
            WindowTooLargeError: They have more bytes together than the messages of a window may have.
            TransientError: TiDB is not there, or was lost.
        """
        reduced = [(where, part) for where, parts in found.parts.items() for part in parts if part.is_reduced]
        if not reduced:
            return
        filled = _Filled(self, found, marks, most_bytes)
        try:
            with self.opened(self.login) as asked:
                for (name, number), part in reduced:
                    parts = found.parts[name, number]
                    parts[:] = [*(other for other in parts if other is not part), *filled.parts(asked, number, part)]
        except (ConfigError, OutsideRefused) as error:  # The log-in; what is refused of a table is noted there.
            for _, part in reduced:
                filled.refuse(part, part.here, error)
        found.measures["bytes"] += filled.size


@dataclass(slots=True)
class _Filled:
    """Fills the parts of one row pass.

    Attributes:
        size: Bytes of the rows that were read.
    """

    upstream: ReducedRows
    found: TaskResult
    marks: DdlMarks
    most_bytes: int
    size: int = 0

    def parts(self, asked: Session, number: int, part: Part) -> Iterator[Part]:
        """The part of a segment as whole rows: one for each version, and one of the keys that rows have left."""
        rows = part.here
        is_there = numbers(rows, "\0present")
        if not is_there.all():
            yield Part.of(part.version, rows.filter(pa.array(~is_there)), part.topic)
        rows = rows.filter(pa.array(is_there))
        stamps = numbers(rows, "\0ts")
        found = dict[int, tuple[TableVersion, list[pa.Table]]]()
        for ts in np.unique(stamps).tolist():
            chosen = rows.filter(pa.array(stamps == ts))
            try:
                asked.as_of(ts)
                version = self._version(asked, part, number, ts)
                reader = RowsAsOf(self.upstream.login, ts, version, self.upstream.rules)
                whole = list(self._whole(asked, reader, part, chosen))
            except _REFUSALS as error:
                self.refuse(part, chosen, error)
                continue
            found.setdefault(version.version, (version, []))[1].extend(whole)
        for version, tables in found.values():
            if tables:
                yield Part.of(version, pa.concat_tables(tables, promote_options="permissive"), part.topic)

    def _version(self, asked: Session, part: Part, number: int, ts: int) -> TableVersion:
        """The version of the rows of a commit ts: what they refer to, or else the table as it was then.

        Raises:
            ConfigError, OutsideRefused, TransientError: TiDB does not show it.
            ValueRefused: Its key was another one.
        """
        if not part.version.keys_only:
            return part.version
        name = part.version.name
        table = declared(asked, name)
        # Half of what a hash can be, as versions that rows describe may have the other half.
        own = replace(table, version=fingerprint(repr((table.columns, table.key)).encode()) >> 1)
        self.found.versions[name, own.version] = own
        version = self.marks.refined(own, number, ts)
        if set(version.key) != set(part.version.key):
            key = ", ".join(version.key) or "none"
            raise ValueRefused(f"The key of table {name} is {key} there, and not {', '.join(part.version.key)}.")
        return version

    def _whole(self, asked: Session, reader: RowsAsOf, part: Part, rows: pa.Table) -> Iterator[pa.Table]:
        """Rows of one commit ts with all of their columns, without those that are refused."""
        for start in range(0, rows.num_rows, AT_ONCE):
            yield from self._some(asked, reader, part, rows.slice(start, AT_ONCE))
            if self.size > self.most_bytes:
                measures = self.found.measures
                raise WindowTooLargeError(measures["bytes"] + self.size, measures["messages"])

    def _some(self, asked: Session, reader: RowsAsOf, part: Part, rows: pa.Table) -> Iterator[pa.Table]:
        version, rules = reader.version, self.upstream.rules
        columns = [column for column in version.columns if rules.takes(version.name, column)]
        try:
            values, zero_dates = reader.of_keys(asked, data_of(rows), columns)
        except ValueRefused as error:
            if rows.num_rows == 1:
                self.refuse(part, rows, error)
                return
            # One of them is not there: by halves, as nearly all are.
            half = rows.num_rows // 2
            yield from self._some(asked, reader, part, rows.slice(0, half))
            yield from self._some(asked, reader, part, rows.slice(half))
            return
        self.size += values.nbytes
        self.found.measures["zero_dates"] += zero_dates
        meta = rows.select([name for name in rows.column_names if name.startswith(META)])
        for column in columns:
            meta = meta.append_column(column.name, values[column.name])
        yield meta

    def refuse(self, part: Part, rows: pa.Table, error: ApplierError) -> None:
        """Note rows that TiDB does not show as bad messages."""
        name = part.version.name
        refusal = _refusal(name, error)
        refusal.tables = (name,)
        for partition, offset, ts in zip(
            *(rows[column].to_pylist() for column in ("\0partition", "\0offset", "\0ts")), strict=True
        ):
            place = TopicPartition(part.topic, partition)
            located = refusal.at(*place, offset, self.upstream.protocol)
            located.commit_ts = ts
            self.found.bad.append(BadMessage(place, offset, located, (name,)))


def _refusal(name: TableName, error: ApplierError) -> IncompleteRow:
    """Why a row is refused, with a way out that helps."""
    if isinstance(error, MomentGone):
        return handle_key_only(str(name), f"{error.clause}; with {KEEP} it keeps more.", RELOAD)
    if isinstance(error, (MomentAhead, ValueRefused)):
        return handle_key_only(str(name), error.what, _SAME)
    return handle_key_only(str(name), error.what, error.hint)
