"""Says how the files of an export are read: as Dumpling writes them without options, but for the options given.

Nothing is guessed. The beginnings of some files are held against the form before anything is loaded, and each row is
when it is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from applier.changefeed.table import TableName, TableVersion
from applier.config.dump_form import CsvSection
from applier.decode.dump.blocks import end_of_rows, without_head
from applier.decode.dump.csv_form import BinaryForm, CsvForm, look_encoded
from applier.decode.dump.export import Export, File
from applier.decode.dump.file_columns import columns_of
from applier.decode.dump.part_reader import rows_of
from applier.decode.dump.sql_rows import form_of_sql
from applier.decode.dump.stream import beginning
from applier.decode.dump.typed_rows import BYTES, texts_of
from applier.errors import ConfigError

MOST_FILES = 100
"""Files that are looked at, the first one of each table."""

SAMPLE_BYTES = 64 << 10
"""Bytes, unpacked, that are read of each."""

_NUMBERS = (
    *("tinyint", "smallint", "mediumint", "int", "bigint", "year", "decimal", "float", "double"),
    *("date", "datetime", "timestamp", "time"),
)

_LOOKS = dict.fromkeys(_NUMBERS, r"^[-+]?[.]?[0-9]") | {"json": r'^([\[{"0-9-]|(true|false|null)$)', "vector": r"^\["}
"""How each value of a type begins."""

_WAY = (
    "Set in [upstream.csv] the options that Dumpling had: separator, delimiter, null_value, header = false for "
    "--no-header, backslash_escapes. Copy the file again if it is cut off. Lines may end in CR LF or LF "
    "(--csv-line-terminator), and nothing else."
)


def form_of(export: Export, section: CsvSection) -> CsvForm:
    """How the CSV and SQL files of an export are written.

    Args:
        export: The export.
        section: Options of `[upstream.csv]`.

    Raises:
        ConfigError: Files and form do not fit, or files can be read in two ways.
    """
    form = _declared(section)
    samples = [(name, file, _beginning(export, file)) for name, file in _looked_at(export)]
    csv = [(name, file, data) for name, file, data in samples if file.kind == "csv"]
    if csv:
        _refuse_unclear(export, form, section)
    tables = {name: _rows(export, name, file, form, data) for name, file, data in samples}
    if csv and section.header is None and not any(_shows_header(export, *sample, form) for sample in csv):
        what = f"Nothing in export {export.address} shows whether the first row of each CSV file is a row or a header."
        raise ConfigError([f"{what} Set header in [upstream.csv]: false if Dumpling had --no-header, else true."])
    if section.binary is None:
        form = replace(form, binary=_binary(export, {name: tables[name] for name, _, _ in csv}))
    return form


def _declared(section: CsvSection) -> CsvForm:
    """The form that options say; only with all other defaults are escapes taken for the default, too."""
    given = {
        "separator": section.separator,
        "delimiter": section.delimiter,
        "null": section.null_value,
        "has_header": section.header,
    }
    options: Any = {key: value.encode() if isinstance(value, str) else value for key, value in given.items()}
    form = replace(CsvForm(), **{key: value for key, value in options.items() if value is not None})
    escapes = section.backslash_escapes
    if escapes is None and form == CsvForm():
        escapes = True
    return replace(form, escapes=escapes, binary=section.binary, zone=section.timezone)


def _refuse_unclear(export: Export, form: CsvForm, section: CsvSection) -> None:
    """Refuse a form in which the same bytes can be two tables.

    Raises:
        ConfigError: It is such a form.
    """
    if (problem := form.problem()) is not None:
        what = f"The form of CSV files in [upstream.csv] can be read in two ways: {problem}."
        raise ConfigError([f"{what} Export again with other options, or set those that Dumpling had."])
    if form.delimiter or not any(texts_of(export.version(name)) for name, _ in _looked_at(export)):
        return
    what = f"CSV files of export {export.address} have no delimiter"
    if not form.escapes:
        way = "Set backslash_escapes = true in [upstream.csv] if Dumpling wrote escapes; else export with a delimiter."
        raise ConfigError([f"{what}, and it is not said that a backslash escapes. {way}"])
    if section.null_value is None:
        raise ConfigError(
            [f"{what}, so nothing shows what stands for NULL. Set null_value in [upstream.csv] (--csv-null-value)."]
        )


def _looked_at(export: Export) -> Iterator[tuple[TableName, File]]:
    """The first file of some tables: those with binary columns first, then those with text, then large ones."""
    found = []
    for name, files in export.files.items():
        if (file := next((file for file in files if file.kind != "parquet" and file.size), None)) is not None:
            version = export.version(name)
            has_bytes = any(column.type.name in BYTES for column in version.columns)
            found.append((not has_bytes, not texts_of(version), -file.size, name, file))
    yield from ((name, file) for *_, name, file in sorted(found)[:MOST_FILES])


def _beginning(export: Export, file: File) -> bytes:
    try:
        return beginning(export.address, file, SAMPLE_BYTES)
    except (ValueError, OSError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        what = f"File {file.name} of export {export.address} cannot be read: {reason}."
        raise ConfigError([f"{what} Copy it again, or export again with `tiup dumpling`."]) from None


def _rows(export: Export, name: TableName, file: File, form: CsvForm, data: bytes) -> pa.Table:
    """The first rows of a file.

    Raises:
        ConfigError: They do not fit the form or the table.
    """
    version, own = export.version(name), form_of_sql(form) if file.kind == "sql" else form
    try:
        names = columns_of(export.address, file, form, version)
    except ValueError as error:
        what = f"its first row does not hold the names of the columns (header), as {error}"
        raise _misfit(export, file, 1, ValueError(what) if file.kind == "csv" else error) from None

    def read(rows: bytes) -> pa.Table:
        table = rows_of(rows, file, own, names, version)
        _refuse_kinds(table, version, own)
        return table

    rows, _ = without_head(data, file, own)
    rows = rows[: end_of_rows(rows, own)]
    try:
        return read(rows)
    except ValueError as error:
        head = data[: data.find(rows)].count(b"\n")
        raise _misfit(export, file, head + _line(rows, own, read), error) from None


def _refuse_kinds(table: pa.Table, version: TableVersion, form: CsvForm) -> None:
    """Refuse values that no column of their type has."""
    for column in version.columns:
        if column.name not in table.column_names:
            continue
        values: Any = table[column.name].drop_null()
        look = _LOOKS.get(column.type.name)
        if look is not None and not pc.all(pc.match_substring_regex(values, look), min_count=0).as_py():
            msg = f"column {column.name} holds what is no {column.type.name}"
            raise ValueError(msg)
        if not form.delimiter and look is None and len(values) and all(map(_is_quoted, values.to_pylist())):
            msg = f"each text of column {column.name} stands within quotes, and the delimiter is empty"
            raise ValueError(msg)


def _is_quoted(value: bytes) -> bool:
    return len(value) > 1 and value[:1] == value[-1:] and value[:1] in (b'"', b"'")


def _line(rows: bytes, form: CsvForm, read: Callable[[bytes], pa.Table]) -> int:
    """The first line of the first row that cannot be read, counted from 1."""
    first, row = 1, b""
    for number, line in enumerate(rows.splitlines(keepends=True) if form.escapes else rows.split(b"\n"), 1):
        row += line if form.escapes else line + b"\n"
        if not end_of_rows(row, form):
            continue
        try:
            read(row)
        except ValueError:
            break
        first, row = number + 1, b""
    return first


def _misfit(export: Export, file: File, line: int, error: ValueError) -> ConfigError:
    what = f"File {file.name} of export {export.address} does not fit its form in line {line}: {error}."
    return ConfigError([f"{what} {_WAY}"])


def _shows_header(export: Export, name: TableName, file: File, data: bytes, form: CsvForm) -> bool:
    """Whether the header of a file could not be a row of its table."""
    version = export.version(name)
    header = data[: data.find(b"\n") + 1]
    try:
        table = rows_of(header, file, form, columns_of(export.address, file, form, version), version)
        _refuse_kinds(table, version, form)
    except ValueError:
        return True
    return False


def _binary(export: Export, tables: dict[TableName, pa.Table]) -> BinaryForm | None:
    """Raw where a value shows it, as it is neither hex nor base64; None without values.

    Raises:
        ConfigError: Values may be bytes as they are, hex or base64.
    """
    values = [
        value
        for name, table in tables.items()
        for column in export.version(name).columns
        if column.type.name in BYTES and column.name in table.column_names
        for value in table[column.name].to_pylist()
        if value
    ]
    if values and all(map(look_encoded, values)):
        what = f"All values of binary columns that were looked at in export {export.address} look like hex or base64."
        way = 'Set binary in [upstream.csv] to "raw", or to "hex" or "base64" if Dumpling had a dialect.'
        raise ConfigError([f"{what} {way}"])
    return "raw" if values else None
