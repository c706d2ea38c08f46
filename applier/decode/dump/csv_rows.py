"""Reads rows of CSV, as Dumpling writes it, as one column of bytes for each column of the table.

Arrow's CSV reader does the work. It takes separators and quotes of one ASCII character and no escapes of MySQL, so what
differs is put into its form first, and put back into the values afterwards: both for all rows at once.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Collection, Iterator, Sequence
from itertools import count
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from applier.decode.dump.csv_form import CsvForm
from applier.decode.dump.escape_marks import marked, spare_bytes

_ESCAPED = {ord("0"): 0, ord("n"): 10, ord("r"): 13, ord("Z"): 26}
"""What an escaped byte stands for, where that is not the byte itself (MySQL's string literals)."""

_NO_ESCAPES = "backslashes do not escape as Dumpling does (backslash_escapes)"

_Undo = list[tuple[bytes, bytes]]
"""What stands in the data, and what it stands for, in the order in which it was put there."""


def read_csv(data: bytes, form: CsvForm, columns: Sequence[str], texts: Collection[str] = ()) -> pa.Table:
    """The values of some rows, each column as `binary`, NULL where they are NULL.

    Args:
        data: Whole rows, without a header.
        form: How they are written.
        columns: Names of their columns, in the order of the file.
        texts: Those of them whose values stand within delimiters; for none, that is not looked at.

    Raises:
        ValueError: A row has another number of values, or no end, or is not written in the form.
    """
    if not data:
        return pa.table({name: pa.array([], pa.binary()) for name in columns})
    undo: _Undo = []
    plain = _unescaped(data, form, undo)
    shortened = _shortened(plain, form, undo)
    table = _one_by_one(plain, form, columns) if shortened is None else _parsed(*shortened, form, columns)
    if form.escapes:
        _refuse_bare(plain, form, table)
    if texts:
        read, (_, mark) = shortened or (plain, (form.separator, form.delimiter))
        _refuse_undelimited(read, mark, form, table, texts)
    return _restored(table, undo)


def read_names(header: bytes, form: CsvForm) -> list[str]:
    """The names that a header has.

    Raises:
        ValueError: It is not written in the form.
    """
    undo: _Undo = []
    row = next(_rows(plain := _unescaped(header, form, undo), form), [])
    keys = [str(number) for number in range(len(row))]
    table = _one_by_one(plain, form, keys)
    _refuse_undelimited(plain, form.delimiter, form, table, keys)
    (names,) = _restored(table, undo).to_pylist()
    return [(names[key] or b"").decode("utf-8", "replace") for key in keys]


def _unescaped(data: bytes, form: CsvForm, undo: _Undo) -> bytes:
    """Put a mark in place of each escape.

    Raises:
        ValueError: A backslash may escape or not, or what escapes does not stand as Dumpling writes it.
    """
    if form.escapes is None and b"\\" in data.replace(form.null, b""):
        raise ValueError("a backslash within text may escape or not, and backslash_escapes is not set")
    if not form.escapes:
        return data
    if b"\0" in data or re.search(rb"\r(?!\n)", data):
        raise ValueError(f"{_NO_ESCAPES}: a byte stands there that would be escaped")
    data, follow = _without_escapes(data, form, undo)
    if follow - {*form.follow, *(form.delimiter or form.separator)[:1]}:
        raise ValueError(f"{_NO_ESCAPES}: what follows a backslash is no escape of Dumpling")
    return data


def _refuse_bare(plain: bytes, form: CsvForm, table: pa.Table) -> None:
    """Refuse data without escapes in which a byte stands that would be escaped."""
    nulls = sum(column.null_count for column in table.columns)
    if _count(plain, b"\\") != nulls * form.null.count(b"\\") or any(byte in plain for byte in form.bare):
        raise ValueError(f"{_NO_ESCAPES}: text holds what would be escaped")
    if _count(plain, b"\n") + (not plain.endswith(b"\n")) != table.num_rows:
        raise ValueError(f"{_NO_ESCAPES}: text holds an end of a line")


def _refuse_undelimited(data: bytes, mark: bytes, form: CsvForm, table: pa.Table, texts: Collection[str]) -> None:
    """Refuse text that stands without delimiters, a number within them, and text that cannot be told from NULL."""
    columns = [table[name] for name in table.column_names if name in texts]
    if not mark:
        if not form.tells_null and any(column.null_count for column in columns):
            raise ValueError("text that equals null_value cannot be told from NULL without a delimiter")
        return
    filled = sum(len(column) - column.null_count for column in columns)
    inside = 0 if form.escapes else 2 * sum(text.count(mark) for column in table.columns for text in _buffers(column))
    if _count(data, mark) != 2 * filled + inside:
        raise ValueError("a text without delimiter is not null_value, or a number has a delimiter")


def _without_escapes(data: bytes, form: CsvForm, undo: _Undo) -> tuple[bytes, set[int]]:
    """The data with a mark in place of each escape, and the bytes that follow the backslashes."""
    if b"\\" not in data:
        return data, set()
    if (short := marked(data, form)) is not None:
        undo += [(found, bytes([_ESCAPED.get(byte, byte)])) for found, byte in short[1]]
        return short[0], {byte for _, byte in short[1]}
    mark, numbers, follow = _absent(data), count(), {ord("\\")} if b"\\\\" in data else set[int]()

    def replaced(escape: bytes, byte: int) -> bytes:
        undo.append((found := b"%s%03d" % (mark, next(numbers)), bytes([byte])))
        return data.replace(escape, found)

    # First of all: afterwards each backslash begins an escape.
    data = replaced(b"\\\\", ord("\\"))
    null = form.null[1:] if form.null.startswith(b"\\") else b""
    pattern = re.compile(rb"\\(?!%s)(.)" % re.escape(null) if null else rb"\\(.)", re.DOTALL)
    while (found := pattern.search(data)) is not None:
        follow.add(found[1][0])
        data = replaced(found[0], _ESCAPED.get(found[1][0], found[1][0]))
    return data, follow


def _absent(data: bytes) -> bytes:
    while (mark := secrets.token_hex(4).encode()) in data:
        pass
    return mark


def _shortened(data: bytes, form: CsvForm, undo: _Undo) -> tuple[bytes, list[bytes]] | None:
    """The data with a separator and a delimiter of one byte, and these; None where the data leaves no byte for them."""
    structure = [form.separator, form.delimiter]
    spare = spare_bytes(data, b"".join(structure))
    for index, long in enumerate(structure):
        if len(long) > 1 or long > b"\x7f":
            one = next(spare, None)
            if one is None:
                return None
            data, structure[index] = data.replace(long, one), one
            undo.append((one, long))
    return data, structure


def _parsed(data: bytes, structure: Sequence[bytes], form: CsvForm, columns: Sequence[str]) -> pa.Table:
    _refuse_stray(data, structure, form)
    separator, delimiter = (one.decode("ascii") for one in structure)
    try:
        return csv.read_csv(
            cast("Any", pa.BufferReader(data)),
            csv.ReadOptions(use_threads=False, column_names=list(columns), block_size=len(data) + 1),
            csv.ParseOptions(
                delimiter=separator,
                quote_char=delimiter or False,
                double_quote=not form.escapes,
                newlines_in_values=bool(delimiter),
                ignore_empty_lines=False,
            ),
            csv.ConvertOptions(
                check_utf8=False,
                column_types=dict.fromkeys(columns, pa.binary()),
                null_values=[form.null.decode()],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )
    except pa.ArrowInvalid as error:
        # The rest of Arrow's message holds the row.
        found = re.search(r"Expected \d+ columns, got \d+", str(error))
        raise ValueError(found[0] if found else "CSV parse error") from None


def _refuse_stray(data: bytes, structure: Sequence[bytes], form: CsvForm) -> None:
    """Arrow takes what stands behind a delimiter for a part of the value."""
    separator, delimiter = structure
    if not delimiter:
        return
    before, mark = re.escape(separator + b"\n"), re.escape(delimiter)
    # In SQL, an x stands before the delimiter of bytes.
    literal = rb"(?<![%s]x')(?<!\Ax')" % before if delimiter == b"'" else b""
    stray = re.compile(rb"%s(?<=[^%s]%s)%s(?![%s\r]|\Z)" % (mark, before, mark, literal, before))
    if stray.search(data if form.escapes else data.replace(delimiter * 2, b"")):
        raise ValueError("CSV parse error: a value goes on behind its delimiter")


def _one_by_one(data: bytes, form: CsvForm, columns: Sequence[str]) -> pa.Table:
    """The same without Arrow's reader, for data in which every byte comes: a hundred times as slow."""
    rows = list(_rows(data, form))
    if wrong := next((len(row) for row in rows if len(row) != len(columns)), None):
        msg = f"CSV parse error: Expected {len(columns)} columns, got {wrong}"
        raise ValueError(msg)
    arrays: list[Any] = [pa.array([row[index] for row in rows], pa.binary()) for index in range(len(columns))]
    return pa.table(arrays, names=list(columns))


def _rows(data: bytes, form: CsvForm) -> Iterator[list[bytes | None]]:
    end = re.compile(b"|".join((re.escape(form.separator), rb"\r?\n", rb"\Z")))
    at, row = 0, list[bytes | None]()
    while at < len(data):
        is_text = bool(form.delimiter) and data.startswith(form.delimiter, at)
        text, at = _delimited(data, at + len(form.delimiter), form.delimiter) if is_text else (b"", at)
        found = end.search(data, at)
        if found is None or (is_text and found.start() > at):
            raise ValueError("CSV parse error: a value goes on behind its delimiter")
        value = data[at : found.start()]
        row.append(text if is_text else None if value == form.null else value)
        at = found.end()
        if found[0] != form.separator:
            yield row
            row = []


def _delimited(data: bytes, start: int, delimiter: bytes) -> tuple[bytes, int]:
    """A value within delimiters, and where what follows them begins."""
    at = start
    while (at := data.find(delimiter, at)) >= 0:
        if not data.startswith(delimiter, at + len(delimiter)):
            return data[start:at].replace(delimiter * 2, delimiter), at + len(delimiter)
        at += 2 * len(delimiter)
    raise ValueError("CSV parse error: a value has no end")


def _restored(table: pa.Table, undo: _Undo) -> pa.Table:
    """The values as they were, before other bytes were put in place of some of theirs."""
    columns = list[Any]()
    for name in table.column_names:
        column: Any = table[name]
        texts = _buffers(column) if undo else []
        for found, meant in reversed(undo):
            if any(found in text for text in texts):
                column = pc.replace_substring(column, pattern=found, replacement=meant)
        columns.append(column)
    return pa.table(columns, names=table.column_names)


def _count(data: bytes, part: bytes) -> int:
    """How often a part stands in some data; quicker than `bytes.count` for a byte that stands there often."""
    return data.count(part) if len(part) > 1 else int(np.count_nonzero(np.frombuffer(data, np.uint8) == part[0]))


def _buffers(column: Any) -> list[bytes]:
    """All values of a column, one behind the other."""
    return [(chunk.buffers()[2] or pa.py_buffer(b"")).to_pybytes() for chunk in column.chunks]
