"""Reads files of an export as rows in the columns of their Iceberg table. Runs in the tasks that load."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from applier.changefeed.table import TableVersion
from applier.changefeed.types import TypeRules
from applier.decode.dump.blocks import blocks, parts
from applier.decode.dump.csv_form import CsvForm
from applier.decode.dump.csv_rows import read_csv
from applier.decode.dump.export import File
from applier.decode.dump.file_columns import columns_in, declared
from applier.decode.dump.sql_rows import form_of_sql, read_sql
from applier.decode.dump.typed_rows import TEXTS, read_parquet, typed
from applier.errors import ValueRefused

_LOOK = "Check the options of Dumpling in [upstream.csv], and that the file is whole; else export the table again."


@dataclass(frozen=True, slots=True)
class PartReader:
    """Reads the files of one table, which the version shows as the export declares it."""

    address: str
    form: CsvForm
    version: TableVersion
    rules: TypeRules

    def parts(self, file: File, size: int) -> tuple[File, ...]:
        """What tasks read of a file: see `blocks.parts`."""
        return parts(file, self.form, size)

    def columns(self, file: File) -> tuple[str, ...]:
        """Names of the columns whose values the file holds, in the table's case.

        Raises:
            ValueRefused: The file cannot be read, or has other columns.
        """
        try:
            return self._columns(file)
        except (ValueError, OSError, pa.ArrowException) as error:
            raise _refused(file, error) from None

    def _columns(self, file: File) -> tuple[str, ...]:
        if file.kind == "parquet":
            with file.opened(self.address) as raw:
                return declared(pq.ParquetFile(raw).schema_arrow.names, self.version)
        is_read = file.kind == "sql" or self.form.has_header
        return columns_in(file.beginning(self.address) if is_read else b"", file, self.form, self.version)

    def read(self, file: File) -> Iterator[tuple[pa.Table, int]]:
        """The rows of a file in bounded blocks, with the number of zero dates that became NULL.

        Raises:
            ValueRefused: The file cannot be read as it should be, or a value does not fit its column.
        """
        try:
            yield from self._read(file)
        except ValueRefused as refusal:
            raise ValueRefused(f"In file {file.name} of the export: {refusal.what}", refusal.hint or _LOOK) from None
        except (ValueError, OSError, pa.ArrowException) as error:
            raise _refused(file, error) from None

    def _read(self, file: File) -> Iterator[tuple[pa.Table, int]]:
        if not file.size:
            raise ValueError("it is empty, as Dumpling leaves no file")
        if file.kind == "parquet":
            with file.opened(self.address) as raw:
                yield from read_parquet(raw, self.version, self.rules)
            return
        names = self._columns(file)
        is_sql = file.kind == "sql"
        form = form_of_sql(self.form) if is_sql else self.form
        binary = "literal" if is_sql else form.binary
        with file.opened(self.address) as stream:
            for block in blocks(stream, file, form):
                rows = rows_of(block, file, form, names, self.version)
                yield typed(rows, self.version, self.rules, binary, form.zone)


def rows_of(data: bytes, file: File, form: CsvForm, names: Sequence[str], version: TableVersion) -> pa.Table:
    """Whole rows of a CSV or SQL file as they stand there.

    Raises:
        ValueError: They are not written in the form.
    """
    if file.kind == "sql":
        return read_sql(data, form, names)
    return read_csv(data, form, names, {column.name for column in version.columns if column.type.name in TEXTS})


def _refused(file: File, error: Exception) -> ValueRefused:
    # What Arrow says of values stands behind the first line.
    reason = (error.strerror if isinstance(error, OSError) else None) or str(error).partition("\n")[0]
    return ValueRefused(f"File {file.name} of the export cannot be read: {reason}.", _LOOK)
