"""Commits one change as one snapshot, which is refused unless the branch is where the change was planned."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from applier.sink.iceberg.files import DataFile, DeleteFile
from applier.sink.iceberg.java import JavaError, translated

if TYPE_CHECKING:
    from applier.sink.evolve.revision import Revision
    from applier.sink.iceberg.table import Table


@dataclass(frozen=True, slots=True)
class Change:
    """What one commit changes.

    Attributes:
        rows: New data files, each with its `java` object.
        deletes: New delete files.
        replaced: Deletion vectors that `deletes` take the place of.
        touched: Paths of the data files that `deletes` refer to; all must still be in the table.
        truncate: Remove every row that is in the table.
        replace: `rows` take the place of every row that is in the table.
        summary: Entries of the snapshot's summary.
        properties: Table properties set in the same metadata version.
        unset: Table properties removed in it.
        schema_id: Schema that `rows` were written with; a table with another one by now refuses the commit.
        revision: Schema updates that the change rests on; None for a change of rows alone.
    """

    rows: Sequence[DataFile] = ()
    deletes: Sequence[DeleteFile] = ()
    replaced: Sequence[DeleteFile] = ()
    touched: Sequence[str] = ()
    truncate: bool = False
    replace: bool = False
    summary: Mapping[str, str] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)
    unset: Sequence[str] = ()
    schema_id: int | None = None
    revision: Revision | None = None


class CommitFailure(JavaError):
    """A commit did not end well; its snapshot, if it was made after all, has `snapshot_id` (None: never prepared)."""

    def __init__(self, action: str, kind: str, detail: str, snapshot_id: int | None) -> None:
        super().__init__(action, kind, detail)
        self.snapshot_id = snapshot_id

    def __reduce__(self) -> tuple[type[CommitFailure], tuple[str, str, str, int | None]]:  # type: ignore[override]
        return type(self), (self.action, self.kind, self.detail, self.snapshot_id)


class Fence:
    """Java calls this with the branch's ancestry on every attempt; it lets only the expected head pass.

    `validateWith` is the one check of Iceberg that runs again whenever a commit is tried again over a newer head.
    """

    class Java:
        implements = ("org.apache.iceberg.SnapshotAncestryValidator",)

    def __init__(self, iceberg: Any, expected: int | None) -> None:
        self._iceberg = iceberg
        self._expected = expected
        self._seen: int | None = None

    def validate(self, ancestors: Any) -> bool:
        """True if the newest ancestor is the expected head."""
        newest = self._iceberg.relocated.com.google.common.collect.Iterables.getFirst(ancestors, None)
        self._seen = None if newest is None else int(newest.snapshotId())
        return self._seen == self._expected

    def errorMessage(self) -> str:
        """What Java puts into its exception."""
        return f"head is {self._seen}, not {self._expected}"


def commit(table: Table, change: Change, expected: int | None, sending: Callable[[], None]) -> int:
    """Commit a change as one snapshot and one metadata version, or not at all, and return the id of the snapshot.

    The change was planned on the head `expected`; None for a branch without snapshots. `sending` is called when all is
    prepared and the catalog's pointer is about to be swapped.

    Raises:
        CommitFailure: Nothing, or nothing certain, is known of the outcome; see its attribute.
    """
    snapshot_id: int | None = None
    try:
        with translated(f"Commit to table {table} failed"):
            table.java.accept_callbacks()
            transaction = change.revision.transaction if change.revision else table.handle.newTransaction()
            pending = transaction.table()
            _check_schema(table, pending, change)
            _prepare(table, transaction, change, expected)
            snapshot_id = int(pending.snapshot(table.branch).snapshotId())
            if change.properties:
                set_properties(transaction, change.properties, change.unset)
            sending()
            transaction.commitTransaction()
            if change.revision:
                table.refresh()
    except JavaError as error:
        raise CommitFailure(error.action, error.kind, error.detail, snapshot_id) from None
    return snapshot_id


def _check_schema(table: Table, pending: Any, change: Change) -> None:
    """Refuse files of an old schema: a column dropped and made anew has another id, so its values would be lost."""
    if change.schema_id is None or change.schema_id == int(pending.schema().schemaId()):
        return
    raise JavaError(f"Commit to table {table} failed", "SchemaMoved", "its columns have changed meanwhile")


def _prepare(table: Table, transaction: Any, change: Change, expected: int | None) -> None:
    update = _update(table, transaction, change, expected)
    for key, value in change.summary.items():
        update.set(key, value)
    update.validateWith(Fence(table.java.iceberg, expected))
    update.toBranch(table.branch)
    update.commit()


def _update(table: Table, transaction: Any, change: Change, expected: int | None) -> Any:
    java = table.java
    if change.replace:
        overwrite = transaction.newOverwrite()
        overwrite.overwriteByRowFilter(java.iceberg.expressions.Expressions.alwaysTrue())
        for file in change.rows:
            overwrite.addFile(file.java)
        return overwrite
    if change.truncate:
        return transaction.newDelete().deleteFromRowFilter(java.iceberg.expressions.Expressions.alwaysTrue())
    if not change.deletes:
        append = transaction.newFastAppend()
        for file in change.rows:
            append.appendFile(file.java)
        return append
    delta = transaction.newRowDelta()
    for file in change.rows:
        delta.addRows(file.java)
    for delete in table.files.to_java(delete.json for delete in change.deletes):
        delta.addDeletes(delete)
    for delete in table.files.to_java(delete.json for delete in change.replaced):
        delta.removeDeletes(delete)
    if expected is not None:
        delta.validateFromSnapshot(expected)
    return delta.validateDataFilesExist(java.texts(change.touched))


def set_properties(transaction: Any, properties: Mapping[str, str], unset: Iterable[str] = ()) -> None:
    """Set and remove table properties in a transaction, or in one step of their own on a table."""
    update = transaction.updateProperties()
    for key, value in properties.items():
        update.set(key, value)
    for key in unset:
        update.remove(key)
    update.commit()
