"""How an Iceberg table lies, and the change of its metadata by which it lies as the configuration says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from applier.changefeed.shape import SHAPE, Shape
from applier.changefeed.table import fold
from applier.config.table_layout import ROW_IDS, PartitionField, SortField, TableLayout
from applier.errors import RESHAPED, TableMismatch
from applier.runtime import failpoints
from applier.sink.commit.foreign_commits import own_columns
from applier.sink.format import row_metadata
from applier.sink.format.layout import fitted, partition_name
from applier.sink.format.renaming import Renaming
from applier.sink.format.types import DOC, TableSchema, iceberg_type
from applier.sink.iceberg.commit import set_properties
from applier.sink.iceberg.java import JavaError, translated
from applier.sink.iceberg.table import Table


@dataclass(frozen=True, slots=True)
class LayoutChange:
    """What is missing for a table to lie as it should.

    Attributes:
        removed: Partition fields that go, by name.
        added: Partition fields that come.
        sort: The new sort order; None where it stays.
        properties: Properties to set.
        metadata: Columns to add that say where each row comes from.
        dropped: Columns of upstream to drop, as the configuration excludes them.
        renamed: Names that columns get in Iceberg, by those of upstream.
        shape: The record of the shape that the rows have then; None where it stays.
    """

    removed: Mapping[str, PartitionField] = field(default_factory=dict)
    added: tuple[PartitionField, ...] = ()
    sort: tuple[SortField, ...] | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    metadata: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    shape: str | None = None
    renamed: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        parts = []
        if self.removed:
            parts.append(f"no longer partitioned by {', '.join(map(str, self.removed.values()))}")
        if self.added:
            parts.append(f"partitioned by {', '.join(map(str, self.added))}")
        if self.sort is not None:
            parts.append(f"sorted by {', '.join(map(str, self.sort))}" if self.sort else "not sorted")
        if self.properties:
            parts.append(", ".join(f"{key} = {value}" for key, value in sorted(self.properties.items())))
        if self.metadata:
            parts.append(f"with {', '.join(self.metadata)}")
        if self.shape is not None:
            of_pattern = [] if self.metadata else ["with the shape of its pattern"]
            parts += [f"without {', '.join(self.dropped)}"] if self.dropped else of_pattern
        if self.renamed:
            parts.append(", ".join(f"column {name} called {new}" for name, new in sorted(self.renamed.items())))
        return "; ".join(parts)

    @property
    def is_of_rows(self) -> bool:
        """Whether it changes what rows say from now on, and nothing about files."""
        properties = {key: value for key, value in self.properties.items() if key == ROW_IDS}
        own = LayoutChange(metadata=self.metadata, properties=properties, shape=self.shape, renamed=self.renamed)
        return self == own

    @property
    def is_of_names(self) -> bool:
        """Whether it renames columns, and no more."""
        return self == LayoutChange(renamed=self.renamed)


def change_to(table: Table, layout: TableLayout) -> LayoutChange | None:
    """What brings a table to a layout; None where it lies so already.

    Raises:
        TableMismatch: The layout does not fit its columns.
    """
    schema = table.schema
    missing = tuple(name for name in layout.metadata if name not in schema.names or name not in schema.added)
    row_metadata.refuse_taken(str(table), missing, schema.names)
    if layout.properties.get(ROW_IDS) == "keep" and table.format_version < 3:
        what = f"Table {table} cannot keep the ids of its rows: it is of format {table.format_version}, and 3 has them"
        raise TableMismatch(what, "Upgrade it in your engine, or leave row_ids out of its pattern under [tables].")
    wanted = fitted(str(table), layout, pa.schema([*schema.arrow, *row_metadata.columns(missing)]))
    current, known = partition_of(table), table.properties
    partition = current.values() if wanted.partition is None else wanted.partition
    found = LayoutChange(
        removed={name: each for name, each in current.items() if each not in partition},
        added=tuple(each for each in partition if each not in current.values()),
        sort=None if wanted.sort == table.file_layout.sort else wanted.sort,
        properties={key: value for key, value in wanted.properties.items() if known.get(key) != value},
        metadata=missing,
        **_excluded(table, layout.shape, wanted.sort),
    )
    found = replace(found, renamed=_renamed(table, layout.shape, found.dropped))
    return found if str(found) else None


def _excluded(table: Table, shape: Shape, sort: Sequence[SortField] | None) -> dict[str, Any]:
    """The columns that a table loses to get a shape, where it has another one that this is enough for."""
    record = table.properties.get(SHAPE, "")
    if not shape.is_reached_from(record):
        return {}
    gone = [found for found in table.schema.upstream if shape.excludes(found.name)]
    ids, names = {found.id for found in gone}, {found.name for found in gone}
    # Iceberg lists no file of a former spec whose column is gone.
    used = {part["source-id"] for spec in table.specs_json for part in spec["fields"]} & ids
    kept = table.file_layout.sort if sort is None else sort
    used |= {found.id for found in gone if found.name in {each.column for each in kept or ()}}
    if used:
        named = ", ".join(found.name for found in gone if found.id in used)
        what = f"Table {table} cannot lose column {named}: it is, or was, partitioned by it, or is sorted by it"
        raise TableMismatch(what, RESHAPED)
    return {"dropped": tuple(sorted(names)), "shape": shape.record}


def _renamed(table: Table, shape: Shape, dropped: Sequence[str]) -> dict[str, str]:
    """Columns that are to be called otherwise in Iceberg, with their new names.

    Raises:
        TableMismatch: Another column has that name, of upstream or of other writers.
    """
    schema = table.schema
    kept = [found for found in schema.fields if found.name not in dropped]
    wanted = {found.name: shape.renamed(found.name) for found in kept if found.name not in schema.added}
    found = {each.name: wanted[each.name] for each in kept if wanted.get(each.name, each.name) != each.iceberg_name}
    for name, new in found.items():
        for other in kept:
            if other.name != name and fold(new) in (fold(other.name), fold(wanted.get(other.name, other.name))):
                what = f"Column {name} of table {table} cannot be called {new}: it has a column {other.name}"
                raise TableMismatch(what, "Choose a name in `rename` of its pattern under [tables] that none has.")
    return found


def evolve(table: Table, change: LayoutChange) -> None:
    """Change the metadata of a table at once; its files stay, and new ones follow.

    Raises:
        TableMismatch: Iceberg refuses the change.
        JavaError: The catalog does not answer.
    """
    try:
        with translated(f"Cannot change the layout of table {table}"):
            transaction = table.handle.newTransaction()
            if change.metadata:
                _add_columns(table, transaction, change.metadata)
            if change.removed or change.added:
                update_spec(table, transaction, list(change.removed), change.added)
            if change.sort is not None:
                replace_order(table, transaction, change.sort)
            if change.properties:
                set_properties(transaction, change.properties)
            if change.shape is not None:
                _drop_columns(table, transaction, change.dropped, change.shape)
            if change.renamed or change.dropped:
                _rename_columns(table, transaction, change)
            failpoints.reach("layout-due")
            transaction.commitTransaction()
            failpoints.reach("layout-done")
    except JavaError as error:
        if error.kind in ("ValidationException", "IllegalArgumentException"):
            raise TableMismatch(error.what, "Correct the table's pattern under [tables].") from None
        raise


def _add_columns(table: Table, transaction: Any, names: Sequence[str]) -> None:
    """Add columns in a transaction, with the property that says that applier did."""
    update = transaction.updateSchema()
    for column in row_metadata.columns(names):
        kind = table.java.iceberg.types.Types.fromPrimitiveString(iceberg_type(column.type))
        update.addColumn(column.name, kind, (column.metadata or {})[DOC].decode())
    update.commit()
    set_properties(transaction, row_metadata.entries([*table.schema.added, *names]))


def _drop_columns(table: Table, transaction: Any, names: Sequence[str], shape: str) -> None:
    """Drop columns in a transaction, with what says that applier did, and which shape the rows have now."""
    own = {}
    if names:
        update = transaction.updateSchema()
        named = Renaming.of(table.schema)
        for name in names:
            update.deleteColumn(named(name))
        update.commit()
        own = own_columns(table, Table(table.java, transaction.table(), table.identifier))
    set_properties(transaction, {SHAPE: shape, **own})


def _rename_columns(table: Table, transaction: Any, change: LayoutChange) -> None:
    """Rename columns in a transaction, with what says which those that stay are upstream."""
    before = Renaming.of(table.schema)
    update = transaction.updateSchema()
    for name, new in change.renamed.items():
        update.renameColumn(before(name), new)
    after = Renaming({**before.names, **change.renamed})
    keep_key(table, update, map(after, table.schema.identifier))
    update.commit()
    kept = {name: own for name, own in before.names.items() if name not in change.dropped}
    set_properties(transaction, Renaming({**kept, **change.renamed}).entries(table.file_layout.properties))


def keep_key(table: Table, update: Any, names: Iterable[str]) -> None:
    """Give the identifier fields by their names in Iceberg behind a schema update that renames fields: it renames them
    one after the other, and so loses one whose new name another one has had.
    """
    update.setIdentifierFields(table.java.texts(tuple(names)))


def _pending(table: Table, transaction: Any) -> TableSchema:
    return Table(table.java, transaction.table(), ()).schema


def partition_of(table: Table) -> dict[str, PartitionField]:
    """Fields of the current partition spec by their names; fields that stand for nothing any more are left out."""
    columns = {column.id: column.name for column in table.schema.fields}
    return {
        part["name"]: PartitionField(columns.get(part["source-id"], ""), part["transform"])
        for part in table.spec_json["fields"]
        if part["transform"] != "void"
    }


def update_spec(table: Table, transaction: Any, removed: Sequence[str], added: Sequence[PartitionField]) -> None:
    """Remove partition fields, by name, and add others in a transaction."""
    update = transaction.updateSpec()
    for name in removed:
        update.removeField(name)
    schema = _pending(table, transaction)
    columns = {column.iceberg_name: column.id for column in schema.fields}
    for each in Renaming.of(schema).partition(added):
        same = columns[each.column], each.transform
        # A name of a former spec is free for the same field alone: readers put all specs side by side.
        former = [part for spec in table.specs_json for part in spec["fields"]]
        taken = [part["name"] for part in former if (part["source-id"], part["transform"]) != same]
        update.addField(partition_name(each, [*columns, *taken]), _term(table, each))
    update.commit()


def replace_order(table: Table, transaction: Any, fields: Sequence[SortField]) -> None:
    """Replace the sort order in a transaction; () for none."""
    iceberg = table.java.iceberg
    order = transaction.replaceSortOrder()
    for each in Renaming.of(_pending(table, transaction)).sort(fields) if fields else ():
        column = iceberg.expressions.Expressions.ref(each.column)
        if each.descending:
            order.desc(column, iceberg.NullOrder.NULLS_LAST)
        else:
            order.asc(column, iceberg.NullOrder.NULLS_FIRST)
    order.commit()


def _term(table: Table, each: PartitionField) -> Any:
    expressions = table.java.iceberg.expressions.Expressions
    kind, _, width = each.transform.rstrip("]").partition("[")
    if kind == "identity":
        return expressions.ref(each.column)
    return getattr(expressions, kind)(each.column, *([int(width)] if width else []))
