"""Commits an evolution of a table: schema, rewritten files and properties together, fenced and stamped, or nothing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from applier.changefeed.table import TableName
from applier.config.table_layout import PartitionField, SortField
from applier.errors import RELOAD, TableMismatch, TransientError
from applier.runtime import failpoints, terminal
from applier.runtime.logs import logger
from applier.sink.commit.committer import Committer
from applier.sink.commit.foreign_commits import own_columns
from applier.sink.commit.stamp import Stamp
from applier.sink.evolve.casts.cast import CastRefused
from applier.sink.evolve.plan import Evolution
from applier.sink.evolve.resolve import Resolution, TableBefore
from applier.sink.evolve.rewrite import LiveRows, rewrite
from applier.sink.evolve.steps import AddField, DropField, Refusal, RenameField, SetKey
from applier.sink.format.renaming import Renaming
from applier.sink.iceberg.commit import Change, set_properties
from applier.sink.iceberg.java import JavaError, translated
from applier.sink.iceberg.layout import keep_key, partition_of, replace_order, update_spec
from applier.sink.iceberg.table import Table

_REFUSED = frozenset({"ValidationException", "IllegalArgumentException", "UnsupportedOperationException"})
"""Java exceptions by which Iceberg says that the change itself is wrong, not that it came too late."""


@dataclass(frozen=True, slots=True)
class Evolved:
    """What an evolution did: the snapshot that carries it, and how many rows were written anew."""

    snapshot_id: int
    rewritten: int


def apply_evolution(table: Table, evolution: Evolution, stamp: Stamp, name: TableName) -> Evolved:
    """Apply an evolution to the table of an upstream table in one snapshot; older ones keep the columns they had.

    A value that TiDB rewrote is cast as TiDB casts it. The field of a column whose type Iceberg cannot widen is made
    anew, under the same name and at the same place, and all data files are written again without dead rows. Without
    steps the commit only carries the stamp. A `TableWriter` of the table must `reload` afterwards.

    Raises:
        SchemaChangeRefused: The table would not be equal to its upstream afterwards; nothing is changed.
        TableMismatch: The table is not as the last statement left it, or Iceberg refuses the steps.
        CheckpointConflict: Another applier wrote the table.
        TransientError: Catalog or storage did not answer.
    """
    if evolution.refused is not None:
        raise evolution.refused.of(name)
    table.forget()
    committer = Committer(table, stamp.changefeed, stamp.epoch)
    committer.open()
    # What others have done to its columns would be taken for the work of this statement.
    committer.hold_to(None)
    rewritten = 0
    for attempt in committer.attempts(stamp):
        with attempt:
            live = LiveRows(table, table.snapshot_id)
            change = _planned(table, evolution, live, stamp, name)
            rewritten = live.count if change.replace else 0
            failpoints.reach("data-files-staged")
            committer.send(change)
    table.refresh()
    return Evolved(committer.made, rewritten)


def _planned(table: Table, evolution: Evolution, live: LiveRows, stamp: Stamp, name: TableName) -> Change:
    if evolution.only_empty and live.count:
        raise evolution.only_empty[0].of(name)
    try:
        return _stage(table, Resolution(_before(table), evolution.steps, live), _names(table, evolution), live, stamp)
    except CastRefused as error:
        raise Refusal(f"{error}.").of(name) from None
    except JavaError as error:
        if error.kind not in _REFUSED:
            raise
        raise TableMismatch(f"Iceberg refuses the change of table {table}: {error.detail}", RELOAD) from None


def _before(table: Table) -> TableBefore:
    # Read before there is a revision, which looks at the newest metadata: that may be another applier's by then.
    docs = {column["id"]: column.get("doc", "") for column in json.loads(table.schema_json)["fields"]}
    names = {column.id: column.name for column in table.schema.fields}
    specs = {
        spec["spec-id"]: [names.get(part["source-id"], "") for part in spec["fields"]] for spec in table.specs_json
    }
    sort, partition = table.file_layout.sort or (), partition_of(table)
    return TableBefore(str(table), table.format_version, table.schema, docs, sort, partition, specs)


class NamesAround(NamedTuple):
    """What columns are called in Iceberg before an evolution, and after it; and those that make way for others."""

    before: Renaming
    after: Renaming
    moved: tuple[RenameField, ...]


def _names(table: Table, evolution: Evolution) -> NamesAround:
    before, steps = Renaming.of(table.schema), evolution.steps
    renamed = {step.name: step.to for step in steps if isinstance(step, RenameField)}
    dropped = [step.name for step in steps if isinstance(step, DropField)]
    added = [step.name for step in steps if isinstance(step, AddField)]
    after = before.changed(evolution.shape, dropped, renamed, added)
    stay = before.names.keys() - {*dropped, *renamed, *renamed.values(), *added}
    moved = tuple(RenameField(name, name) for name in sorted(stay) if before(name) != after(name))
    return NamesAround(before, after, moved)


def _stage(table: Table, what: Resolution, names: NamesAround, live: LiveRows, stamp: Stamp) -> Change:
    with translated(f"Cannot begin a transaction on table {table}"):
        transaction = table.handle.newTransaction()
    if _pending(table, transaction).schema.id != table.schema.id:
        raise TransientError(f"The columns of table {table} have changed while a change of them was planned")
    with translated(f"Cannot change the columns of table {table}"):
        _prepare(table, transaction, what, names)
    rows, pending = [], _pending(table, transaction)
    if what.rewrites:
        logger().info("rewriting table", table=str(table), rows=live.count)
        with terminal.progress(f"rewriting {table}", "rows") as bar:
            rows = rewrite(live, what.sources(pending.schema), pending, lambda done: bar(done, live.count))
    return Change(
        rows=rows,
        truncate=what.truncates,
        replace=what.rewrites,
        summary=stamp.entries(),
        properties={**stamp.entries(), **what.properties, **own_columns(table, pending)},
        begun=transaction,
    )


def _pending(table: Table, transaction: Any) -> Table:
    """The table as it will be: new files are described and placed by it. It must not be committed to."""
    return Table(table.java, transaction.table(), table.identifier)


def _prepare(table: Table, transaction: Any, what: Resolution, names: NamesAround) -> None:
    """Put the updates into a transaction: in each, names are those before it, save that added fields go by their own.

    `SetKey` makes its columns required; that the rows keep to it is the promise of the resolution.
    """
    _partition(table, transaction, what.unpartitioned, ())
    if what.sort is not None:
        _sort(table, transaction, ())
    begin, *others = what.updates
    for place, steps in enumerate(((*begin, *names.moved), *others)):
        if steps:
            update = transaction.updateSchema().allowIncompatibleChanges()
            for step in steps:
                step.named(names.after if place else names.before, names.after).update(update, table.java)
            renamed = {step.name: step.to for step in steps if isinstance(step, RenameField)}
            if renamed and not any(isinstance(step, SetKey) for step in steps):
                keep_key(table, update, (names.after(renamed.get(name, name)) for name in table.schema.identifier))
            update.commit()
    if entries := names.after.entries(table.file_layout.properties):
        # Before anything asks for columns by their names upstream.
        set_properties(transaction, entries)
    if what.sort:
        _sort(table, transaction, what.sort)
    _partition(table, transaction, (), what.repartitioned)


def _sort(table: Table, transaction: Any, fields: Sequence[SortField]) -> None:
    with translated(f"Cannot change the sort order of table {table}"):
        replace_order(table, transaction, fields)


def _partition(table: Table, transaction: Any, removed: Sequence[str], added: Sequence[PartitionField]) -> None:
    if removed or added:
        with translated(f"Cannot change the partitions of table {table}"):
            update_spec(table, transaction, removed, added)
