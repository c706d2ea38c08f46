"""What others do to the tables of a changefeed: each takes the catalog and the identifier of a table that has rows."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping

from applier.sink.iceberg import maintenance
from applier.sink.iceberg.catalog import Catalog, Identifier
from applier.sink.iceberg.commit import commit
from applier.sink.iceberg.java import translated
from applier.sink.iceberg.layout import partition_of
from applier.sink.iceberg.table import Table, storage_for
from applier.sink.write import merge
from applier.sink.write.file_index import read_index
from tests.lab import OTHERS


def change_columns(catalog: Catalog, identifier: Identifier) -> None:
    """ALTER TABLE: add a column, or drop the one that was added before."""
    table = _loaded(catalog, identifier)
    with translated("Another writer cannot change columns"):
        update, name = table.handle.updateSchema(), f"{OTHERS}1"
        if name in table.schema.names:
            update.deleteColumn(name).commit()
        else:
            update.addColumn(name, table.java.iceberg.types.Types.StringType.get()).commit()


def take_a_name(catalog: Catalog, identifier: Identifier) -> None:
    """ALTER TABLE: drop a column that applier added, and give its name to one of another type."""
    table = _loaded(catalog, identifier)
    with translated("Another writer cannot take a name"):
        for name in sorted(table.schema.added & table.schema.names)[:1]:
            update = table.handle.updateSchema().deleteColumn(name)
            update.addColumn(name, table.java.iceberg.types.Types.IntegerType.get()).commit()


def change_partitions(catalog: Catalog, identifier: Identifier) -> None:
    """ALTER TABLE: add a partition field, or drop those that are there."""
    table = _loaded(catalog, identifier)
    with translated("Another writer cannot change partitions"):
        update, fields = table.handle.updateSpec(), list(partition_of(table))
        for name in fields:
            update = update.removeField(name)
        (update if fields else update.addField("id")).commit()


def compact(catalog: Catalog, identifier: Identifier) -> None:
    """Write all data files of each partition as one, without their dead rows."""
    table = _loaded(catalog, identifier)
    head = table.snapshot_id
    files = read_index(str(table), head, (), table.scan)
    chosen = merge.groups(files, int(table.spec_json["spec-id"]), math.inf, 2, 1 << 30)
    merged = merge.stage(table, storage_for(table), chosen) if chosen else None
    change = None if merged is None else merged.change(table, storage_for(table), files)
    if change is not None:
        commit(table, change, head, lambda: None)


def roll_back(catalog: Catalog, identifier: Identifier) -> None:
    """Set the table to the snapshot before its head, if that is kept."""
    table = _loaded(catalog, identifier)
    head = next(table.history(), None)
    if head is not None and head.parent_id is not None and table.has_snapshot(head.parent_id):
        with translated("Another writer cannot roll back"):
            table.handle.manageSnapshots().setCurrentSnapshot(head.parent_id).commit()


def undo_roll_back(catalog: Catalog, identifier: Identifier) -> None:
    """Set the table to its newest snapshot, as the refusal of a table says that was rolled back."""
    table = _loaded(catalog, identifier)
    found = {int(item.sequenceNumber()): int(item.snapshotId()) for item in table.java.items(table.handle.snapshots())}
    if found and found[max(found)] != table.snapshot_id:
        table.handle.manageSnapshots().setCurrentSnapshot(found[max(found)]).commit()


def expire(catalog: Catalog, identifier: Identifier) -> None:
    """Drop all snapshots but the head."""
    maintenance.expire(_loaded(catalog, identifier), int(time.time() * 1000), keep=1)


OTHER_WRITERS: Mapping[str, Callable[[Catalog, Identifier], None]] = {
    "changes columns": change_columns,
    "takes a name": take_a_name,
    "changes partitions": change_partitions,
    "compacts": compact,
    "rolls back": roll_back,
    "expires": expire,
}


def _loaded(catalog: Catalog, identifier: Identifier) -> Table:
    table = catalog.load(identifier)
    assert table is not None
    return table
