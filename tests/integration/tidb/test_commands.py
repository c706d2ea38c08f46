"""Commands that the documentation and the applier show work with a real Dumpling."""

from __future__ import annotations

import re
import shlex
import subprocess
from datetime import UTC, datetime
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
from tests import expected
from tests.integration.tidb import corpus
from tests.services.tidb import Tidb

DOCS = Path(__file__).parents[3] / "docs"

DATABASE = "made"

SHOP = TableName("shop", "orders")

TABLES = ("plain", "a.b", "it's", "per%cent", 'quo"te', "back`tick", "with space", "汉字", "{{.DB}}")


@pytest.fixture(scope="module")
def made(tidb: Tidb) -> dict[TableName, dict[str, Any]]:
    """What SQL shows of tables with generated columns."""
    tidb.run(
        f"CREATE DATABASE {DATABASE}",
        "INSERT IGNORE INTO mysql.tidb VALUES ('tikv_gc_safe_point', '20160102-15:04:05 -0700', '')",
    )
    for table in TABLES:
        name = f"{DATABASE}.`{table.replace('`', '``')}`"
        tidb.run(
            f'CREATE TABLE {name} (id int PRIMARY KEY, v int AS (id + 1), a varchar(99), `S"` int AS (id + 2) STORED, '
            "b blob, u bigint unsigned AS (id * 1000) STORED, d decimal(9,2) AS (id / 3) STORED, t timestamp(3) NULL, "
            "x varbinary(9) AS (CONCAT('\\\\', id)) STORED, k bit(4), j json, e enum('a','b'), f double, y year)",
            f"INSERT INTO {name} (id, a, b, t, k, j, e, f, y) "
            "VALUES (1, 'a\\'b\\n\"\\\\', x'00ff5c22', '2020-01-01', 5, '[1]', 'a', 0.1, 1999)",
            f"INSERT INTO {name} (id) VALUES (2)",
        )
    return corpus.shown(tidb, DATABASE)


@pytest.mark.parametrize(
    ("options", "section"),
    [
        ((), CsvSection()),
        (("--csv-separator", "|", "--escape-backslash=false"), CsvSection(separator="|", backslash_escapes=False)),
        (("--no-header",), CsvSection(header=False, backslash_escapes=True)),
    ],
    ids=str,
)
def test_the_command_for_generated_columns_exports_them(
    options: tuple[str, ...], section: CsvSection, made: dict[TableName, dict[str, Any]], tidb: Tidb, tmp_path: Path
) -> None:
    """Into the same folder, in place of the files of the table."""
    address = tidb.dump(tmp_path / "export", "--filetype", "csv", "--filter", f"{DATABASE}.*", *options)
    before = Export.find(address)
    form = form_of(before, section)
    for name, files in before.files.items():
        reader = PartReader(address, form, before.version(name), TypeRules())
        assert missing(before.version(name), reader.columns(files[0]), TypeRules()) == ('S"', "u", "d", "x")
        for file in files:
            Path(file.path).unlink()
        # Their own options stay: the files of an export have one form. This one needs the header.
        own = [option for option in options if option != "--no-header"]
        _run(tidb, export_of_missing(name, before.tso), address, own)
    after = Export.find(address)
    assert after.tso == before.tso
    form = form_of(after, section.model_copy(update={"header": True}))
    for name, table in made.items():
        reader = PartReader(address, form, after.version(name), TypeRules())
        assert after.files[name], name
        assert missing(after.version(name), reader.columns(after.files[name][0]), TypeRules()) == ()
        found = [row for file in after.files[name] for rows, _ in reader.read(file) for row in rows.to_pylist()]
        assert expected.bag(found) == expected.bag(expected.rows(table)), name


def test_the_commands_of_the_documentation(tidb: Tidb, tmp_path: Path) -> None:
    """Dumpling takes their options, and writes what SQL shows, also where the server has another zone."""
    tidb.run("CREATE DATABASE shop", "CREATE TABLE shop.orders (t timestamp PRIMARY KEY)")
    tidb.run("INSERT INTO shop.orders VALUES ('2020-01-01 10:00:00')", "SET GLOBAL time_zone = '+05:00'")
    try:
        _try_all(tidb, tmp_path)
    finally:
        tidb.run("SET GLOBAL time_zone = 'SYSTEM'")


def _try_all(tidb: Tidb, tmp_path: Path) -> None:
    texts = [path.read_text("utf-8") for path in DOCS.rglob("*.md")]
    commands = [line for text in texts for line in re.findall(r"^ *(tiup dumpling .*)$", text, re.MULTILINE)]
    assert commands
    for number, command in enumerate(commands):
        address = str(tmp_path / str(number))
        _run(tidb, re.sub(r"-o \S+", "-o DIR", re.sub(r"--snapshot \d+", "", command)), address, [])
        export = Export.find(address)
        reader = PartReader(address, CsvForm(), export.version(SHOP), TypeRules())
        rows = [row for file in export.files[SHOP] for rows, _ in reader.read(file) for row in rows.to_pylist()]
        assert rows == [{"t": datetime(2020, 1, 1, 10, tzinfo=UTC)}] or "--no-data" in command


def _run(tidb: Tidb, command: str, address: str, more: list[str]) -> None:
    """What a shell makes of a command, at the server of this test."""
    tiup, dumpling, *words = shlex.split(command.replace("-o DIR", f"-o {shlex.quote(address)}"))
    assert (tiup, dumpling) == ("tiup", "dumpling")
    server = ["-h", "127.0.0.1", "-P", str(tidb.port), "-u", "root", "--status-addr", ""]
    done = subprocess.run([str(tidb.dumpling), *words, *server, *more], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
