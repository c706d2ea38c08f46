"""Commits one change as one snapshot, which is refused unless the table is where the change was planned."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from applier.sink.format.storage import refuse_elsewhere
from applier.sink.format.types import RENAMED_COLUMNS
from applier.sink.iceberg.files import DataFile, DeleteFile
from applier.sink.iceberg.java import JavaError, translated
from applier.sink.iceberg.table import Table


@dataclass(frozen=True, slots=True)
class Change:
    """What one commit changes.

    Attributes:
        rows: New data files, each with its `json`.
        deletes: New delete files.
        replaced: Deletion vectors that `deletes` take the place of, or delete files that go with `rewritten`.
        rewritten: Data files whose living rows are in `rows`: the table shows the same rows as before.
        dropped: Data files that go with their rows; nothing else changes.
        touched: Paths of the data files that `deletes` refer to; all must still be in the table.
        truncate: Remove every row that is in the table.
        replace: `rows` take the place of every row that is in the table.
        summary: Entries of the snapshot's summary.
        properties: Table properties set in the same metadata version.
        unset: Table properties removed in it.
        schema_id: Schema that `rows` were written with; the commit is refused if the table's schema has changed.
        begun: Java's transaction of the schema updates that the change rests on; None for a change of rows alone.
    """

    rows: Sequence[DataFile] = ()
    deletes: Sequence[DeleteFile] = ()
    replaced: Sequence[DeleteFile] = ()
    rewritten: Sequence[DataFile] = ()
    dropped: Sequence[DataFile] = ()
    touched: Sequence[str] = ()
    truncate: bool = False
    replace: bool = False
    summary: Mapping[str, str] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)
    unset: Sequence[str] = ()
    schema_id: int | None = None
    begun: Any = None


class CommitFailure(JavaError):
    """A commit did not end well; its snapshot, if it was made after all, has `snapshot_id` (None: never prepared)."""

    def __init__(self, action: str, kind: str, detail: str, snapshot_id: int | None) -> None:
        super().__init__(action, kind, detail)
        self.snapshot_id = snapshot_id

    def __reduce__(self) -> tuple[type[CommitFailure], tuple[str, str, str, int | None]]:  # type: ignore[override]
        return type(self), (self.action, self.kind, self.detail, self.snapshot_id)


def commit(table: Table, change: Change, expected: int | None, sending: Callable[[], None]) -> int:
    """Commit a change as one snapshot and one metadata version, or not at all, and return the id of the snapshot.

    The change was planned on the head `expected`; None for a table without snapshots. `sending` is called when all is
    prepared and the catalog's pointer is about to be swapped.

    Raises:
        CommitFailure: Nothing, or nothing certain, is known of the outcome; see its attribute.
        OutsideRefused: A data file is on another machine alone.
    """
    refuse_elsewhere(file.path for file in change.rows)
    snapshot_id: int | None = None
    try:
        with translated(f"Commit to table {table} failed"):
            described = _described(_with_names(table, change), expected, table.after)
            prepared = table.java.own.PreparedCommit.prepare(table.handle, change.begun, described)
            snapshot_id = int(prepared.snapshotId())
            sending()
            made_at = int(prepared.commit())
            if table.is_in_cuts:
                table.java.clock.meet(made_at)
            if change.begun is not None:
                table.refresh()
    except JavaError as error:
        raise CommitFailure(error.action, error.kind, error.detail, snapshot_id) from None
    return snapshot_id


def _with_names(table: Table, change: Change) -> Change:
    """The change whose snapshot says which columns are called otherwise upstream: later they may have other names."""
    made = table if change.begun is None else Table(table.java, change.begun.table(), table.identifier)
    known = made.file_layout.properties.get(RENAMED_COLUMNS)
    return change if known is None else replace(change, summary={**change.summary, RENAMED_COLUMNS: known})


def _described(change: Change, expected: int | None, after: int) -> str:
    """The change in JSON, as `PreparedCommit` reads it."""
    return json.dumps(
        {
            # A column that is dropped and made anew has another id: the values of files of an old schema would be lost.
            "schema": change.schema_id,
            "expected": expected,
            "after": after,
            "rows": [file.json for file in change.rows],
            "deletes": [file.json for file in change.deletes],
            "replaced": [file.json for file in change.replaced],
            "rewritten": [file.place for file in change.rewritten],
            "dropped": [file.place for file in change.dropped],
            "touched": list(change.touched),
            "truncate": change.truncate,
            "replace": change.replace,
            "summary": dict(change.summary),
            "properties": dict(change.properties),
            "unset": list(change.unset),
        }
    )


def set_properties(transaction: Any, properties: Mapping[str, str], unset: Iterable[str] = ()) -> None:
    """Set and remove table properties in a transaction, or in one step of their own on a table."""
    update = transaction.updateProperties()
    for key, value in properties.items():
        update.set(key, value)
    for key in unset:
        update.remove(key)
    update.commit()
