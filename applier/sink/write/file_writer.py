"""Fits rows to the columns of a table, and writes them to data files that a commit can add; needs no table for it."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from applier.changefeed.change_batch import Provenance
from applier.config.table_layout import SortField
from applier.errors import RELOAD, TableMismatch, ValueRefused
from applier.runtime.figures import counted
from applier.sink.format.column_metrics import metrics
from applier.sink.format.file_layout import FileLayout
from applier.sink.format.partition_spec import parse_spec, split
from applier.sink.format.row_metadata import TAKEN, added
from applier.sink.format.storage import Storage, failure
from applier.sink.format.types import Chunks, Field, TableSchema, repeated
from applier.sink.iceberg.files import DataFile
from applier.sink.write.lookup import remember

GROUP_BYTES = 64 << 20
"""Bytes in memory of one row group: a later look-up reads the key column of whole row groups."""

TARGET_BYTES = 512 << 20
"""Bytes of one file where the table does not say (`write.target-file-size-bytes`)."""

_ODD = re.compile(r"[^\w]", re.UNICODE)


def check_columns(name: str, columns: pa.Schema, schema: TableSchema) -> None:
    """Refuse a batch that the table has no place for.

    Raises:
        TableMismatch: A column is missing in the table, has a type that cannot hold the upstream's, or is required but
            not in the batch; or it has the name of one that applier added.
    """
    if taken := schema.taken(columns.names):
        what = f"Column {taken[0]} of table {name} has the name of a column that applier added"
        raise TableMismatch(what, TAKEN)
    for column in columns:
        field = schema.field(column.name)
        if field is None:
            known = ", ".join(known.name for known in schema.fields)
            what = f"Table {name} has no column {column.name}, which its upstream table has"
            hint = "Add it, or leave the upstream table out with !database.table in tables.include."
            raise TableMismatch(what, f"{hint} Columns are: {known}.")
        if not _fits(column.type, field.arrow):
            what = (
                f"Column {column.name} of table {name} is {field.type} and cannot hold upstream values ({column.type})"
            )
            raise TableMismatch(
                what, "Restore its type; or `applier resume -c FILE --tables TABLE` builds the table anew."
            )


def conform(name: str, rows: pa.Table, schema: TableSchema, made: Provenance | None = None) -> pa.Table:
    """Bring rows into the table's columns: by name, cast without loss, NULL where the batch has no such column.

    The columns that applier added to those of upstream say where the rows come from.

    Raises:
        TableMismatch: As `check_columns`.
        ValueRefused: A value does not fit its column, or is NULL in a required one.
    """
    check_columns(name, rows.schema, schema)
    rows = added(rows, made, schema) if schema.added else rows
    columns = []
    for field in schema.fields:
        if field.name in rows.column_names:
            column = _cast(name, rows[field.name], field)
        else:
            column = repeated(pa.scalar(None, field.arrow), rows.num_rows)
        if field.required and column.null_count:
            lacking = counted(column.null_count, "row has", "rows have")
            what = f"Column {field.name} of table {name} is required but {lacking} no value for it"
            raise ValueRefused(what, "Make the column optional in Iceberg.")
        columns.append(column)
    return pa.Table.from_arrays(columns, schema=schema.arrow)


def conform_keys(name: str, keys: pa.Table, fields: Sequence[Field]) -> pa.Table:
    """Key columns in the table's types.

    Raises:
        TableMismatch: A key column is missing in the table or in the batch, or has another type there.
    """
    columns = []
    for field in fields:
        if field.name not in keys.column_names:
            raise TableMismatch(f"The batch for table {name} has no key column {field.name}", RELOAD)
        if not _fits(keys.schema.field(field.name).type, field.arrow):
            kind = keys.schema.field(field.name).type
            what = f"Key column {field.name} of table {name} is {field.type}, upstream it is {kind}"
            raise TableMismatch(what, RELOAD)
        columns.append(_cast(name, keys[field.name], field))
    return pa.Table.from_arrays(columns, [field.name for field in fields])


def sort(rows: pa.Table, order: Sequence[SortField]) -> pa.Table:
    """Rows in an order, usually that of the key: the bounds of a file are narrow and a later look-up reads few."""
    if not order or rows.num_rows < 2:
        return rows
    keys: Any = [
        (each.column, "descending", "at_end") if each.descending else (each.column, "ascending", "at_start")
        for each in order
    ]
    return rows.take(pc.sort_indices(rows, sort_keys=keys))


@dataclass(frozen=True, slots=True)
class FileWriter:
    """Writes files of one table, in any process."""

    layout: FileLayout
    storage: Storage

    def stage(self, rows: pa.Table, key: Sequence[str]) -> list[DataFile]:
        """Write rows in the table's columns, in its sort order or else by key, to data files that a commit can add.

        It may be repeated: files that no commit adds are orphans, which maintenance removes.
        """
        if rows.num_rows == 0:
            return []
        layout = self.layout
        fields, order = layout.order_of(key)
        rows = sort(rows, fields)
        if not layout.spec["fields"]:
            return self.write(rows, (), key, order)
        groups = split(rows, parse_spec(layout.table, layout.spec, layout.schema))
        return [file for values, group in groups for file in self.write(group, values, key, order)]

    def write(self, rows: pa.Table, values: Sequence[Any], key: Sequence[str], order: int) -> list[DataFile]:
        """Write rows of one partition as they are ordered; values and the id of the order are those of Iceberg's JSON.

        The columns are those of the table, which other ones may follow.
        """
        files = self.write_groups(row_groups(rows), rows.schema, values, key, order)
        if key and len(files) == 1:
            named = {field.name: field for field in self.layout.schema.fields}
            remember(files[0].path, [named[name] for name in key], rows)
        return files

    def write_groups(
        self, groups: Iterator[pa.Table], schema: pa.Schema, values: Sequence[Any], key: Sequence[str], order: int
    ) -> list[DataFile]:
        """Write what may be more than memory holds: row groups of this schema as they come, else as `write`."""
        known, properties = self.layout.schema, self.layout.properties
        if own := known.renamed:
            schema = pa.schema([field.with_name(own.get(field.name, field.name)) for field in schema])
        target = int(properties.get("write.target-file-size-bytes", TARGET_BYTES))
        files = write_files(groups, schema, self.storage, lambda name: self.layout.place(name, values), target)
        return [
            DataFile.parse(
                {
                    "spec-id": int(self.layout.spec["spec-id"]),
                    "content": "data",
                    "file-path": file.path,
                    "file-format": "parquet",
                    "partition": list(values),
                    "file-size-in-bytes": file.size,
                    "sort-order-id": order,
                    **metrics(file.footer, known.fields, key, properties),
                },
                is_new=True,
            )
            for file in files
        ]


class Written(NamedTuple):
    """A data file that was just written: its location, its bytes, its footer."""

    path: str
    size: int
    footer: pq.FileMetaData


def write_files(
    groups: Iterator[pa.Table],
    columns: pa.Schema,
    storage: Storage,
    locate: Callable[[str], str],
    target: int = TARGET_BYTES,
) -> list[Written]:
    """Write row groups as Parquet files of about `target` bytes, with field ids and statistics of every column.

    The rows are in the table's columns, field ids in the metadata of the schema. `locate` gives the location of a new
    file of some name. No rows make no file.

    Raises:
        OutsideRefused: The storage refuses to take them, and would do so again.
        TransientError: The storage does not answer.
    """
    schema, files = pa.schema([_parquet_field(field) for field in columns]), list[Written]()
    for first in groups:
        location = locate(f"{uuid.uuid4()}.parquet")
        try:
            files.append(_write_file(chain((first,), groups), schema, storage, location, target))
        except (pa.ArrowException, OSError) as error:
            raise failure("write", location, error) from error
    return files


def _write_file(groups: Iterator[pa.Table], schema: pa.Schema, storage: Storage, location: str, target: int) -> Written:
    """One file of the first groups, until it has `target` bytes; the others are left."""
    footers: list[pq.FileMetaData] = []
    options: dict[str, Any] = {"compression": "zstd", "store_decimal_as_integer": True, "metadata_collector": footers}
    with storage.create(location) as sink:
        # Iceberg's readers know columns by field id; Arrow's copy of the schema would only be bytes.
        with pq.ParquetWriter(sink, schema, store_schema=False, **options) as writer:
            for group in groups:
                writer.write_table(group.rename_columns(schema.names))
                if sink.tell() >= target:
                    break
        size = sink.tell()
    return Written(location, size, footers[0])


def row_groups(rows: pa.Table) -> Iterator[pa.Table]:
    """Rows in groups of about `GROUP_BYTES`."""
    size = max(1, rows.num_rows * GROUP_BYTES // max(1, rows.nbytes))
    for start in range(0, rows.num_rows, size):
        yield rows.slice(start, size)


def _parquet_field(field: pa.Field[Any]) -> pa.Field[Any]:
    """The column under a name that Parquet readers take for one name, as Iceberg's own writer does with `a.b`."""
    name = _ODD.sub(lambda match: f"_x{ord(match[0]):X}", field.name)
    return field.with_name(f"_{name}" if name[:1].isdigit() else name)


def _fits(source: pa.DataType, target: pa.DataType) -> bool:
    if source == target or pa.types.is_null(source):
        return True
    exact = pa.types.is_integer(source) or pa.types.is_decimal(source)
    if exact:
        numbers = pa.types.is_integer(target) or pa.types.is_decimal(target) or pa.types.is_floating(target)
        return numbers or pa.types.is_string(target)
    if pa.types.is_floating(source):
        return pa.types.is_floating(target) and target.bit_width >= source.bit_width
    if pa.types.is_string(source):
        return pa.types.is_decimal(target) or pa.types.is_large_string(target)
    if pa.types.is_boolean(source):
        return pa.types.is_integer(target)
    if pa.types.is_list(source) and pa.types.is_list(target):
        return _fits(source.value_type, target.value_type)
    return False


def _cast(name: str, values: Chunks, field: Field) -> Chunks:
    if values.type == field.arrow:
        return values
    try:
        if pa.types.is_integer(values.type) and pa.types.is_decimal(field.arrow):
            # Arrow refuses the direct cast by what the integer type could hold; this way it looks at the values.
            values = values.cast(pa.decimal128(38, 0))
        return values.cast(field.arrow)
    except pa.ArrowInvalid as error:
        what = (
            f"A value for column {field.name} of table {name} does not fit: upstream {values.type}, here {field.type}"
        )
        raise ValueRefused(what, "Widen the column, or drop the table and backfill it.") from error
