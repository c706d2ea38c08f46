"""Exports of a real Dumpling, in each combination of its options, hold what SQL shows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cache, partial
from typing import Any

import pytest
from _pytest.mark.structures import ParameterSet

from applier.changefeed.table import TableName
from applier.changefeed.types import TypeRules
from applier.config.upstream import CsvSection
from applier.decode.dump.blocks import parts
from applier.decode.dump.chosen_form import form_of
from applier.decode.dump.export import Export
from applier.decode.dump.part_reader import PartReader
from applier.errors import ConfigError
from tests import expected
from tests.integration.tidb import corpus
from tests.services.tidb import Tidb

DATABASE = "kinds"

Shown = dict[TableName, dict[str, Any]]

_CSV = ("--filetype", "csv")

_escaped = partial(CsvSection, backslash_escapes=True)

_HEX = ("--csv-output-dialect", "snowflake")

OPTIONS: dict[str, tuple[tuple[str, ...], CsvSection]] = {
    "csv": (_CSV, CsvSection()),
    "no-header": ((*_CSV, "--no-header"), _escaped(header=False)),
    "separator": ((*_CSV, "--csv-separator", "|"), _escaped(separator="|")),
    "tab": ((*_CSV, "--csv-separator", "\t", "--no-header"), _escaped(separator="\t", header=False)),
    "odd": (
        (*_CSV, "--csv-separator", "|+|", "--csv-delimiter", "'", "--csv-null-value", "NIL", "--no-header"),
        _escaped(separator="|+|", delimiter="'", null_value="NIL", header=False),
    ),
    "null": ((*_CSV, "--csv-null-value", "NULL"), _escaped(null_value="NULL")),
    "null-empty": ((*_CSV, "--csv-null-value", ""), _escaped(null_value="")),
    "bare": (
        (*_CSV, "--csv-delimiter", "", "--csv-separator", "\t"),
        _escaped(separator="\t", delimiter="", null_value="\\N", binary="raw"),
    ),
    "raw": ((*_CSV, "--escape-backslash=false"), CsvSection(backslash_escapes=False)),
    "raw-odd": (
        (
            *_CSV,
            "--escape-backslash=false",
            "--csv-separator",
            "|+|",
            "--csv-delimiter",
            "'",
            "--csv-null-value",
            "NIL",
        ),
        CsvSection(separator="|+|", delimiter="'", null_value="NIL", backslash_escapes=False),
    ),
    "raw-no-header": (
        (*_CSV, "--escape-backslash=false", "--no-header"),
        CsvSection(header=False, backslash_escapes=False),
    ),
    "unicode": ((*_CSV, "--csv-separator", "§", "--csv-delimiter", "''"), _escaped(separator="§", delimiter="''")),
    "snowflake": ((*_CSV, *_HEX), CsvSection(binary="hex")),
    "redshift": ((*_CSV, "--csv-output-dialect", "redshift"), CsvSection(binary="hex")),
    "bigquery": ((*_CSV, "--csv-output-dialect", "bigquery"), CsvSection(binary="base64")),
    "lf": ((*_CSV, "--csv-line-terminator", "\n"), CsvSection()),
    "gzip": ((*_CSV, "--compress", "gzip"), CsvSection()),
    "zstd": ((*_CSV, "--compress", "zstd", "--no-header"), _escaped(header=False)),
    "gzip-raw": ((*_CSV, "--compress", "gzip", "--escape-backslash=false"), CsvSection(backslash_escapes=False)),
    "sql": (("--filetype", "sql"), CsvSection()),
    "sql-default": ((), CsvSection()),
    "sql-raw": (("--escape-backslash=false",), CsvSection(backslash_escapes=False)),
    "sql-statements": (("-s", "2000"), CsvSection()),
    "sql-complete": (("--complete-insert", "-s", "500"), CsvSection()),
    "sql-zstd": (("--compress", "zstd"), CsvSection()),
    "sql-gzip-files": (("--compress", "gzip", "-s", "10000", "-F", "32KiB"), CsvSection()),
    "sql-gzip-raw": (("--compress", "gzip", "--escape-backslash=false"), CsvSection(backslash_escapes=False)),
    "files": ((*_CSV, "-F", "16KiB"), CsvSection()),
    "files-sql": (("-F", "16KiB", "-s", "4000"), CsvSection()),
    "files-zstd": ((*_CSV, "-F", "16KiB", "--compress", "zstd"), CsvSection()),
    "chunks": ((*_CSV, "--rows", "500"), CsvSection()),
    "chunks-sql": (("-r", "500", "-F", "16KiB"), CsvSection()),
    "views": ((*_CSV, "--no-views=false", "--no-sequences=false", "--consistency", "none"), CsvSection()),
    "no-order": ((*_CSV, "--order-by-primary-key=false", "-t", "1"), CsvSection()),
    "consistency": ((*_CSV, "--consistency", "snapshot", "--params", "time_zone=+00:00"), CsvSection()),
}
"""Options of Dumpling, and what [upstream.csv] says of them."""


FEW = ("odd", "raw-odd", "bigquery", "sql-gzip-files", "csv", "files-zstd")
"""Those that differ most: `make test` takes them all, or the first of them; `make test-recorded` takes all options."""


def some(names: Iterable[str], number: int) -> list[ParameterSet]:
    """Names of options, of which `make test` takes so many."""
    return [pytest.param(name, marks=() if name in FEW[:number] else pytest.mark.soak) for name in names]


@pytest.fixture(scope="module")
def dumped(tidb: Tidb, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Export]:
    """Exports `kinds` with the options of a name, once for all tests."""

    @cache
    def dump(name: str) -> Export:
        folder = tmp_path_factory.mktemp(name) / "export"
        return Export.find(tidb.dump(folder, "--filter", f"{DATABASE}.*", *OPTIONS[name][0]))

    return dump


@pytest.fixture(scope="module")
def kinds(tidb: Tidb) -> Shown:
    """What SQL shows of the database `kinds`."""
    corpus.create(tidb, DATABASE)
    return corpus.shown(tidb, DATABASE)


@pytest.mark.parametrize("options", some(OPTIONS, 6))
def test_an_export_holds_what_sql_shows(options: str, kinds: Shown, dumped: Callable[[str], Export]) -> None:
    """Each table has its rows, and none more: files as a whole, and in parts."""
    export = dumped(options)
    assert {name for name, _ in export.tables.items()} == set(kinds)
    assert differences(export, OPTIONS[options][1], kinds) == []


@pytest.mark.parametrize("options", some(OPTIONS, 3))
def test_a_table_alone_is_read_right_or_refused(options: str, kinds: Shown, dumped: Callable[[str], Export]) -> None:
    """What the files of a table do not show is asked for; it is never guessed wrong."""
    section = OPTIONS[options][1]
    export, problems = dumped(options), list[str]()
    for name, table in kinds.items():
        problems += unasked(replace(export, files={name: export.files[name]}), section, {name: table})
    assert problems == []


@pytest.mark.parametrize("options", some((name for name, (_, one) in OPTIONS.items() if one != CsvSection()), 3))
def test_without_settings_an_export_is_read_right_or_refused(
    options: str, kinds: Shown, dumped: Callable[[str], Export]
) -> None:
    """The same for all tables, where the settings are left out that their export needs."""
    assert unasked(dumped(options), CsvSection(), kinds) == []


def unasked(export: Export, section: CsvSection, kinds: Shown) -> list[str]:
    """What differs between an export and SQL, if it can be read without more settings."""
    try:
        return [problem for problem in differences(export, section, kinds) if "[upstream.csv]" not in problem]
    except ConfigError as error:
        return [] if "[upstream.csv]" in str(error) else [str(error)]


def differences(export: Export, section: CsvSection, kinds: Shown) -> list[str]:
    """What differs between an export and SQL, one line a table.

    In SQL without escapes, names that hold a quote are refused.
    """
    form, problems = form_of(export, section), []
    for name, table in kinds.items():
        if "'" in name.table and export.files[name][0].kind == "sql" and form.escapes is False:
            continue
        reader = PartReader(export.address, form, export.version(name), TypeRules())
        wanted = expected.bag(expected.rows(table, without=stored(table)))
        for size in (1 << 40, 3000):
            try:
                here = expected.bag(list(read(reader, export, name, size)))
            except Exception as error:  # noqa: BLE001 - all tables are looked at
                problems.append(f"{name}: {error!r}")
                break
            if here != wanted:
                extra, lost = sorted(set(here) - set(wanted)), sorted(set(wanted) - set(here))
                problems.append(f"{name}: {len(here)} rows for {len(wanted)}, has {extra[:3]} wants {lost[:3]}")
                break
    return problems


def stored(table: dict[str, Any]) -> frozenset[str]:
    """Stored generated columns, which Dumpling leaves out."""
    return frozenset(column["name"] for column in table["columns"] if column["generated"] == "stored")


def read(reader: PartReader, export: Export, name: TableName, size: int) -> Iterator[dict[str, Any]]:
    """The rows of a table, from files in parts of a size."""
    for file in export.files[name]:
        for part in parts(file, reader.form, size):
            for rows, _ in reader.read(part):
                yield from (
                    {key: tuple(value) if isinstance(value, list) else value for key, value in row.items()}
                    for row in rows.to_pylist()
                )
