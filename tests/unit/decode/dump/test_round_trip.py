"""Rows that a writer of Dumpling's rules wrote in any form are read back equal, whatever the size of a block."""

from __future__ import annotations

import contextlib
import tempfile
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from applier.changefeed.types import TypeRules
from applier.config.upstream import CsvSection
from applier.decode.dump import blocks, chosen_form
from applier.decode.dump.chosen_form import form_of
from applier.decode.dump.csv_form import CsvForm
from applier.decode.dump.export import Export
from applier.decode.dump.part_reader import PartReader
from applier.errors import ConfigError, ValueRefused
from tests.unit.decode.dump import dumpling

_TEXT = st.text(st.sampled_from(list("ab'\"\\,;|+-()nNr0x\t\n\r\0\x1aé\u20ac\U0001f980")), max_size=12)
_UNITS = st.integers(-(10**10) + 1, 10**10 - 1)
_ROW = st.tuples(
    st.integers(-(2**63), 2**63 - 1),
    st.none() | _TEXT,
    st.none() | st.binary(max_size=9) | st.sampled_from([b"\\N", b'"', b"\r\n", b"'),\n(1,"]),
    st.none() | _UNITS,
)
_ROWS = st.lists(_ROW, min_size=1, max_size=20)
_FORMS = st.builds(
    CsvForm,
    separator=st.sampled_from([b",", b"\t", b";", b"|+|", b"||"]),
    delimiter=st.sampled_from([b'"', b"'", b"|-|"]),
    null=st.sampled_from([b"\\N", b"NULL", b"NIL", b""]),
    has_header=st.booleans(),
    escapes=st.booleans(),
    binary=st.sampled_from(["raw", "hex", "base64"]),
)

_ANY_FORMS = _FORMS | st.builds(
    CsvForm,
    separator=st.sampled_from([b",", b"\t", b"|", b";"]),
    delimiter=st.sampled_from([b"", b'"']),
    null=st.sampled_from([b"\\N", b"NULL", b"a"]),
    has_header=st.booleans(),
    escapes=st.booleans(),
)

_TEXT_ONLY = "CREATE TABLE `t` (`name` varchar(200), `body` blob);"


def _section(form: CsvForm) -> CsvSection:
    return CsvSection(
        separator=form.separator.decode(),
        delimiter=form.delimiter.decode(),
        null_value=form.null.decode(),
        header=form.has_header,
        backslash_escapes=form.escapes,
        binary=form.binary,
    )


def _read(address: str, section: CsvSection, block: int, part: int) -> list[tuple[Any, ...]]:
    export = Export.find(address)
    form = form_of(export, section)
    found: list[tuple[Any, ...]] = []
    with mock.patch.object(blocks, "BLOCK_BYTES", block):
        for name, files in export.files.items():
            reader = PartReader(address, form, export.version(name), TypeRules())
            for file in files:
                for one in blocks.parts(file, form, part):
                    found += [tuple(row.values()) for rows, _ in reader.read(one) for row in rows.to_pylist()]
    return found


def _values(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return [(*row[:3], None if row[3] is None else Decimal(row[3])) for row in rows]


@settings(max_examples=80, deadline=None)
@given(_ROWS, _FORMS, st.sampled_from(sorted(dumpling.PACK)), st.integers(1, 300), st.integers(1, 200), st.booleans())
def test_csv_is_read_as_it_was_written(
    rows: list[tuple[Any, ...]], form: CsvForm, packed: str, block: int, part: int, is_unix: bool
) -> None:
    """In every form, compression, size of a block and of a part."""
    assume(form.problem() is None)
    data = dumpling.csv(rows, form, end=b"\n" if is_unix else b"\r\n")
    with tempfile.TemporaryDirectory() as folder:
        files = {f"d.t.000000000.csv{packed}": dumpling.PACK[packed](data)}
        address = dumpling.write(Path(folder), files)
        assert _read(address, _section(form), block, part) == _values(rows)


@settings(max_examples=80, deadline=None)
@given(
    _ROWS,
    st.booleans(),
    st.sampled_from(sorted(dumpling.PACK)),
    st.integers(1, 300),
    st.integers(1, 200),
    st.integers(1, 4),
)
@example([(1, "'),\n(2,'x", b"'", None), (2, "');\nINSERT INTO `t` VALUES\n(", None, None)], False, "", 7, 99, 1)
def test_sql_is_read_as_it_was_written(
    rows: list[tuple[Any, ...]], escapes: bool, packed: str, block: int, part: int, each: int
) -> None:
    """With and without escapes, in statements of any length."""
    data = dumpling.sql(rows, escapes=escapes, each=each)
    with tempfile.TemporaryDirectory() as folder:
        files = {f"d.t.000000000.sql{packed}": dumpling.PACK[packed](data)}
        address = dumpling.write(Path(folder), files)
        assert _read(address, CsvSection(backslash_escapes=escapes), block, part) == _values(rows)


_KEYS = ("separator", "delimiter", "null_value", "header", "backslash_escapes", "binary")


@settings(max_examples=200, deadline=None)
@given(_ROWS, _ANY_FORMS, st.sets(st.sampled_from(_KEYS)), st.booleans())
@example(
    [(1, "x1", b"\xff", 1), (2, "y1", b"\xff", 2)], CsvForm(has_header=False), {"header", "backslash_escapes"}, False
)
@example([(1, "NULL", b"\xff", 1), (2, None, None, None)], CsvForm(b"\t", b"", b"NULL"), set(_KEYS), False)
def test_what_is_not_declared_is_right_or_refused(
    rows: list[tuple[Any, ...]], form: CsvForm, keys: set[str], is_text: bool
) -> None:
    """Whatever an export is made with, and whatever of it is declared: never is a value another one.

    Escapes that are off are always declared here: few rows may not show them.
    """
    section = CsvSection(**{key: value for key, value in _section(form).model_dump().items() if key in keys})
    assume(form.escapes or not section.backslash_escapes)
    columns, declared = (("name", "body"), _TEXT_ONLY) if is_text else (dumpling.COLUMNS, dumpling.DECLARED)
    cut = [row[1:3] for row in rows] if is_text else rows
    with tempfile.TemporaryDirectory() as folder:
        files = {"d.t.000000000.csv": dumpling.csv(cut, form, columns)}
        address = dumpling.write(Path(folder), files, declared=declared)
        # Only for the sentence would a hundred other forms be tried.
        with mock.patch.object(chosen_form, "_USUAL", {}), contextlib.suppress(ConfigError, ValueRefused):
            assert _read(address, section, 1 << 20, 1 << 20) == (cut if is_text else _values(rows))


@pytest.mark.parametrize("escapes", [True, False])
def test_columns_may_be_listed_in_another_order(tmp_path: Path, escapes: bool) -> None:
    """By the header, or by the list of the statement."""
    form = CsvForm(escapes=escapes)
    rows = [(100, "it's", 1, b"\\"), (200, None, 2, None)]
    files = {
        "d.t.000000000.csv": dumpling.csv(rows, form, ["amount", "NAME", "id", "body"]),
    }
    assert _read(dumpling.write(tmp_path / "csv", files), _section(form), 99, 99) == [
        (Decimal(100), "it's", 1, b"\\"),
        (Decimal(200), None, 2, None),
    ]
    sql = dumpling.sql(rows, escapes=escapes, columns="(`amount`,`name`,`id`,`body`) ")
    address = dumpling.write(tmp_path / "sql", {"d.t.000000000.sql": sql})
    assert _read(address, _section(form), 99, 99)[0] == (Decimal(100), "it's", 1, b"\\")
