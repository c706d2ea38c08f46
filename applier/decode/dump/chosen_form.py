"""Says how the files of an export are read: as Dumpling writes them without options, but for the options given.

Nothing is guessed. The beginnings of some files are held against the form before anything is loaded, and each row is
when it is read.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import astuple, replace
from itertools import product
from operator import ne
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from applier.changefeed.table import TableVersion
from applier.config.upstream import CsvSection
from applier.decode.dump.blocks import end_of_rows, without_head
from applier.decode.dump.csv_form import CsvForm, look_encoded
from applier.decode.dump.export import Export, File
from applier.decode.dump.file_columns import columns_in
from applier.decode.dump.part_reader import rows_of
from applier.decode.dump.sql_rows import form_of_sql
from applier.decode.dump.typed_rows import BYTES, TEXTS
from applier.errors import ConfigError

MOST_FILES = 100
"""Files that are looked at, the first one of each table."""

SAMPLE_BYTES = 64 << 10
"""Bytes, unpacked, of the rows that are read of each."""

_NUMBERS = (
    *("tinyint", "smallint", "mediumint", "int", "bigint", "year", "decimal", "float", "double"),
    *("date", "datetime", "timestamp", "time"),
)

_LOOKS = dict.fromkeys(_NUMBERS, r"^[-+]?[.]?[0-9]") | {"json": r'^([\[{"0-9-]|(true|false|null)$)', "vector": r"^\["}
"""How each value of a type begins."""

_USUAL: Mapping[str, tuple[Any, ...]] = {
    "separator": (b",", b";", b"|", b"\t"),
    "delimiter": (b'"', b"'", b""),
    "null": (b"\\N", b"NULL", b""),
    "has_header": (True, False),
    "escapes": (True, False),
}
"""Options that exports have, for a sentence about files that do not fit: never to read them."""

_WAY = (
    "Set in [upstream.csv] the options that Dumpling had: separator, delimiter, null_value, header (false after "
    "--no-header), backslash_escapes (false after --escape-backslash=false). If the file is cut off, copy it again. "
    "Each line has to end in LF or CR LF (--csv-line-terminator)."
)


class _Sample(NamedTuple):
    file: File
    version: TableVersion
    data: bytes

    def own(self, form: CsvForm) -> CsvForm:
        """How it is written in an export of some form."""
        return form_of_sql(form) if self.file.kind == "sql" else form

    def rows(self, form: CsvForm) -> bytes:
        """Its first whole rows."""
        rows, _ = without_head(self.data, self.file, form)
        return rows[: end_of_rows(rows[:SAMPLE_BYTES], self.own(form))]

    def read(self, form: CsvForm, rows: bytes) -> pa.Table:
        """Some of them.

        Raises:
            ValueError: They do not fit the form or the table.
        """
        names = columns_in(self.data, self.file, form, self.version)
        table = rows_of(rows, self.file, self.own(form), names, self.version)
        _refuse_kinds(table, self.version, self.own(form))
        return table

    def fits(self, form: CsvForm, rows: bytes) -> bool:
        """Whether they fit."""
        with suppress(ValueError):
            return form.problem() is None and self.read(form, rows) is not None
        return False

    def line(self, form: CsvForm) -> int:
        """The first line of the first row that does not fit, counted from 1."""
        if not self.fits(form, b""):
            return 1
        rows = self.rows(form)
        ends = [end_of_rows(rows[: line.end()], self.own(form)) for line in re.finditer(b"\n", rows)]
        good = [0, *ends][bisect_left(ends, True, key=lambda end: not self.fits(form, rows[:end]))]
        return (self.data[: self.data.find(rows)] + rows[:good]).count(b"\n") + 1


def form_of(export: Export, section: CsvSection) -> CsvForm:
    """How the CSV and SQL files of an export are written.

    Raises:
        ConfigError: Files and form do not fit, or files can be read in two ways.
    """
    form = _declared(section)
    values = list[bytes]()
    for sample in _samples(export):
        rows = _rows(export, sample, form)
        values += _bytes(sample.version, rows) if sample.file.kind == "csv" else ()
    if form.binary is None and look_encoded(values):
        what = f"All values of binary columns that were looked at in export {export.address} look like hex or base64."
        way = 'Set binary in [upstream.csv] to "raw", or to "hex" or "base64" if Dumpling had a dialect.'
        raise ConfigError([f"{what} {way}"])
    return replace(form, binary="raw") if form.binary is None and values else form


def _declared(section: CsvSection) -> CsvForm:
    """The form that options say.

    Raises:
        ConfigError: The same bytes can be two tables in it.
    """
    texts = (section.separator.encode(), section.delimiter.encode(), section.null_value.encode())
    form = CsvForm(*texts, section.header, section.backslash_escapes, section.binary, section.timezone)
    problem = form.problem()
    if problem is None and not form.delimiter and "null_value" not in section.model_fields_set:
        problem = "without delimiter nothing shows what stands for NULL, and null_value (--csv-null-value) is not set"
    if problem is not None:
        what = f"The form of CSV files in [upstream.csv] can be read in two ways: {problem}."
        raise ConfigError([f"{what} Export again with other options, or set those that Dumpling had."])
    return form


def _samples(export: Export) -> Iterator[_Sample]:
    """The first file of some tables: those with binary columns first, then those with text, then large ones."""
    found = []
    for name, files in export.files.items():
        if (file := next((file for file in files if file.kind != "parquet" and file.size), None)) is not None:
            version = export.version(name)
            kinds = {column.type.name for column in version.columns}
            found.append((not kinds & BYTES, not kinds & TEXTS, -file.size, name, file))
    for *_, name, file in sorted(found)[:MOST_FILES]:
        yield _Sample(file, export.version(name), _beginning(export, file))


def _beginning(export: Export, file: File) -> bytes:
    try:
        return file.beginning(export.address)
    except (ValueError, OSError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        what = f"File {file.name} of export {export.address} cannot be read: {reason}."
        raise ConfigError([f"{what} Copy it again, or export again with `tiup dumpling`."]) from None


def _rows(export: Export, sample: _Sample, form: CsvForm) -> pa.Table:
    """The first rows of a file.

    Raises:
        ConfigError: They do not fit the form or the table.
    """
    try:
        return sample.read(form, sample.rows(form))
    except ValueError as error:
        where = f"File {sample.file.name} of export {export.address}"
        what = f"{where} does not fit its form in line {sample.line(form)}: {error}."
    raise ConfigError([f"{what} {_way(sample, form)}"])


def _way(sample: _Sample, form: CsvForm) -> str:
    """What to set: the keys with which a file fits, where they are evident as all others are more."""
    forms = [replace(form, **dict(zip(_USUAL, options, strict=True))) for options in product(*_USUAL.values())]
    fitting = [one for one in forms if (rows := sample.rows(one)) and sample.fits(one, rows)]
    changed = [sum(map(ne, astuple(one), astuple(form))) for one in fitting]
    if not changed or changed.count(min(changed)) > 1:
        return _WAY
    keys = fitting[changed.index(min(changed))].shown(form)
    return f"Set {keys} in [upstream.csv] if Dumpling had such options: with them the file fits."


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


def _bytes(version: TableVersion, table: pa.Table) -> list[bytes]:
    """The values of binary columns, without empty ones."""
    names = {column.name for column in version.columns if column.type.name in BYTES} & set(table.column_names)
    return [value for name in names for value in table[name].to_pylist() if value]
