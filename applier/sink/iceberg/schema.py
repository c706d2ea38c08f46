"""Commits schema updates and new files as one fenced transaction."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa

from applier.errors import TableMismatch
from applier.sink.format.files import DataFile, DeleteFile
from applier.sink.format.partition_spec import single_value
from applier.sink.format.types import Field, schema_json
from applier.sink.iceberg.commit import Change, CommitFailure, Fence
from applier.sink.iceberg.java import JavaError, translated
from applier.sink.iceberg.table import Table

_REFUSED = frozenset({"ValidationException", "IllegalArgumentException", "UnsupportedOperationException"})


class Revision:
    """A transaction on a table: schema updates that are prepared but not committed.

    Args:
        table: The table, at the head that the revision is planned on.
    """

    def __init__(self, table: Table) -> None:
        self._table = table
        with translated(f"Cannot begin a transaction on table {table}"):
            self.transaction: Any = table.handle.newTransaction()

    @property
    def pending(self) -> Table:
        """The table as it will be: new files are described and placed by it. It must not be committed to."""
        return Table(self._table.java, self.transaction.table(), self._table.identifier, self._table.branch)

    def update(self) -> SchemaUpdate:
        """Begin a schema update; nothing counts before its `prepare`."""
        return SchemaUpdate(self._table, self.transaction.updateSchema().allowIncompatibleChanges())

    def sort(self, columns: Sequence[str]) -> None:
        """Replace the sort order by these columns, ascending; () for none."""
        with translated(f"Cannot change the sort order of table {self._table}"):
            iceberg = self._table.java.iceberg
            order = self.transaction.replaceSortOrder()
            for column in columns:
                order.asc(iceberg.expressions.Expressions.ref(column), iceberg.NullOrder.NULLS_FIRST)
            order.commit()


class SchemaUpdate:
    """One update of a schema.

    As in Iceberg, names are those before the update, save that added fields go by their own.
    """

    def __init__(self, table: Table, update: Any) -> None:
        self._table = table
        self._java = table.java
        self._update = update

    def add(self, name: str, kind: pa.DataType, default: pa.Scalar[Any], doc: str = "") -> None:
        """Add an optional field that existing rows read as `default`, which is NULL before format version 3."""
        literal = (self._literal(kind, default),) if default.is_valid else ()
        # The parent is given, as None, because Iceberg would take a dot in the name for a path otherwise.
        self._update.addColumn(None, name, self._type(kind), doc or None, *literal)

    def drop(self, name: str) -> None:
        """Remove a field."""
        self._update.deleteColumn(name)

    def rename(self, name: str, to: str) -> None:
        """Rename a field."""
        self._update.renameColumn(name, to)

    def promote(self, name: str, kind: pa.DataType) -> None:
        """Widen a field's type."""
        self._update.updateColumn(name, self._type(kind))

    def move(self, name: str, after: str | None) -> None:
        """Move a field behind another or to the front."""
        if after is None:
            self._update.moveFirst(name)
        else:
            self._update.moveAfter(name, after)

    def relax(self, name: str) -> None:
        """Let a field be NULL."""
        self._update.makeColumnOptional(name)

    def require(self, name: str) -> None:
        """Let a field never be NULL; that the rows keep to it is the caller's promise."""
        self._update.requireColumn(name)

    def describe(self, name: str, doc: str) -> None:
        """Set a field's comment."""
        self._update.updateColumnDoc(name, doc or None)

    def identify(self, names: Iterable[str]) -> None:
        """Set the identifier fields, by the names of after the update."""
        self._update.setIdentifierFields(self._java.list(names))

    def prepare(self) -> None:
        """Make the update part of its revision."""
        self._update.commit()

    def _type(self, kind: pa.DataType) -> Any:
        schema = self._java.iceberg.SchemaParser.fromJson(schema_json(pa.schema([pa.field("c", kind)])))
        return schema.findType("c")

    def _literal(self, kind: pa.DataType, default: pa.Scalar[Any]) -> Any:
        value = default.as_py()
        jvm = self._java.jvm
        if isinstance(value, bytes):
            value = jvm.java.nio.ByteBuffer.wrap(value)
        elif isinstance(value, Decimal):
            value = jvm.java.math.BigDecimal(f"{value:f}")
        elif isinstance(value, int) and not isinstance(value, bool):
            value = jvm.java.lang.Long.valueOf(value)
        elif not isinstance(value, str | bool | float):
            value = single_value(value, kind)
        return self._java.iceberg.expressions.Expressions.lit(value)


def refused(table: Table, error: JavaError) -> TableMismatch:
    """The error for a schema update that Iceberg refuses, such as dropping a column that partitions the table."""
    return TableMismatch(f"Iceberg refuses the change of table {table}: {error.detail}")


def is_refusal(error: JavaError) -> bool:
    """Whether the library says that the change itself is wrong, not that it came too late."""
    return error.kind in _REFUSED


@dataclass(frozen=True, slots=True)
class Revised(Change):
    """A change that rests on a revision.

    Attributes:
        revision: Its schema updates; None for a change of rows alone.
        replace: `rows` take the place of every row that is in the table.
    """

    revision: Revision | None = None
    replace: bool = False


class RevisableTable(Table):
    """A table that can also commit revisions."""

    @staticmethod
    def of(table: Table) -> RevisableTable:
        """The same table."""
        return RevisableTable(table.java, table.handle, table.identifier, table.branch)

    @property
    def data_files(self) -> int:
        """Data files of the head."""
        head = self.handle.snapshot(self.branch)
        return 0 if head is None else int(head.summary().get("total-data-files") or 0)

    def commit(self, change: Change, expected: int | None, sending: Callable[[], None] = lambda: None) -> int:
        """See `Table.commit`."""
        if isinstance(change, Revised):
            return _commit(self, change, expected, sending)
        return super().commit(change, expected, sending)

    def unset(self, keys: Iterable[str]) -> None:
        """Remove table properties; what the table holds stays."""
        with translated(f"Cannot change the properties of table {self}"):
            update = self.handle.updateProperties()
            for key in keys:
                update.remove(key)
            update.commit()

    def scan_past(self, snapshot_id: int, _: Sequence[str] = ()) -> list[DataFile]:
        """Data files of an older snapshot with their delete files; bounds are left out."""
        with translated(f"Cannot plan snapshot {snapshot_id} of table {self}"):
            tasks = self.handle.newScan().useSnapshot(snapshot_id).planFiles()
            found = [self._described(task) for task in self.java.items(tasks)]
            tasks.close()
        return found

    def _described(self, task: Any) -> DataFile:
        def described(file: Any) -> Any:
            return json.loads(self.java.iceberg.ContentFileParser.toJson(file, task.spec()))

        deletes = tuple(DeleteFile.parse(described(file)) for file in self.java.items(task.deletes()))
        return DataFile.parse(described(task.file()), deletes)

    def expire(self, minutes: float, keep: int = 2) -> None:
        """Drop snapshots of a certain age with the files that only they need.

        Args:
            minutes: Their age.
            keep: Snapshots that stay in any case.
        """
        before = int((time.time() - minutes * 60) * 1000)
        with translated(f"Cannot expire snapshots of table {self}"):
            self.handle.expireSnapshots().expireOlderThan(before).retainLast(keep).commit()
            self.refresh()

    def null_count(self, snapshot_id: int, field: Field) -> int | None:
        """NULLs in a column of a snapshot by the files' metrics, dead rows included; None if a file does not show."""
        with translated(f"Cannot plan table {self}"):
            scan = self.handle.newScan().useSnapshot(snapshot_id).includeColumnStats(self.java.texts([field.name]))
            tasks = scan.planFiles()
            found = [self.java.plain(task.file().nullValueCounts() or {}) for task in self.java.items(tasks)]
            tasks.close()
        nulls = [{int(number): int(count) for number, count in counts.items()}.get(field.id) for counts in found]
        return None if None in nulls else sum(filter(None, nulls))


def _commit(table: Table, change: Revised, expected: int | None, sending: Callable[[], None]) -> int:
    snapshot_id: int | None = None
    try:
        with translated(f"Commit to table {table} failed"):
            table.java.accept_callbacks()
            transaction = change.revision.transaction if change.revision else table.handle.newTransaction()
            _prepare(table, transaction, change, expected)
            snapshot_id = int(transaction.table().snapshot(table.branch).snapshotId())
            _set_properties(transaction, change.properties)
            sending()
            transaction.commitTransaction()
            table.refresh()
    except JavaError as error:
        raise CommitFailure(error.action, error.kind, error.detail, snapshot_id) from None
    return snapshot_id


def _prepare(table: Table, transaction: Any, change: Revised, expected: int | None) -> None:
    everything = table.java.iceberg.expressions.Expressions.alwaysTrue()
    if change.replace:
        update = transaction.newOverwrite().overwriteByRowFilter(everything)
        _add(update.addFile, change.rows)
    elif change.truncate:
        update = transaction.newDelete().deleteFromRowFilter(everything)
    else:
        update = transaction.newFastAppend()
        _add(update.appendFile, change.rows)
    for key, value in change.summary.items():
        update.set(key, value)
    update.validateWith(Fence(table.java.iceberg, expected))
    update.toBranch(table.branch)
    update.commit()


def _add(method: Callable[[Any], Any], files: Sequence[DataFile]) -> None:
    for file in files:
        method(file.java)


def _set_properties(transaction: Any, properties: Mapping[str, str]) -> None:
    if not properties:
        return
    update = transaction.updateProperties()
    for key, value in properties.items():
        update.set(key, value)
    update.commit()
