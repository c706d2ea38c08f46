"""Reads rows of CSV, as Dumpling writes it, as one column of bytes for each column of the table.

Arrow's CSV reader does the work. It takes separators and quotes of one ASCII character and no escapes of MySQL, so what
differs is put into its form first, and put back into the values afterwards: both for all rows at once.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from itertools import count
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from applier.decode.dump.csv_form import CsvForm

_ESCAPED = {b"0": b"\0", b"n": b"\n", b"r": b"\r", b"Z": b"\x1a"}
"""What an escaped byte stands for, where that is not the byte itself (MySQL's string literals)."""

_NO_ESCAPES = "backslashes do not escape as Dumpling does (backslash_escapes)"

_SPARE = [bytes([byte]) for byte in (*range(0x1F, 0x0D, -1), 0x7F, *range(1, 9), 0x0B, 0x0C)]
"""Bytes that may stand for something longer where the data holds none of them."""

_Undo = list[tuple[bytes, bytes]]
"""What stands in the data, and what it stands for, in the order in which it was put there."""


def read_csv(data: bytes, form: CsvForm, columns: Sequence[str] | None, texts: Collection[str] | None = ()) -> pa.Table:
    """The values of some whole rows without a header, each column as `binary`, NULL where they are NULL.

    Columns are in the order of the file; None for as many as there are. Values of `texts` stand within delimiters; for
    none, that is not looked at; None for all.

    Raises:
        ValueError: A row has another number of values, which a note of the error names, or no end, or is not written in
            the form.
    """
    if not data:
        return pa.table({name: pa.array([], pa.binary()) for name in columns or ()})
    undo: _Undo = []
    plain = _unescaped(data, form, undo) if form.escapes else data
    read, structure = _shortened(plain, form, undo)
    table = _parsed(read, structure, form, columns)
    if form.escapes:
        _refuse_bare(plain, form, table)
    if texts is None or texts:
        _refuse_undelimited(read, structure[1], form, table, table.column_names if texts is None else texts)
    return _restored(table, undo)


def read_names(header: bytes, form: CsvForm) -> list[str]:
    """The names that a header has.

    Raises:
        ValueError: It is not written in the form.
    """
    names = read_csv(header, form, None, None)
    return [(column[0].as_py() or b"").decode("utf-8", "replace") for column in names.columns]


def _unescaped(data: bytes, form: CsvForm, undo: _Undo) -> bytes:
    """Put a mark in place of each escape of Dumpling.

    Raises:
        ValueError: A byte stands there that would be escaped.
    """
    if b"\0" in data or re.search(rb"\r(?!\n)", data):
        raise ValueError(f"{_NO_ESCAPES}: a byte stands there that would be escaped")
    # The backslash itself goes first: afterwards each one begins another escape, or NULL.
    for byte in form.escaped if b"\\" in data else ():
        data = _replaced(data, b"\\" + byte, _ESCAPED.get(byte, byte), form, undo)
    return data


def _replaced(data: bytes, old: bytes, meant: bytes, form: CsvForm, undo: _Undo) -> bytes:
    """The data with a mark that it does not hold in place of some bytes."""
    if old not in data:
        return data
    undo.append((mark := next(_marks(data, form)), meant))
    return data.replace(old, mark)


def _marks(data: bytes, form: CsvForm) -> Iterator[bytes]:
    """Texts that the data does not hold: two of them never overlap, as each begins and ends like none of its parts."""
    taken = form.separator + form.delimiter + form.null
    return (mark for number in count() if (mark := b"g%dz" % number) not in data and mark not in taken)


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


def _shortened(data: bytes, form: CsvForm, undo: _Undo) -> tuple[bytes, list[bytes]]:
    """The data with a separator and a delimiter of one ASCII character, and these."""
    structure = [form.separator, form.delimiter]
    for index, long in enumerate(structure):
        if len(long) > 1 or long > b"\x7f":
            free = [byte for byte in _SPARE if byte not in b"".join(structure) + form.null]
            one = next((byte for byte in free if byte not in data), free[0])
            data = _replaced(data, one, one, form, undo).replace(long, one)
            structure[index] = one
            undo.append((one, long))
    return data, structure


def _parsed(data: bytes, structure: Sequence[bytes], form: CsvForm, columns: Sequence[str] | None) -> pa.Table:
    _refuse_stray(data, structure, form)
    names = columns or [f"f{number}" for number in range(data.count(structure[0]) + 1)]
    separator, delimiter = (one.decode("ascii") for one in structure)
    try:
        return csv.read_csv(
            cast("Any", pa.BufferReader(data)),
            csv.ReadOptions(
                use_threads=False,
                column_names=None if columns is None else list(columns),
                autogenerate_column_names=columns is None,
                block_size=len(data) + 1,
            ),
            csv.ParseOptions(
                delimiter=separator,
                quote_char=delimiter or False,
                double_quote=not form.escapes,
                newlines_in_values=bool(delimiter),
                ignore_empty_lines=False,
            ),
            csv.ConvertOptions(
                check_utf8=False,
                column_types=dict.fromkeys(names, pa.binary()),
                null_values=[form.null.decode()],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )
    except pa.ArrowInvalid as error:
        # The rest of Arrow's message holds the row.
        found = re.search(r"(?:Row #(\d+): )?(Expected \d+ columns, got \d+)", str(error))
        refused = ValueError(found[2] if found else "CSV parse error")
        if found and found[1]:
            refused.add_note(f"Row {found[1]}")
        raise refused from None


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
    return [(chunk.buffers()[2] or pa.py_buffer(b"")).to_pybytes() for chunk in column.chunks]
