"""Tables of a real TiDB, read by SQL as of one moment, are what an export of that moment holds."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pytest

from applier.changefeed.table import TableName
from applier.changefeed.types import TypeRules
from applier.config.login import Login
from applier.decode.dump.csv_form import CsvForm
from applier.decode.dump.export import Export
from applier.decode.dump.part_reader import PartReader
from applier.decode.tidb.range_reader import RangeReader
from applier.decode.tidb.session import MomentGone, session
from applier.decode.tidb.table_ranges import order_of
from applier.decode.tidb.tidb_export import TidbExport, sample_of
from applier.errors import ConfigError, OutsideRefused, TransientError, Unreachable
from tests import expected
from tests.integration.tidb import corpus, ranged
from tests.services.tidb import Tidb

KINDS, KEYS = "kinds_by_sql", "keys_by_sql"

LOST = (TableName(KEYS, "days"), TableName(KEYS, "members"))
"""Tables of which Dumpling leaves rows out, or writes them twice: it compares keys with zero dates in a mode in which
no row fits, and ENUM as text, which is not how the regions lie."""

RULES = TypeRules(zero_dates_of={f"{KEYS}.days.d": "string"})


@pytest.fixture(scope="module")
def found(tidb: Tidb) -> TidbExport:
    """Two databases: each type at its extremes, and each kind of key in several regions."""
    corpus.create(tidb, KINDS)
    ranged.create(tidb, KEYS)
    return _found(tidb)


def _found(tidb: Tidb, tso: int | None = None, user: str = "root") -> TidbExport:
    return TidbExport.find(ranged.login(tidb, user), tso, lambda name: name.database in (KINDS, KEYS))


def reader(found: TidbExport, name: TableName) -> RangeReader:
    """What reads a table."""
    version = found.version(name)
    return RangeReader(found.login, found.tso, version, RULES, order_of(version, found.texts[name]))


def rows(found: TidbExport, name: TableName, without: frozenset[str] = frozenset()) -> list[str]:
    """All rows of a table."""
    parts = [list(reader(found, name).read(part)) for part in found.files[name]]
    return comparable([table.drop_columns(list(without)) for part in parts for table, _ in part])


def comparable(tables: Iterable[pa.Table]) -> list[str]:
    """Rows without an order."""
    plain = [row.items() for table in tables for row in table.to_pylist()]
    return expected.bag([{key: tuple(cell) if isinstance(cell, list) else cell for key, cell in row} for row in plain])


def test_rows_by_sql_are_those_of_an_export(found: TidbExport, tidb: Tidb, tmp_path: Path) -> None:
    """Cell by cell, in each table; an export lacks stored generated columns alone."""
    options = ("--filetype", "csv", "--params", "time_zone=+00:00", "--snapshot", str(found.tso))
    address = tidb.dump(tmp_path / "export", "--filter", f"{KINDS}.*,{KEYS}.*", *options)
    export, differing = Export.find(address), list[str]()
    assert export.tso == found.tso
    assert dict(export.tables.items()) == dict(found.tables.items())
    for name, version in export.tables.items():
        if name in LOST:
            continue
        lacking = frozenset(column.name for column in version.columns if column.generated == "stored")
        files = PartReader(address, CsvForm(), version, RULES)
        wanted = [table for file in export.files[name] for table, _ in files.read(file)]
        if comparable(wanted) != rows(found, name, lacking):
            differing.append(str(name))
    assert differing == []


def test_rows_by_sql_are_what_sql_shows(found: TidbExport, tidb: Tidb) -> None:
    """With stored generated columns, and FLOAT with all its digits."""
    shown = corpus.shown(tidb, KINDS)
    assert {name for name, _ in found.tables.items() if name.database == KINDS} == set(shown)
    assert [str(name) for name, table in shown.items() if rows(found, name) != expected.bag(expected.rows(table))] == []


@pytest.mark.parametrize("name", LOST, ids=str)
def test_rows_that_dumpling_gets_wrong_are_read(name: TableName, found: TidbExport) -> None:
    """Each once."""
    shown = rows(found, name)

    assert len(shown) == len(set(shown)) == ranged.ROWS


def test_a_range_may_begin_at_a_zero_date(found: TidbExport) -> None:
    """TiDB compares with it in the mode of the session."""
    assert any("'0000-00-00'" in part.condition for part in found.files[TableName(KEYS, "days")])


@pytest.mark.usefixtures("found")
def test_a_float_has_all_its_digits(tidb: Tidb) -> None:
    """The text protocol prints six of them."""
    tidb.run(f"CREATE TABLE {KEYS}.digits (id int PRIMARY KEY, f float)")
    tidb.run(f"INSERT INTO {KEYS}.digits VALUES (1, 3.4028235e38), (2, 16777215), (3, 1234567.9), (4, 0.1)")
    now = _found(tidb)

    name = TableName(KEYS, "digits")
    tables = [table for part in now.files[name] for table, _ in reader(now, name).read(part)]

    shown = [row["f"] for table in tables for row in table.to_pylist()]
    assert shown == [
        struct.unpack("f", struct.pack("f", value))[0] for value in (3.4028235e38, 16777215, 1234567.9, 0.1)
    ]


def test_tables_are_cut_at_their_regions(found: TidbExport) -> None:
    """But for one whose key SQL compares in another way than it sorts it."""
    parts = {name.table: len(found.files[name]) for name, _ in found.tables.items() if name.database == KEYS}

    assert parts == {
        "numbers": 4,
        "wide": 3,
        "pairs": 5,
        "foreigners": 4,
        "padded": 3,
        "days": 4,
        "members": 1,
        "keyless": 4,
        "loose": 3,
        "split": 9,
        "nothing": 1,
    }


def test_a_sample_is_sorted_whatever_order_tidb_takes_it_for(found: TidbExport) -> None:
    """Between the sort and the sample there is a LIMIT, which passes no order on."""
    for table in ("wide", "split", "keyless", "pairs"):
        name = TableName(KEYS, table)
        order = order_of(found.version(name), found.texts[name])

        with session(found.login, found.tso) as asked:
            steps = [row[0].lstrip("└─ ") for row in asked.texts(f"EXPLAIN {sample_of(name, order)}")]

        kinds = [step.partition("_")[0] for step in steps]
        assert kinds.index("Sort") < kinds.index("Limit") < kinds.index("TableSample"), steps


def test_the_past_is_read(found: TidbExport, tidb: Tidb) -> None:
    """Rows and tables as of the TSO, whatever comes later."""
    name = TableName(KEYS, "numbers")
    before = rows(found, name)
    tidb.run(
        f"UPDATE {KEYS}.numbers SET v = 'later'",
        f"ALTER TABLE {KEYS}.numbers ADD COLUMN more int DEFAULT 5",
        f"CREATE TABLE {KEYS}.later (id int)",
        f"DROP TABLE {KEYS}.loose",
    )

    again = _found(tidb, found.tso)

    assert rows(again, name) == before
    assert again.held == found.held
    assert again.marks == found.marks
    assert len(rows(again, TableName(KEYS, "loose"))) == ranged.ROWS
    assert "more" in {column.name for column in _found(tidb).version(name).columns}


def test_a_load_goes_on_in_its_own_ranges(found: TidbExport, tidb: Tidb) -> None:
    """Where regions have changed since."""
    name = TableName(KEYS, "wide")
    tidb.run(f"SPLIT TABLE {KEYS}.wide BY (18446744073709510000)")
    later = _found(tidb, found.tso)
    assert len(later.files[name]) == 4

    again = later.cut_at({name: found.bounds[name]})

    assert [part.condition for part in again.files[name]] == [part.condition for part in found.files[name]]
    assert rows(again, name) == rows(later, name)


@pytest.mark.parametrize(("minutes", "kind"), [(60, ConfigError), (-60 * 24 * 365 * 20, MomentGone)])
def test_a_moment_that_is_not_there_is_refused(minutes: int, kind: type[Exception], tidb: Tidb) -> None:
    """One to come, and one that garbage collection has passed."""
    ranged.keep_past(tidb)
    tso = int(time.time() * 1000 + minutes * 60_000) << 18

    with pytest.raises(kind):
        _found(tidb, tso)


@pytest.mark.usefixtures("found")
def test_rights_are_those_of_the_user(tidb: Tidb) -> None:
    """A table that the user may not see is none; one that may be written alone cannot be read."""
    tidb.run(
        "DROP USER IF EXISTS clerk, guest",
        "CREATE USER clerk, guest",
        f"GRANT SELECT ON {KEYS}.wide TO clerk",
        f"GRANT INSERT ON {KEYS}.days TO guest",
    )

    assert [str(name) for name in _found(tidb, user="clerk").held] == [f"{KEYS}.wide"]
    with pytest.raises(OutsideRefused) as refusal:
        _found(tidb, user="guest")
    assert refusal.value.what == f"TiDB 127.0.0.1:{tidb.port} cannot be read: the user may not read a table."
    with pytest.raises(OutsideRefused, match="it refuses user or password"):
        _found(tidb, user="stranger")


@pytest.mark.parametrize(
    ("setting", "own"), [("sql_select_limit", 5), ("max_execution_time", 1), ("sql_mode", "'ANSI_QUOTES'")]
)
def test_settings_of_the_server_change_nothing(setting: str, own: object, found: TidbExport, tidb: Tidb) -> None:
    """All rows are read, and names understood, whatever holds for other sessions."""
    name = TableName(KEYS, "pairs")
    before = tidb.rows(f"SELECT @@GLOBAL.{setting}")[0][0]
    tidb.run(f"SET GLOBAL {setting} = {own}")
    try:
        again = _found(tidb, found.tso)
        assert again.texts == found.texts
        assert len(rows(again, name)) == ranged.ROWS
    finally:
        tidb.run(f"SET GLOBAL {setting} = '{before}'" if setting == "sql_mode" else f"SET GLOBAL {setting} = {before}")


@pytest.mark.usefixtures("found")
def test_a_time_that_the_server_sets_for_all_reads_is_not_read(tidb: Tidb) -> None:
    """TiDB puts it before that of the session: the rows would be those of another moment."""
    name = TableName(KEYS, "dated")
    tidb.run(f"CREATE TABLE {KEYS}.dated (id int PRIMARY KEY)", f"INSERT INTO {KEYS}.dated VALUES (1)")
    tidb.run("BEGIN", "SET GLOBAL tidb_external_ts = @@tidb_current_ts", "COMMIT")
    tidb.run(f"INSERT INTO {KEYS}.dated VALUES (2)")
    now = _found(tidb)
    tidb.run("SET GLOBAL tidb_enable_external_ts_read = ON")
    try:
        later = _found(tidb)
        assert later.tso > now.tso
        assert [len(rows(moment, name)) for moment in (now, later)] == [2, 2]
    finally:
        tidb.run("SET tidb_enable_external_ts_read = OFF", "SET GLOBAL tidb_enable_external_ts_read = OFF")


def test_a_connection_that_is_lost_is_one_to_make_again(tidb: Tidb) -> None:
    """In the midst of rows: the range can be read once more."""
    name = TableName(KEYS, "long")
    tidb.run(f"CREATE TABLE {KEYS}.long (id int PRIMARY KEY AUTO_INCREMENT, v text)")
    tidb.run(*[f"INSERT INTO {KEYS}.long (v) SELECT REPEAT('x', 9000) FROM {KEYS}.numbers"] * 2)
    now = _found(tidb)
    (part,) = now.files[name]
    rows = reader(now, name).texts(part)
    assert next(rows).num_rows
    (own,) = [row[0] for row in tidb.rows("SHOW PROCESSLIST") if row[7] and "FROM `keys_by_sql`.`long`" in row[7]]
    tidb.run(f"KILL {own}")

    with pytest.raises(TransientError, match="The connection to TiDB .* was lost"):
        list(rows)

    assert sum(table.num_rows for table in reader(now, name).texts(part)) == 2 * ranged.ROWS


def test_a_host_that_is_not_there_is_named() -> None:
    """By the reason that the system gives."""
    with pytest.raises(Unreachable, match=r"TiDB none\.invalid:4000 cannot be reached: "):
        TidbExport.find(Login("none.invalid", 4000, "root", ""), None, lambda _: True)
