"""A row of each table whose pattern asks for a shape, as upstream has it and as the Iceberg table would show it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from applier.changefeed.change_batch import ChangeBatch
from applier.changefeed.event import Op
from applier.changefeed.shape import Shape
from applier.changefeed.table import TableName
from applier.commands.plan.report import ShapedRow
from applier.commands.verify.report import printable
from applier.config.table_layout import TableLayout
from applier.errors import ApplierError
from applier.order.changes import as_changes
from applier.order.reduce import data_of
from applier.pipeline.batches.batch import Merging
from applier.pipeline.next_step import NextStep
from applier.pipeline.scan.sample import Sample, is_hidden
from applier.pipeline.step import Pipeline
from applier.sink.format import row_metadata
from applier.sink.format.types import TableSchema, schema_json


def shaped_rows(pipeline: Pipeline, found: NextStep, tables: Iterable[TableName]) -> Iterator[ShapedRow]:
    """What becomes of the newest row of each table that is live or new, and whose shape is not that of upstream.

    `tables` are those that DDL have made.
    """
    results, parked = found.scan.results, pipeline.state.parked
    known = {*tables, *results.samples, *(name for name, _ in found.scan.versions)}
    admits = pipeline.config.filter.admits
    for name in sorted(name for name in known if name not in parked and admits(name)):
        layout = pipeline.targets.maker.layout_of(name) or TableLayout()
        if layout.metadata or not layout.shape.is_plain:
            yield _shaped(pipeline, name, results.samples.get(name))


def _shaped(pipeline: Pipeline, name: TableName, sample: Sample | None) -> ShapedRow:
    """A row of one table."""
    iceberg = ".".join(pipeline.targets.identifier(name))
    if sample is None:
        return ShapedRow(str(name), iceberg, note=f"No whole row of table {name} is among those that the step applies.")
    version, rules = sample.version, pipeline.targets.maker.rules
    shape = rules.shape_of(name)
    hidden = tuple(column.name for column in version.columns if is_hidden(version, column, rules))
    shown = ShapedRow(str(name), iceberg, _printable(sample.sent), hidden)
    try:
        rows = _rows(pipeline, sample)
    except ApplierError as error:
        way_out = pipeline.config.ways_out.of_error(error.hint or "", name)
        return replace(shown, note=f"{error.what.rstrip('.')}. Hint: {way_out}")
    after = _printable(rows[0], shape) if rows else None
    kept = data_of(as_changes(sample.row, version)[1]).to_pylist() if shape.history else []
    changes = _printable(kept[0], shape) if kept else None
    return replace(shown, after=after, changes=changes, note=_note(sample, shape, rows))


def _note(sample: Sample, shape: Shape, rows: Sequence[Any]) -> str:
    name = sample.version.name
    if not rows and shape.where:
        return f"The filter of its pattern leaves this row of table {name} out."
    is_deleted = sample.row["\0op"][0].as_py() == Op.DELETE
    return f"Upstream deletes this row of table {name}, and it stays." if is_deleted else ""


def _rows(pipeline: Pipeline, sample: Sample) -> list[dict[str, Any]]:
    """The row as its Iceberg table would have it, by column; none where it would not be there.

    Raises:
        TableMismatch, SchemaChangeRefused, ValueRefused: The shape does not fit the table.
    """
    version, maker = sample.version, pipeline.targets.maker
    shape, by_place = maker.rules.shape_of(version.name), pipeline.targets.feed.order.by_place
    planned, added = maker.columns_of(version), _added(pipeline, version.name)
    # A batch that is not exact: whether the table has the key is of no account here.
    changes = Merging(version.name, version.shape, by_place, False, shape).merged([sample.row])
    rows = changes.upserts if isinstance(changes, ChangeBatch) else changes.inserts
    columns = pa.schema([*(each for each in planned if each.name not in added), *row_metadata.columns(added)])
    schema = TableSchema.parse(schema_json(columns, version.key), row_metadata.entries(added))
    rows = row_metadata.added(rows, changes.made, schema)
    return rows.select([column for column in columns.names if column in rows.column_names]).to_pylist()


def _added(pipeline: Pipeline, name: TableName) -> list[str]:
    """The columns that applier adds to a table, those that it has by a former configuration included."""
    layout, writer = pipeline.targets.maker.layout_of(name) or TableLayout(), pipeline.targets.writer(name)
    former = () if writer is None else writer.table.schema.added & writer.table.schema.names
    return list(dict.fromkeys([*layout.metadata, *sorted(former)]))


def _printable(row: Mapping[str, Any], names: Shape | None = None) -> dict[str, Any]:
    """Cells as text, by the `names` that columns have in Iceberg."""
    return {name if names is None else names.renamed(name): printable(cell) for name, cell in row.items()}
