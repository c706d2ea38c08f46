"""How an export is written is declared, and files that do not fit are refused with the keys to set."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from applier.changefeed.types import TypeRules
from applier.config.upstream import CsvSection
from applier.ddl.schema_files import read_schemas
from applier.decode.dump.chosen_form import form_of
from applier.decode.dump.csv_form import CsvForm
from applier.decode.dump.export import Export
from applier.decode.dump.typed_rows import typed
from applier.errors import ConfigError
from tests.unit.decode.dump import dumpling


def _form(folder: Path, data: bytes, section: CsvSection = CsvSection(), kind: str = "csv") -> CsvForm:  # noqa: B008
    address = dumpling.write(folder, {f"d.t.000000000.{kind}": data})
    return form_of(Export.find(address), section)


def _problem(folder: Path, data: bytes, section: CsvSection = CsvSection(), kind: str = "csv") -> str:  # noqa: B008
    with pytest.raises(ConfigError) as refused:
        _form(folder, data, section, kind)
    return str(refused.value)


_ROWS = [(1, 'a"b\n', b"\xff", 100), (2, None, None, None)]


def test_an_export_without_options_needs_no_key(tmp_path: Path) -> None:
    """Its form is what Dumpling documents."""
    assert _form(tmp_path, dumpling.csv(_ROWS, CsvForm())) == CsvForm()
    assert _form(tmp_path, dumpling.csv([(1, "new\nline", b"\xff", None)], CsvForm())) == CsvForm()


@pytest.mark.parametrize(
    ("form", "section", "said"),
    [
        (CsvForm(b";"), CsvSection(separator=";", backslash_escapes=True), "header"),
        (CsvForm(delimiter=b"'"), CsvSection(delimiter="'", backslash_escapes=True), "delimiter"),
        (CsvForm(null=b"NULL"), CsvSection(null_value="NULL", backslash_escapes=True), "null_value"),
        (CsvForm(null=b""), CsvSection(null_value="", backslash_escapes=True), "null_value"),
        (CsvForm(has_header=False), CsvSection(header=False, backslash_escapes=True), "in line 1: its first row"),
        (CsvForm(escapes=False), CsvSection(backslash_escapes=False), "backslash_escapes"),
        (
            CsvForm(b"\t", b"", b"\\N"),
            CsvSection(separator="\t", delimiter="", null_value="\\N", backslash_escapes=True),
            "in line 1",
        ),
    ],
)
def test_other_options_are_asked_for(tmp_path: Path, form: CsvForm, section: CsvSection, said: str) -> None:
    """File, line, and what does not fit; with the keys it is read."""
    rows = [(1, "a\nb" if form.escapes else "a\n\\", b"\xff", 100), (2, None, None, None)]
    data = dumpling.csv(rows, form)
    problem = _problem(tmp_path, data)
    assert "File d.t.000000000.csv" in problem
    assert "in line" in problem
    assert said in problem
    assert "[upstream.csv]" in problem
    assert _form(tmp_path, data, section) == form


@pytest.mark.parametrize(
    ("form", "text"),
    [
        (CsvForm(escapes=False), 'say "hi"'),
        (CsvForm(escapes=False), "two\nlines"),
        (CsvForm(escapes=False), "C:\\data"),
        (CsvForm(escapes=False), "C:\\News"),
        (CsvForm(escapes=False), "\0"),
    ],
)
def test_what_no_escape_of_dumpling_is_shows_that_there_is_none(tmp_path: Path, form: CsvForm, text: str) -> None:
    """Each row is looked at: a byte that would be escaped, and a backslash before another one."""
    problem = _problem(tmp_path, dumpling.csv([(1, "a", b"\xff", 1), (2, text, b"\xff", 2)], form))
    assert "in line 3" in problem
    assert "backslash_escapes" in problem or "goes on behind its delimiter" in problem


@pytest.mark.parametrize(
    ("form", "keys"),
    [
        (CsvForm(b";"), 'separator = ";"'),
        (CsvForm(b"|", has_header=False), 'separator = "|", header = false'),
        (CsvForm(b"\t", null=b"NULL"), 'separator = "\\t", null_value = "NULL"'),
        (CsvForm(delimiter=b"'"), 'delimiter = "\'"'),
        (CsvForm(null=b""), 'null_value = ""'),
        (CsvForm(has_header=False), "header = false"),
        (CsvForm(escapes=False), "backslash_escapes = false"),
        (CsvForm(b";", has_header=False, escapes=False), 'separator = ";", header = false, backslash_escapes = false'),
    ],
)
def test_the_keys_that_fit_are_named(tmp_path: Path, form: CsvForm, keys: str) -> None:
    """Where they are evident: one more than they would be no better."""
    rows = [(1, "a\nb\\", b"\xff", 100), (2, None, None, None)]
    problem = _problem(tmp_path, dumpling.csv(rows, form))
    assert f"Set {keys} in [upstream.csv] if Dumpling had such options: with them the file fits." in problem


def test_keys_that_are_not_evident_are_not_named(tmp_path: Path) -> None:
    """Nothing fits, or two things do."""
    for data in (b"1#2#3#4\n", b'"id","name","body","amount"\r\n1,a,b,1\r\n'):
        problem = _problem(tmp_path, data)
        assert "Set in [upstream.csv] the options that Dumpling had: separator, delimiter, null_value, " in problem


def test_a_header_that_is_there_and_is_not_declared_is_named(tmp_path: Path) -> None:
    """Its names are no numbers."""
    problem = _problem(tmp_path, dumpling.csv(_ROWS, CsvForm()), CsvSection(header=False))
    assert "Set header = true in [upstream.csv]" in problem


def test_sql_without_escapes_names_its_key(tmp_path: Path) -> None:
    """It has no other one."""
    problem = _problem(tmp_path, dumpling.sql([(1, "it's", None, None)], escapes=False), kind="sql")
    assert "Set backslash_escapes = false in [upstream.csv]" in problem


def test_sql_without_escapes_may_hold_any_delimiter(tmp_path: Path) -> None:
    """The sample ends behind a row, whatever the delimiter of CSV is."""
    rows = [(number, 'one " and\n' * 300, None, None) for number in range(100)]
    for count in (1, 100):
        data = dumpling.sql(rows[:count], escapes=False)
        assert not _form(tmp_path, data, CsvSection(backslash_escapes=False), kind="sql").escapes


def test_what_is_left_out_is_the_default_whatever_is_declared(tmp_path: Path) -> None:
    """A backslash escapes also where another key is set."""
    form, section = CsvForm(b";"), CsvSection(separator=";")
    assert _form(tmp_path, dumpling.csv([(1, "a\nb", b"\xff", 1)], form), section) == form


_TEXTS = "CREATE TABLE `t` (`a` varchar(9), `b` varchar(9));"


def test_a_first_row_that_may_be_a_header_is_what_is_declared(tmp_path: Path) -> None:
    """Where all columns hold text, names may be a row."""
    data = b'"a","b"\r\n"c","d"\r\n'
    export = Export.find(dumpling.write(tmp_path, {"d.t.000000000.csv": data}, declared=_TEXTS))
    assert [form_of(export, CsvSection(header=header)).has_header for header in (True, False)] == [True, False]
    assert form_of(export, CsvSection()) == CsvForm(binary=None)


@pytest.mark.parametrize("section", [CsvSection(), CsvSection(backslash_escapes=True), CsvSection(header=False)])
def test_no_part_of_a_delimiter_separates(tmp_path: Path, section: CsvSection) -> None:
    """Text without NULL and header is read as it is, or refused."""
    data = b"".join(b'"x%d","y%d"\r\n' % (row, row) for row in range(50))
    export = Export.find(dumpling.write(tmp_path, {"d.t.000000000.csv": data}, declared=_TEXTS))
    if section.header:
        with pytest.raises(ConfigError, match="in line 1: its first row does not hold the names of the columns"):
            form_of(export, section)
    else:
        assert form_of(export, section).separator == b","


@pytest.mark.parametrize(
    ("section", "said"),
    [
        (CsvSection(separator=',"'), "share a character"),
        (CsvSection(separator=""), "separator is empty"),
        (CsvSection(separator="."), "part of a number"),
        (CsvSection(separator="a"), "holds 'a'"),
        (CsvSection(separator="\\"), "which values hold without any escape"),
        (CsvSection(null_value="0"), "is a number"),
        (CsvSection(null_value="a,b"), "null_value holds the separator"),
        (CsvSection(null_value="\\nil"), "null_value holds a backslash that may escape"),
        (CsvSection(delimiter="''", backslash_escapes=False), "ends as it begins"),
    ],
)
def test_a_form_that_reads_in_two_ways_is_refused(tmp_path: Path, section: CsvSection, said: str) -> None:
    """Before files are looked at."""
    problem = _problem(tmp_path, dumpling.csv(_ROWS, CsvForm()), section)
    assert problem.startswith("The form of CSV files in [upstream.csv] can be read in two ways: ")
    assert said in problem


def test_sql_is_read_with_escapes_unless_it_is_said(tmp_path: Path) -> None:
    """A quote or an end of a line that is not escaped shows that they are off."""
    for text in ("it's", "two\nlines", '"'):
        data = dumpling.sql([(1, text, None, None)], escapes=False)
        problem = _problem(tmp_path, data, kind="sql")
        assert "d.t.000000000.sql" in problem
        assert "backslash_escapes" in problem
        assert _form(tmp_path, data, CsvSection(backslash_escapes=False), kind="sql").escapes is False


@pytest.mark.parametrize("binary", ["hex", "base64"])
def test_bytes_that_read_in_two_ways_are_asked_for(tmp_path: Path, binary: str) -> None:
    """One value that is neither shows that all are bytes as they are."""
    data = dumpling.csv([(1, 'a"b', b"\xff\xfe\xfd\xfc", None)], CsvForm(binary=binary))  # type: ignore[arg-type]
    assert 'Set binary in [upstream.csv] to "raw", or to "hex" or "base64"' in _problem(tmp_path, data)
    assert _form(tmp_path, data, CsvSection(binary=binary)).binary == binary  # type: ignore[arg-type]


def test_an_option_that_does_not_fit_is_named_with_its_line(tmp_path: Path) -> None:
    """The message holds no value."""
    data = dumpling.csv([(1, "secret", b"\xff", 100), (2, "secret", b"\xff", 100)], CsvForm())
    for section in (CsvSection(separator=";"), CsvSection(delimiter="'"), CsvSection(header=False)):
        problem = _problem(tmp_path, data, section)
        assert "File d.t.000000000.csv" in problem
        assert "does not fit its form in line 1: " in problem
        assert "secret" not in problem
    assert "in line 3: Expected 4 columns, got 3" in _problem(tmp_path, data[:-6] + b"\r\n")


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
    assert "d.t.000000000.csv" in problem
    assert "secret" not in problem
    assert "[upstream.csv]" in problem


def test_text_without_delimiters_needs_escapes_and_null(tmp_path: Path) -> None:
    """Nothing else shows where such text ends, and what is NULL."""
    data = dumpling.csv(_ROWS, CsvForm(delimiter=b""))
    problem = _problem(tmp_path, data, CsvSection(delimiter=""))
    assert "nothing shows what stands for NULL, and null_value (--csv-null-value) is not set" in problem
    problem = _problem(tmp_path, data, CsvSection(delimiter="", null_value="\\N", backslash_escapes=False))
    assert "nothing shows where a text ends" in problem
    assert _form(tmp_path, data, CsvSection(delimiter="", null_value="\\N")).delimiter == b""


def test_text_that_may_be_null_is_refused(tmp_path: Path) -> None:
    """Without a delimiter, only an escape tells them apart."""
    data = dumpling.csv([(1, "a", b"\xff", 1), (2, "NULL", b"\xff", 2)], CsvForm(b"\t", b"", b"NULL"))
    section = CsvSection(separator="\t", delimiter="", null_value="NULL", backslash_escapes=True)
    problem = _problem(tmp_path, data, section)
    assert "in line 3: text that equals null_value cannot be told from NULL without a delimiter" in problem


def test_a_delimiter_that_is_declared_empty_and_is_there_is_refused(tmp_path: Path) -> None:
    """It would stay in the values."""
    data = dumpling.csv([(1, "a", b"\xff", 1)], CsvForm(has_header=False))
    section = CsvSection(delimiter="", null_value="\\N", header=False, backslash_escapes=True)
    assert "stands within quotes, and the delimiter is empty" in _problem(tmp_path, data, section)


def test_a_sample_may_end_within_a_row(tmp_path: Path) -> None:
    """The row that is cut off is left out."""
    rows = [(number, 'say "hi"\n' * 40, b"\xff,\r\n", 5) for number in range(1000)]
    for escapes in (True, False):
        data = dumpling.csv(rows, CsvForm(escapes=escapes))
        assert _form(tmp_path, data, CsvSection(backslash_escapes=escapes)).escapes is escapes


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
