"""How an export is written is found out, taken from the options, or asked for."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from applier.changefeed.types import TypeRules
from applier.config.dump_form import CsvSection
from applier.ddl.schema_files import read_schemas
from applier.decode.dump.chosen_form import form_of
from applier.decode.dump.csv_form import CsvForm
from applier.decode.dump.export import Export
from applier.decode.dump.typed_rows import typed
from applier.errors import ConfigError
from tests.unit.decode.dump import dumpling

_PLAIN = [(1, "abc", None, 100), (2, "def", b"\xff", None)]


def _form(folder: Path, data: bytes, section: CsvSection = CsvSection(), kind: str = "csv") -> CsvForm:  # noqa: B008
    address = dumpling.write(folder, {f"d.t.000000000.{kind}": data})
    return form_of(Export.find(address), section)


def _problem(folder: Path, data: bytes, section: CsvSection = CsvSection(), kind: str = "csv") -> str:  # noqa: B008
    with pytest.raises(ConfigError) as refused:
        _form(folder, data, section, kind)
    return str(refused.value)


@pytest.mark.parametrize(
    "form",
    [
        CsvForm(),
        CsvForm(b"\t", b"'", b"NULL", has_header=False),
        CsvForm(b"|+|", b"'", b"", escapes=False),
        CsvForm(b";", b"", b"NULL"),
    ],
)
def test_files_show_their_form(tmp_path: Path, form: CsvForm) -> None:
    """Separators, delimiters, NULL, header and escapes are those with which all rows fit."""
    first = form.delimiter or form.separator[:1]
    text = f"a{first.decode()[:1]}b"
    rows = [(1, text, b"\xff", 100), (2, None, None, None), (3, "c\\d", None, None)]
    found = _form(tmp_path, dumpling.csv(rows, form))
    assert found == form if form.delimiter else found.separator == form.separator


def test_what_no_file_shows_stays_unknown(tmp_path: Path) -> None:
    """Text without a backslash shows nothing of escapes, and a column without bytes nothing of their form."""
    found = _form(tmp_path, dumpling.csv([(1, "abc", None, None)], CsvForm()))
    assert (found.escapes, found.binary) == (None, None)
    assert found.null == b"\\N"


def test_a_backslash_that_reads_in_two_ways_escapes(tmp_path: Path) -> None:
    """That is Dumpling's default; the option says otherwise."""
    data = dumpling.csv([(1, "new\nline", None, None)], CsvForm())
    assert _form(tmp_path, data).escapes is True
    assert _form(tmp_path, data, CsvSection(backslash_escapes=False)).escapes is False


def test_so_it_is_in_sql(tmp_path: Path) -> None:
    """An escaped quote or a bare double quote shows it."""
    data = dumpling.sql([(1, "new\nline", None, None)], escapes=True)
    assert _form(tmp_path, data, kind="sql").escapes is True
    clear = dumpling.sql([(1, "it's\nnew", None, None)], escapes=True)
    assert _form(tmp_path, clear, kind="sql").escapes is True
    doubled = dumpling.sql([(1, 'it\'s "new"', None, None)], escapes=False)
    assert _form(tmp_path, doubled, kind="sql").escapes is False


@pytest.mark.parametrize("binary", ["hex", "base64"])
def test_bytes_that_read_in_two_ways_are_asked_for(tmp_path: Path, binary: str) -> None:
    """Many values hardly all look like hex or base64 by chance; a few count as bytes as they are."""
    values = [(key, 'a"b', b"\xff\xfe\xfd\xfc", None) for key in range(8)]
    few, data = (dumpling.csv(values[:size], CsvForm(binary=binary)) for size in (3, 8))  # type: ignore[arg-type]
    assert _form(tmp_path, few).binary in ("raw", None)
    assert 'Set binary in [upstream.csv] to "raw", or to "hex" or "base64"' in _problem(tmp_path, data)
    assert _form(tmp_path, data, CsvSection(binary=binary)).binary == binary  # type: ignore[arg-type]


def test_an_option_that_does_not_fit_is_named_with_what_the_file_looks_like(tmp_path: Path) -> None:
    """The message holds no value."""
    data = dumpling.csv([(1, "secret", None, 100)], CsvForm())
    problem = _problem(tmp_path, data, CsvSection(separator=";"))
    assert "File d.t.000000000.csv" in problem
    assert 'separator = ";"' in problem
    assert 'it looks like separator = ","' in problem
    assert "secret" not in problem


@pytest.mark.parametrize(
    "data",
    [
        b'1,"secret"\r\n2,"secret"\r\n',
        b'"id","name","body","amount"\r\nsecret,"a",\\N,1\r\n2,"a",other,1\r\n',
        b'"id","name","other","amount"\r\n1,"secret",\\N,1\r\n',
        b'1,"secret",\\N,1#2,"secret",\\N,1#',
    ],
    ids=["too few columns", "no numbers", "another header", "another end of lines"],
)
def test_a_file_without_a_form_is_refused(tmp_path: Path, data: bytes) -> None:
    """The message names the file, and holds no value."""
    problem = _problem(tmp_path, data)
    assert "d.t.000000000.csv" in problem or "do not have one form" in problem
    assert "secret" not in problem
    assert "[upstream.csv]" in problem


def test_text_without_delimiters_and_escapes_is_refused(tmp_path: Path) -> None:
    """Nothing shows where such text ends."""
    form = CsvForm(delimiter=b"", escapes=False)
    problem = _problem(tmp_path, dumpling.csv(_PLAIN, form), CsvSection(delimiter="", backslash_escapes=False))
    assert "have no delimiter" in problem


def test_an_empty_file_shows_nothing_and_is_read(tmp_path: Path) -> None:
    """There is nothing to be read wrongly."""
    assert _form(tmp_path, b"").escapes is None


def test_a_sample_may_end_within_a_row(tmp_path: Path) -> None:
    """The row that is cut off is left out."""
    rows = [(number, 'say "hi"\n' * 40, b"\xff,\r\n", 5) for number in range(1000)]
    for escapes in (True, False):
        assert _form(tmp_path, dumpling.csv(rows, CsvForm(escapes=escapes))).escapes is escapes


@pytest.mark.parametrize("name", ["d.t.000000000.csv.gz", "d.t.000000000.sql.zst"])
def test_a_file_that_cannot_be_unpacked_is_named(tmp_path: Path, name: str) -> None:
    """In a sentence with a way out."""
    export = Export.find(dumpling.write(tmp_path, {name: b"no such thing"}))
    with pytest.raises(ConfigError, match=f"File {name} of export .* cannot be read: .*Copy it again"):
        form_of(export, CsvSection())


def test_timestamps_are_read_in_the_zone_that_is_given(tmp_path: Path) -> None:
    """No file shows it; without it, UTC."""
    folder = dumpling.write(tmp_path, {"d.t.000000000.csv": dumpling.csv([(1, "a", None, None)], CsvForm())})
    export = Export.find(folder)
    assert [form_of(export, section).zone for section in (CsvSection(), CsvSection(timezone="Asia/Shanghai"))] == [
        "UTC",
        "Asia/Shanghai",
    ]
    text = "CREATE TABLE t (id int PRIMARY KEY, at timestamp)"
    ((_, version),) = read_schemas({"d.t-schema.sql": text}).items()
    rows = pa.table({"id": pa.array([b"1"]), "at": pa.array([b"2024-01-01 08:00:00"])})
    found, _ = typed(rows, version, TypeRules(), "raw", "Asia/Shanghai")
    assert found["at"].to_pylist() == [datetime(2024, 1, 1, tzinfo=UTC)]
