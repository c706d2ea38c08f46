"""Reads the rows of INSERT statements, as Dumpling writes them, as one column of bytes for each column of the table."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from applier.decode.dump.csv_form import ESCAPES, CsvForm
from applier.decode.dump.csv_rows import read_csv

FORM = CsvForm(delimiter=b"'", null=b"NULL", has_header=False, follow=ESCAPES + b'"Z', bare=b'"')

_PROLOGUE = re.compile(rb"(?:(?:/\*[^\n]*\*/;|SET [^\n]*;|--[^\n]*)?\r?\n)*+")
"""Comments and settings before the first statement."""

_HEAD = re.compile(rb"^INSERT INTO (?P<table>`(?:[^`]|``)*`) (?:\((?P<columns>[^\n]*)\) )?VALUES\n", re.MULTILINE)

_COMMENT = re.compile(rb"^/\*[^\n]*\*/;\n", re.MULTILINE)
"""A setting, where a part begins between two of them."""

_NAME = re.compile(rb"`((?:[^`]|``)*)`")

_FRAME = re.compile(rb"^\(|\)[,;]$", re.MULTILINE)
"""What stands around a row; rows begin on lines of their own."""


def form_of_sql(form: CsvForm) -> CsvForm:
    """How the rows of SQL files are written in an export of some form."""
    return replace(FORM, escapes=form.escapes, zone=form.zone)


def without_prologue(data: bytes) -> bytes:
    """The beginning of a file from its first statement on."""
    found = _PROLOGUE.match(data)
    return data[found.end() :] if found else data


def head_of(data: bytes) -> list[str] | None:
    """Names of the columns that the first statement lists; None where it lists none."""
    found = _HEAD.match(without_prologue(data))
    return _listed(found["columns"]) if found else None


def _listed(columns: bytes | None) -> list[str] | None:
    if columns is None:
        return None
    return [name.replace(b"``", b"`").decode("utf-8", "replace") for name in _NAME.findall(columns)]


def read_sql(data: bytes, form: CsvForm, columns: Sequence[str]) -> pa.Table:
    """The values of whole lines: statements, or a part of their rows. Binary text is as in the file (`x'00ff'`).

    The form is one of `form_of_sql`; columns are in the order of the rows.

    Raises:
        ValueError: The text holds something else.
    """
    return read_csv(_rows(data) if form.escapes else _unescaped_rows(data), form, columns)


def _rows(data: bytes) -> bytes:
    return _FRAME.sub(b"", _HEAD.sub(b"", _COMMENT.sub(b"", data)))


def _unescaped_rows(data: bytes) -> bytes:
    """The same where text holds ends of lines: what stands outside of text is looked at alone."""
    parts = data.split(b"'")
    outside = _rows(b"'".join(parts[::2])).split(b"'")
    if len(outside) != len(parts[::2]):
        raise ValueError("names hold quotes, and text has no escapes")
    parts[::2] = outside
    return b"'".join(parts)
