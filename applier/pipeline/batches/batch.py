"""Rows of one table that one commit takes, and what their step read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from applier.changefeed.change_batch import Changes
from applier.changefeed.history import changes_of
from applier.changefeed.message import TopicPartition
from applier.changefeed.shape import Shape
from applier.changefeed.table import Keyed, TableName, TableShape, TableVersion
from applier.changefeed.ts import LOGICAL
from applier.changefeed.types import TypeRules
from applier.changefeed.window import OffsetRange
from applier.errors import ValueRefused
from applier.order.admit import admitted
from applier.order.changes import behind
from applier.order.merge import merge
from applier.order.reduce import OLD_VALUE_HINT
from applier.pipeline.scan.task_result import Part
from applier.sink.commit.stamp import Stamp
from applier.sink.evolve.row_columns import absent_from, fitted, is_older, is_unordered, retyped, widened, with_added
from applier.sink.format.types import TableSchema
from applier.sink.iceberg.table import Table


class ReadExtent(NamedTuple):
    """What a step in offset order reads, for the stamps of its commits.

    Attributes:
        window: The offsets.
        topic_ids: Ids of their topics, where the source knows them.
    """

    window: Mapping[TopicPartition, OffsetRange]
    topic_ids: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows of one table that one commit takes.

    Attributes:
        name: Upstream name.
        parts: Reduced rows from all tasks.
        upto: Resolved ts that the commit is stamped with: all rows at or below it are in the table afterwards.
        is_doomed: A DDL of the same step removes the table, and after a crash it may be gone already.
        owner: The table whose changes the rows are; None for rows of an upstream table.
        extent: In a feed in offset order what was read, all of whose rows at or below `upto` the table has afterwards.
    """

    name: TableName
    parts: Sequence[Part]
    upto: int
    is_doomed: bool = False
    extent: ReadExtent | None = None
    owner: TableName | None = None

    def apart(self) -> tuple[Batch, Batch | None]:
        """The rows of the table itself, and those of its table of changes, if there are any."""
        own = changes_of(self.name)
        changes = [part for part in self.parts if part.is_of(own)]
        if not changes:
            return self, None
        rows = [part for part in self.parts if not part.is_of(own)]
        return replace(self, parts=rows), replace(self, name=own, parts=changes, owner=self.name)

    @property
    def newest(self) -> TableVersion:
        """The newest version that its rows are written in; one that has only the key if there are deletes alone."""
        is_several = len({part.version.version for part in self.parts}) > 1
        newest = self._described()[-1].version if is_several and self.is_dated else self._highest
        return widened(newest, *(part.version for part in self.parts)) if is_several else newest

    @property
    def _highest(self) -> TableVersion:
        return max(self.parts, key=lambda part: (part.shows_columns, part.version.version)).version

    @property
    def is_dated(self) -> bool:
        """Whether exact commit ts show the order of the versions that describe the table; there is at least one."""
        parts = self._showing
        return bool(parts) and all((part.first_ts or 0) & LOGICAL and part.last_ts & LOGICAL for part in parts)

    @property
    def _showing(self) -> list[Part]:
        return [part for part in self.parts if part.shows_columns]

    def _described(self) -> list[Part]:
        """Of each version that describes the table the part with the newest row, in the order of these rows."""
        parts = sorted(self._showing, key=lambda part: part.last_ts)
        newest = {part.version.version: part for part in parts}
        return [part for part in parts if part is newest[part.version.version]]

    def followed(self, since: int) -> list[TableVersion]:
        """The versions that a table takes the columns of, in order, where it holds those of the commit ts `since`.

        Where no commit ts shows an order: the newest version, and then the older ones that the table may have returned
        to. In that order: the values from before a column went must not stay in it when it comes back.
        """
        if not self._showing:
            return []
        if since and self.is_dated:
            return [part.version for part in self._described() if part.last_ts > since]
        newest = self._highest
        others = {
            part.version.version: part.version for part in self._showing if part.version.version != newest.version
        }
        past = {part.version.version for part in self._past()}
        older = [number for number, one in others.items() if is_older(one, newest) or is_unordered(one)]
        return [newest, *(others[number] for number in sorted(set(older) - past))]

    def _past(self) -> list[Part]:
        """Parts of older versions all of whose rows are shown by their commit ts to come before the newest version."""
        newest = self._highest
        begin = min((part.first_ts or 0 for part in self.parts if part.version.version == newest.version), default=0)
        older = [part for part in self.parts if is_older(part.version, newest)]
        late = {part.version.version for part in older if not 0 < part.last_ts < begin}
        return [part for part in older if part.version.version not in late]

    def returned(self) -> set[str]:
        """Columns that rows of some commit ts lack between those of two rows, both of one version, that hold them."""
        found: set[str] = set()
        parts = self._showing if self.is_dated else []
        for number in {part.version.version for part in parts}:
            own = [part for part in parts if part.version.version == number]
            begin, end = min(part.first_ts or 0 for part in own), max(part.last_ts for part in own)
            for other in parts:
                if any(begin < (ts or 0) < end for ts in (other.first_ts, other.last_ts)):
                    found.update(c.name for c in own[0].version.columns if other.version.column(c.name) is None)
        return found

    def late(self, since: int) -> list[TableVersion]:
        """The versions whose rows are all shown to come before the table as it is at the commit ts `since`."""
        return [part.version for part in self._described() if part.last_ts <= since] if self.is_dated else []

    @property
    def newest_ts(self) -> int:
        """Commit ts of its newest row that shows the columns of its table; 0 without any."""
        return max((part.last_ts for part in self._showing), default=0)

    def is_above(self, known: Stamp | None) -> bool:
        """True if all rows came after those that the table had; otherwise any of them may be there already."""
        return known is None or all(ts is None or ts > known.resolved_ts for ts in (one.first_ts for one in self.parts))

    def fits(
        self, now: TableVersion, table: Table, rules: TypeRules | None, whole: frozenset[str] = frozenset()
    ) -> list[Fit]:
        """What brings each part into the columns of the Iceberg table.

        Args:
            now: The table as its DDL left it.
            table: The Iceberg table.
            rules: How types map; None where no row is older than the columns of its table, as in resolved order.
            whole: Columns that deletes must hold, as their rows stay.
        """
        schema = table.schema
        # Rows of Avro hold virtual columns that the table lacks, as NULL.
        absent = absent_from(now, schema.names, rules or TypeRules())
        dated = self.is_dated
        # What neither the table nor its newest version has was dropped after these rows.
        held = {*schema.names, *(column.name for column in now.columns)}
        past = [] if rules is None else self.parts if dated else self._past()
        found = []
        for part in self.parts:
            names = (c.name for c in part.version.columns if c.name not in held and any(part is one for one in past))
            lacks = rules is not None and (dated or is_older(part.version, now))
            added = now if lacks else None
            gone = frozenset(absent.union(names))
            found.append(Fit(part.version, gone, schema, str(table), added, rules, whole))
        return found

    def merging(self, rows: Shape, *, by_place: bool, exact: bool, above: int = 0) -> Merging:
        """What merges its rows; see `order.merge.merge` for the arguments, and `Merging` for the others."""
        return Merging(self.name, self.newest.shape, by_place, exact, rows, above)


@dataclass(frozen=True, slots=True)
class Fit:
    """Brings rows of a part into the columns of an Iceberg table, in any process.

    Attributes:
        gone: Columns of it that the table lacks rightly.
        schema: Columns of the Iceberg table.
        added: The table as its DDL left it, where it may have columns that the version lacks.
        whole: Columns that deletes must hold.
    """

    version: TableVersion
    gone: frozenset[str]
    schema: TableSchema
    table: str
    added: TableVersion | None
    rules: TypeRules | None
    whole: frozenset[str] = frozenset()

    def fitted(self, rows: pa.Table) -> pa.Table:
        """The rows in these columns.

        Raises:
            TableMismatch, SchemaChangeRefused: As `fitted` and `with_added`.
            ValueRefused: A delete does not hold its row.
        """
        rows = rows.drop_columns(sorted(self.gone.intersection(rows.column_names)))
        rows = fitted(rows, self.version, self.schema, self.table)
        if self.added is not None and self.rules is not None:
            rows = with_added(rows, self.version, self.added, self.schema, self.rules)
        lacking = self.whole.difference(rows.column_names)
        if lacking and not pc.all(rows["\0present"]).as_py():
            what = f"A delete of table {self.version.name} does not hold column {min(lacking)}, and its row is to stay."
            raise ValueRefused(what, OLD_VALUE_HINT)
        return rows


class Merging(NamedTuple):
    """Merges the parts of a batch, in any process; see `order.merge.merge`.

    Attributes:
        rows: What its rows are to be.
        above: Rows at or below this commit ts are in the table already; 0 where none is left out for that.
    """

    name: TableName
    shape: TableShape
    by_place: bool
    exact: bool
    rows: Shape
    above: int = 0

    @property
    def key(self) -> tuple[str, ...] | None:
        """Names of the key columns; None for a table without a key."""
        return self.shape.key if isinstance(self.shape, Keyed) else None

    def merged(self, parts: Sequence[pa.Table]) -> Changes:
        """The changes that all parts together make.

        Raises:
            SchemaChangeRefused: A column has two types in them, and no DDL shows where one ends.
            ValueRefused: They lack a column that the filter of the table looks at.
        """
        parts = behind(parts, self.above) if self.above else parts
        try:
            found = merge(
                parts,
                self.shape,
                str(self.name),
                by_place=self.by_place,
                exact=self.exact,
                is_soft=self.rows.is_soft,
            )
        except pa.ArrowTypeError:
            raise retyped(self.name) from None
        admitting = self.rows.filter
        return found if admitting is None else admitted(found, admitting, str(self.name), exact=self.exact)
