"""Makes the Iceberg tables of upstream tables, or takes those that are there if they fit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from applier.changefeed.history import COMMIT_TIME, IMAGE, KEPT_FROM, taken
from applier.changefeed.shape import SHAPE
from applier.changefeed.table import Column, TableName, TableVersion
from applier.changefeed.types import TypeRules, check_key, column_arrow_type
from applier.config.table_layout import PartitionField, SortField, TableLayout
from applier.config.tables import TablesSection
from applier.errors import RESHAPED, SchemaChangeRefused, TableMismatch
from applier.pipeline.scan.window_scan import Doubted
from applier.pipeline.tables.changefeed import FILTERED
from applier.sink.evolve.row_columns import absent_from, columns_of_new, refuse_misshapen, supplied
from applier.sink.format import row_metadata
from applier.sink.format.layout import fitted
from applier.sink.format.renaming import Renaming
from applier.sink.format.types import iceberg_type
from applier.sink.iceberg.layout import change_to
from applier.sink.iceberg.table import Table
from applier.sink.upkeep import properties_of_new
from applier.sink.write.file_writer import check_columns
from applier.sink.write.table_writer import TableWriter

_EMPTY = "Empty it with TRUNCATE TABLE in your engine, or drop it, then start `applier run -c FILE` again."
_LOAD = "Load it with `applier load -c FILE --from DIR --tables TABLE`."
_KEEP = (
    "Or, if it holds what its upstream table has as far as `applier status -c FILE` says, keep its rows: stop `run`, "
    'and give `applier adopt -c FILE --tables TABLE --why TEXT`; where changefeed.on_table_error is "stop", set '
    'changefeed.start = "midstream" instead.'
)


def refuse_held(writer: TableWriter | None, *, is_placed: bool = True) -> None:
    """Refuse a table for a CREATE TABLE, which makes one without rows, if it holds rows that others wrote.

    It `is_placed` if it can be read again from its CREATE TABLE.

    Raises:
        TableMismatch: It does.
    """
    head = None if writer is None or writer.known is not None else writer.table.snapshot_id
    if writer is not None and head is not None and writer.table.scan(head):
        what = f"Table {writer.table} holds rows that this changefeed has not written, and its CREATE TABLE has none."
        raise TableMismatch(what, f"{_EMPTY if is_placed else _LOAD} {_KEEP}")


@dataclass(slots=True)
class TableMaker:
    """Makes tables.

    Args:
        create: Creates a table, with the arguments of `Catalog.create`.
        loaded: Tables that hold rows without a stamp were loaded, as the configuration says.
        is_far: The storage of the tables is asked by requests; see `Catalog.is_far`.

    Attributes:
        doubted: Tables that a message of this step may belong to which was set aside; None for all.
    """

    create: Callable[..., Table]
    settings: TablesSection
    rules: TypeRules
    loaded: bool = False
    is_far: bool = False
    doubted: Doubted = field(default=frozenset(), init=False)

    def make(self, identifier: tuple[str, ...], version: TableVersion, entries: Mapping[str, str]) -> Table:
        """Create a table without rows; `entries` are properties beside those of every new table.

        Raises:
            TableMismatch: The layout that the configuration gives the table does not fit its columns.
            SchemaChangeRefused: A column has no such cast, or its mask would make keys alike.
        """
        columns, key = self.columns_of(version), version.key
        doubts = {FILTERED: "true"} if self.doubted is None or version.name in self.doubted else {}
        table, layout = str(version.name), self.layout_of(version.name) or TableLayout()
        layout, shape = fitted(table, layout, columns), self.rules.shape_of(version.name)
        named = Renaming({name: shape.renamed(name) for name in columns.names} if shape.rename else {})
        sort = tuple(map(SortField, key)) if layout.sort is None else layout.sort
        own = {**properties_of_new(is_far=self.is_far), **self.settings.properties, **layout.properties}
        return self.create(
            identifier,
            named.columns(columns),
            key=tuple(map(named, key)),
            partition=named.partition(layout.partition or ()),
            sort=named.sort(sort),
            properties={**own, **self._noted(version, layout, named), **entries, **doubts},
            format_version=self.settings.format_version,
        )

    def columns_of(self, version: TableVersion) -> pa.Schema:
        """The columns that a new table gets, those of its metadata last.

        Raises:
            TableMismatch, SchemaChangeRefused: The shape that the configuration gives its rows does not fit it.
        """
        if (refused := self._unfit_history(version)) is not None:
            raise refused
        check_key(version, self.rules)
        upstream = [self._column(version, column) for column in columns_of_new(version, self.rules)]
        names = (self.layout_of(version.name) or TableLayout()).metadata
        row_metadata.refuse_taken(str(version.name), names, [column.name for column in upstream])
        return pa.schema([*upstream, *row_metadata.columns(names)])

    def layout_of(self, name: TableName) -> TableLayout | None:
        """How the configuration lays out a table, or a table of changes; None where it says nothing of it."""
        if (owner := self.rules.owner(name)) is None:
            return self.settings.layout_of(name)
        found = self.settings.layout_of(owner) or TableLayout()
        day = PartitionField(COMMIT_TIME, "day")
        return TableLayout(partition=(day,), properties=found.properties, shape=found.shape)

    def _unfit_history(self, version: TableVersion) -> TableMismatch | None:
        """Why the changes of a table cannot be kept, or where they lie in the place of an upstream table."""
        name, owner = version.name, self.rules.owner(version.name)
        pattern = self.rules.shape_of(name).pattern
        if owner is not None:
            what = f"Upstream table {name} has the name of the table of changes of {owner}."
            hint = f'Leave it out with tables.include: !{name}; or take history off [tables."{pattern}"].'
            return None if version.column(IMAGE) is not None else TableMismatch(what, hint)
        if not self.rules.shape_of(name).history or version.keys_only:
            return None
        hint = f'Give it a pattern of its own without history; that of [tables."{pattern}"] counts now.'
        if not version.key:
            what = f"The changes of table {name} cannot be kept: it has no key."
            return TableMismatch(what, hint)
        if names := taken(version):
            what = f"The changes of table {name} cannot be kept: its column {names[0]} has the name of one of theirs."
            return TableMismatch(what, hint)
        return None

    def _noted(self, version: TableVersion, layout: TableLayout, named: Renaming) -> dict[str, str]:
        record = self.rules.shape_of(version.name).record
        shape = {SHAPE: record} if record else {}
        kept = {} if self.rules.changes(version.name) is None else {KEPT_FROM: "0"}
        return {**row_metadata.entries(layout.metadata), **named.entries({}), **shape, **kept}

    def reshaped(self, writer: TableWriter, version: TableVersion, *, is_brought: bool = False) -> TableMismatch | None:
        """Why the rows of a table are of another shape than the configuration gives them; None if they are not.

        A table that only loses columns `is_brought` into its shape by a change of its metadata, at a start.
        """
        shape, record = self.rules.shape_of(version.name), writer.table.file_layout.properties.get(SHAPE, "")
        if (unfit := self._unfit_history(version)) is not None:
            return unfit
        try:
            refuse_misshapen(version, self.rules)
            if record == shape.record and not (shape.is_soft and writer.table.schema.deleted_at is None):
                return None
            if is_brought and shape.is_reached_from(record):
                change_to(writer.table, self.settings.layout_of(version.name) or TableLayout())
                return None
        except TableMismatch as error:
            return error
        what = f"Table {writer.table} holds rows of another shape than its pattern under [tables] gives them now."
        return TableMismatch(what, RESHAPED)

    def refuse_other_shape(self, table: Table, name: TableName) -> None:
        """Refuse to let the rows of an Iceberg table be those of an upstream table.

        Raises:
            SchemaChangeRefused: The configuration gives that one rows of another shape; or deleted rows stay there,
                of which it is not known where they belong.
        """
        if self.rules.shape_of(name).is_soft:
            what = f"Rows of table {table} become those of table {name}, and `deletes` is soft there."
            raise SchemaChangeRefused(what, RESHAPED)
        if (table.setting(SHAPE) or "") != self.rules.shape_of(name).record:
            what = f"Rows of table {table} become those of table {name}, to which [tables] gives another shape."
            raise SchemaChangeRefused(what, RESHAPED)

    def _column(self, version: TableVersion, column: Column) -> pa.Field[pa.DataType]:
        kind = column_arrow_type(version.name, column, self.rules)
        # Other columns stay optional: a column that TiDB fills for old rows without a message may hold NULL meanwhile.
        return pa.field(
            column.name,
            kind,
            nullable=column.name not in version.key,
            metadata={"doc": column.comment} if column.comment else None,
        )

    def is_of(self, writer: TableWriter, version: TableVersion) -> bool:
        """Whether a table has the very columns that a new one gets."""
        schema = writer.table.schema
        columns = columns_of_new(supplied(version, schema), self.rules)
        wanted = {column.name: column_arrow_type(version.name, column, self.rules) for column in columns}
        return wanted == {found.name: found.arrow for found in schema.upstream}

    def misfit(self, writer: TableWriter, version: TableVersion, *, is_brought: bool = False) -> TableMismatch | None:
        """Why rows of a table, or one of its columns, are not what the rules make of upstream's; None if all are.

        `is_brought` is as in `reshaped`.
        """
        if (reshaped := self.reshaped(writer, version, is_brought=is_brought)) is not None:
            return reshaped
        schema = writer.table.schema
        absent = absent_from(version, schema.names, self.rules)
        held = [
            column
            for column in supplied(version, schema).columns
            if column.name not in absent and schema.field(column.name) is not None
        ]
        wanted = [pa.field(column.name, column_arrow_type(version.name, column, self.rules)) for column in held]
        try:
            check_columns(str(writer.table), pa.schema(wanted), schema)
        except TableMismatch as error:
            return error
        return None

    def adopt(self, writer: TableWriter, version: TableVersion) -> None:
        """Check that a table which no applier has written yet fits; its first commit says that it was adopted.

        Raises:
            TableMismatch: A column is missing or has another type; or rows are of another shape, in any table.
        """
        if (reshaped := self.reshaped(writer, version)) is not None:
            raise reshaped
        if writer.known is not None:
            return
        check_key(version, self.rules)
        for column in supplied(version, writer.table.schema).columns:
            found = writer.table.schema.field(column.name)
            wanted = column_arrow_type(version.name, column, self.rules)
            if self.rules.takes(version.name, column) and (found is None or found.arrow != wanted):
                has = "is missing" if found is None else f"is {found.type}"
                needs = iceberg_type(wanted)
                what = f"Table {writer.table} cannot be adopted: column {column.name} {has}, upstream it needs {needs}."
                raise TableMismatch(what, "Load it with the types of docs/types.md, or route the table elsewhere.")
