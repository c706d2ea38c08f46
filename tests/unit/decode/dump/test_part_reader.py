"""Files that cannot be read as they should be are refused in one sentence, with their name and without values."""

from __future__ import annotations

import shlex
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from applier.changefeed.table import TableName
from applier.changefeed.types import TypeRules
from applier.config.upstream import CsvSection
from applier.decode.dump.chosen_form import form_of
from applier.decode.dump.csv_form import CsvForm
from applier.decode.dump.export import Export
from applier.decode.dump.file_columns import export_of_missing, missing
from applier.decode.dump.part_reader import PartReader
from applier.errors import ValueRefused
from tests.unit.decode.dump import dumpling

_ROWS = [(number, f"secret {number}", b"\xff", 100) for number in range(1000)]
_CSV = dumpling.csv(_ROWS, CsvForm())
_SQL = dumpling.sql(_ROWS, escapes=True)

_GENERATED = "CREATE TABLE `t` (`id` int PRIMARY KEY, `v` int AS (`id`) VIRTUAL, `s` int AS (`id`) STORED, `z` int);"


def _read(folder: Path, name: str, data: bytes, form: CsvForm = CsvForm(), declared: str = dumpling.DECLARED) -> Any:  # noqa: B008
    address = dumpling.write(folder, {name: data}, declared=declared)
    export = Export.find(address)
    ((table, files),) = export.files.items()
    reader = PartReader(address, form, export.version(table), TypeRules())
    return [row for rows, _ in reader.read(files[0]) for row in rows.to_pylist()]


def _refusal(folder: Path, name: str, data: bytes, form: CsvForm = CsvForm()) -> str:  # noqa: B008
    with pytest.raises(ValueRefused) as refused:
        _read(folder, name, data, form)
    assert name in refused.value.what
    assert refused.value.hint
    assert "secret" not in str(refused.value)
    assert "\n" not in str(refused.value)
    return refused.value.what


def test_a_file_without_rows_has_none(tmp_path: Path) -> None:
    """It is of an empty table."""
    assert _read(tmp_path, "d.t.000000000.csv", _CSV.split(b"\n")[0] + b"\n") == []


@pytest.mark.parametrize("name", ["d.t.000000000.csv", "d.t.000000000.sql.gz", "d.t.000000000.parquet"])
def test_a_file_without_a_byte_is_refused(tmp_path: Path, name: str) -> None:
    """Dumpling writes none: what was in it was not copied."""
    assert "it is empty" in _refusal(tmp_path, name, b"")


@pytest.mark.parametrize("packed", sorted(dumpling.PACK))
def test_a_file_that_is_cut_off_is_refused(tmp_path: Path, packed: str) -> None:
    """In any compression."""
    data = dumpling.PACK[packed](_CSV)
    _refusal(tmp_path, f"d.t.000000000.csv{packed}", data[: len(data) * 2 // 3])


def test_a_cut_within_a_row_is_named(tmp_path: Path) -> None:
    """Each row has its end of line, the last one as well."""
    assert "it is not whole" in _refusal(tmp_path, "d.t.000000000.csv", _CSV[:-1])
    assert "its header has no end" in _refusal(tmp_path, "d.t.000000000.csv", _CSV[:20])


def test_sql_that_is_cut_off_between_rows_is_refused(tmp_path: Path) -> None:
    """Its last statement has no end."""
    at = _SQL.rindex(b",\n(") + 2
    assert "it is not whole" in _refusal(tmp_path, "d.t.000000000.sql", _SQL[:at])


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (b'1,"secret",\\N', "Expected 4 columns"),
        (b'1,"secret",\\N,1,1', "Expected 4 columns"),
        (b'1,"secret\xff",\\N,1', "column name holds bytes that are no UTF-8"),
        (b'99999999999999999999,"secret",\\N,1', "d.t.id"),
        (b'secret,"a",\\N,1', "d.t.id"),
        (b'1,"secret",\\N,12345678901234', "d.t.amount"),
        (b'1,"sec\\ret" "",\\N,1', "a value goes on behind its delimiter"),
    ],
)
def test_a_row_that_does_not_fit_is_refused_wherever_it_is(tmp_path: Path, row: bytes, said: str) -> None:
    """A thousand rows that fit come before it."""
    assert said in _refusal(tmp_path, "d.t.000000000.csv", _CSV + row + b"\r\n")


def test_bytes_that_read_in_two_ways_are_refused_when_they_come(tmp_path: Path) -> None:
    """The samples had none."""
    data = _CSV.split(b"\n")[0] + b'\n1,"secret","ffff",1\r\n'
    assert "binary is not set" in _refusal(tmp_path, "d.t.000000000.csv", data, CsvForm(binary=None))


def test_a_file_with_every_byte_is_read(tmp_path: Path) -> None:
    """No byte is left that could stand for a separator or a delimiter of several characters."""
    body = bytes(range(256)) + b"g0z|+|g1z''"
    for form in (CsvForm(), CsvForm(b"|+|", b"''"), CsvForm(b"\xc2\xa7", escapes=False)):
        data = dumpling.csv([(1, "g0z\\", body, 100), (2, None, None, None)], form)
        rows = [list(row.values()) for row in _read(tmp_path, "d.t.000000000.csv", data, form)]
        assert rows == [[1, "g0z\\", body, Decimal(100)], [2, None, None, None]]


@pytest.mark.parametrize("binary", ["hex", "base64"])
def test_bytes_in_another_form_are_refused(tmp_path: Path, binary: Any) -> None:
    """They cannot be decoded."""
    assert f"not written in {binary}" in _refusal(tmp_path, "d.t.000000000.csv", _CSV, CsvForm(binary=binary))


def test_a_header_of_another_table_is_refused(tmp_path: Path) -> None:
    """A column is missing, or one too many."""
    assert "lacks column id" in _refusal(tmp_path, "d.t.000000000.csv", _CSV.replace(b'"id"', b'"no"', 1))
    assert "has other columns" in _refusal(tmp_path, "d.t.000000000.csv", _CSV.replace(b'"id"', b'"id","no"', 1))


def test_a_file_that_goes_away_is_refused(tmp_path: Path) -> None:
    """It is there when the export is listed."""
    address = dumpling.write(tmp_path, {"d.t.000000000.csv": _CSV})
    export = Export.find(address)
    ((table, files),) = export.files.items()
    (tmp_path / "d.t.000000000.csv").unlink()
    with pytest.raises(ValueRefused, match="d.t.000000000.csv of the export cannot be read: No such file"):
        list(PartReader(address, CsvForm(), export.version(table), TypeRules()).read(files[0]))


def test_generated_columns_are_read_where_a_file_holds_them(tmp_path: Path) -> None:
    """Virtual ones are no columns of the Iceberg table."""
    data = b'"id","v","s","z"\r\n1,1,1,5\r\n'
    assert _read(tmp_path, "d.t.000000000.csv", data, declared=_GENERATED) == [{"id": 1, "s": 1, "z": 5}]
    data = b'"id","z"\r\n1,5\r\n'
    assert _read(tmp_path, "d.t.000000000.csv", data, declared=_GENERATED) == [{"id": 1, "z": 5}]


def test_stored_columns_that_a_file_leaves_out_are_named(tmp_path: Path) -> None:
    """With the command that exports them."""
    address = dumpling.write(tmp_path, {"d.t.000000000.csv": b'"id","z"\r\n'}, declared=_GENERATED)
    export = Export.find(address)
    ((table, files),) = export.files.items()
    reader = PartReader(address, CsvForm(), export.version(table), TypeRules())
    assert missing(export.version(table), reader.columns(files[0]), TypeRules()) == ("s",)
    command = export_of_missing(table, export.tso)
    assert "--sql 'SELECT * FROM `d`.`t`'" in command
    assert "--output-filename-template 'd.t.{{.Index}}'" in command


def test_the_command_for_such_a_column_names_any_table() -> None:
    """As a shell, SQL, and the template of Dumpling need it; the export finds the file."""
    command = export_of_missing(TableName("d.b", "it's `100%ab` {{x"), 7)
    words = shlex.split(command)
    assert words[words.index("--sql") + 1] == "SELECT * FROM `d.b`.`it's ``100%ab`` {{x`"
    template = words[words.index("--output-filename-template") + 1]
    assert template == "d%2Eb.it's `100%25ab` %7B%7Bx.{{.Index}}"
    assert "--params time_zone=+00:00" in shlex.join(words)


@pytest.mark.parametrize("escapes", [True, False])
def test_a_header_may_hold_delimiters(tmp_path: Path, escapes: bool) -> None:
    """In the name of a column, written as in text."""
    declared = 'CREATE TABLE t (id int PRIMARY KEY, `a"b` varchar(9), `c\\d` int);'
    form = CsvForm(escapes=escapes)
    data = dumpling.csv([(1, "x\\", 2), (2, 'y"', 3)], form, ("id", 'a"b', "c\\d"))
    address = dumpling.write(tmp_path, {"d.t.000000000.csv": data}, declared=declared)
    export = Export.find(address)
    ((table, files),) = export.files.items()
    found = form_of(export, CsvSection(backslash_escapes=escapes))
    rows = [
        row
        for rows, _ in PartReader(address, found, export.version(table), TypeRules()).read(files[0])
        for row in rows.to_pylist()
    ]
    assert rows == [{"id": 1, 'a"b': "x\\", "c\\d": 2}, {"id": 2, 'a"b': 'y"', "c\\d": 3}]
