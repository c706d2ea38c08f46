"""Tables that were dropped or truncated and come back with their rows."""

from __future__ import annotations

import pytest

from applier.changefeed.completeness import LIVE, Why, incomplete
from applier.changefeed.table import TableName
from applier.errors import SchemaChangeRefused
from applier.pipeline.schema_changes import apply_to_rows
from applier.pipeline.tables.ddl_stamp import DROPPED_AT
from applier.sink.iceberg.catalog import Catalog
from tests.few import few
from tests.spark.ddl_applier import Crash, Start, partitioned

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("statement", ["FLASHBACK TABLE p", "RECOVER TABLE p", "FLASHBACK TABLE p TO q"])
@pytest.mark.parametrize("restart", few([True, False]))
def test_a_dropped_table_comes_back(start: Start, statement: str, restart: bool) -> None:
    """With the rows that it had, under its name or another, and goes on from there."""
    applier = start()
    partitioned(applier)
    applier.ddl("DROP TABLE p")
    applier.checkpoint()
    if restart:
        applier.restart()

    applier.ddl(statement)

    name = statement.rsplit(maxsplit=1)[-1]
    table = applier.lake.load((applier.database, name))
    assert table is not None
    assert table.setting(DROPPED_AT) is None
    applier.insert(name, (1, "new"))
    assert applier.rows(name) == [(1, "new"), (100, "c"), (199, "d"), (99, "b")]
    applier.checkpoint()
    applier.restart()
    assert TableName(applier.database, name) in applier.state.tables


def test_the_newest_dropped_table_of_a_name_comes_back(start: Start) -> None:
    """A table that took the name meanwhile stays what it is."""
    applier = start()
    for number in (1, 2, 3):
        applier.ddl("CREATE TABLE d (id INT PRIMARY KEY)")
        applier.insert("d", (number,))
        if number < 3:
            applier.ddl("DROP TABLE d")
            applier.checkpoint()
    first, second = sorted(applier.targets.kept)
    assert {at[-1].rpartition("_")[0] for at in (first, second)} == {"d_dropped"}

    applier.ddl("FLASHBACK TABLE d TO back")

    assert applier.rows("back") == [(2,)]
    assert applier.rows("d") == [(3,)]
    assert [*applier.targets.kept] == [first]


def test_a_dropped_table_with_the_name_of_a_kept_one_is_another(start: Start) -> None:
    """Upstream has tables of such names too: they come back by their own names alone, also those that end in digits."""
    applier = start()
    names = ("d", "d_dropped_old", "d_dropped_2024")
    for number, name in enumerate(names):
        applier.ddl(f"CREATE TABLE {name} (id INT PRIMARY KEY)")
        applier.insert(name, (number,))
    for name in names:
        applier.ddl(f"DROP TABLE {name}")
        applier.checkpoint()

    for number, name in enumerate(names):
        applier.ddl(f"FLASHBACK TABLE {name} TO back_{number}")

        assert applier.rows(f"back_{number}") == [(number,)]


def test_what_a_dropped_database_and_a_rename_out_leave_is_known(start: Start) -> None:
    """As long as no other table is made of it, and by its own mark after a restart."""
    applier = start(include=["*.*", "!*.out"])
    for name in ("e", "f"):
        applier.ddl(f"CREATE TABLE {name} (id INT PRIMARY KEY)")
    applier.ddl("RENAME TABLE e TO out")
    renamed = applier.clock
    applier.ddl(f"DROP DATABASE {applier.database}")
    kept = {(applier.database, "e"): renamed, (applier.database, "f"): applier.clock}
    assert applier.targets.kept == kept

    applier.checkpoint()
    applier.restart()

    applier.targets.restore(applier.state.names, applier.state.checkpoint)
    assert applier.targets.kept == kept
    applier.ddl("CREATE TABLE f (id INT PRIMARY KEY)")
    aside = (applier.database, f"f_dropped_{kept[applier.database, 'f']}")
    assert applier.targets.kept == {(applier.database, "e"): renamed, aside: kept[applier.database, "f"]}


def test_a_table_comes_back_after_a_crash_before_its_new_name(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mark of the drop is off, but the name is still the old one: the restart finds it all the same."""
    applier = start()
    partitioned(applier)
    applier.ddl("DROP TABLE p")
    applier.checkpoint()
    with monkeypatch.context() as patch:
        patch.setattr(Catalog, "rename", lambda *_: (_ for _ in ()).throw(Crash()))
        with pytest.raises(Crash):
            applier.ddl("FLASHBACK TABLE p TO q")

    applier.restart()
    applier.ddl("FLASHBACK TABLE p TO q", again=True)

    assert applier.rows("q") == [(1, "a"), (100, "c"), (199, "d"), (99, "b")]
    assert applier.lake.load((applier.database, "p")) is None


@pytest.mark.parametrize("crashes", few([True, False]))
def test_truncated_rows_come_back_under_another_name(
    start: Start, monkeypatch: pytest.MonkeyPatch, crashes: bool
) -> None:
    """FLASHBACK after TRUNCATE makes a second table; the first keeps its new rows."""
    applier = start()
    partitioned(applier)
    applier.ddl("TRUNCATE TABLE p")
    applier.insert("p", (5, "new"))
    told = applier.versions[TableName(applier.database, "p")].renamed(TableName(applier.database, "q"))
    applier.checkpoint()
    if crashes:
        with monkeypatch.context() as patch:
            patch.setattr(apply_to_rows, "replace_rows", lambda *_: (_ for _ in ()).throw(Crash()))
            with pytest.raises(Crash):
                applier.ddl("FLASHBACK TABLE p TO q", after=told)
        applier.restart()

    applier.ddl("FLASHBACK TABLE p TO q", again=crashes, after=told)

    assert applier.rows("q") == [(1, "a"), (100, "c"), (199, "d"), (99, "b")]
    assert applier.rows("p") == [(5, "new")]


@pytest.mark.parametrize("restart", few([True, False]))
def test_truncated_rows_come_back_where_no_message_describes_them(start: Start, restart: bool) -> None:
    """The columns are those that the table had before the TRUNCATE, and a RENAME finds the table."""
    applier = start()
    partitioned(applier)
    name = TableName(applier.database, "p")
    applier.state.completeness[name] = LIVE
    applier.ddl("TRUNCATE TABLE p")
    applier.insert("p", (5, "new"))
    applier.checkpoint()
    if restart:
        applier.restart()
    applier.ddl("FLASHBACK TABLE p TO q")
    applier.checkpoint()
    if restart:
        applier.restart()

    applier.ddl("RENAME TABLE q TO r")

    assert applier.rows("r") == [(1, "a"), (100, "c"), (199, "d"), (99, "b")]
    assert applier.rows("p") == [(5, "new")]
    assert applier.state.completeness[TableName(applier.database, "r")] == LIVE
    assert [column.name for column in applier.versions[TableName(applier.database, "r")].columns] == ["id", "v"]


def test_truncated_rows_come_back_in_the_columns_of_their_time(start: Start) -> None:
    """What the truncated table became afterwards says nothing of the rows that it had."""
    applier = start()
    partitioned(applier)
    applier.ddl("TRUNCATE TABLE p")
    applier.ddl("ALTER TABLE p ADD COLUMN w INT, DROP COLUMN v")

    applier.ddl("FLASHBACK TABLE p TO q")

    assert applier.rows("q") == [(1, "a"), (100, "c"), (199, "d"), (99, "b")]


def test_a_table_that_lacked_rows_before_its_truncate_lacks_them_when_they_come_back(start: Start) -> None:
    """The TRUNCATE made the table whole, but not the rows that it removed."""
    applier = start()
    partitioned(applier)
    applier.state.completeness[TableName(applier.database, "p")] = incomplete(Why.NO_CREATE)
    applier.ddl("TRUNCATE TABLE p")

    applier.ddl("FLASHBACK TABLE p TO q")

    assert applier.state.completeness[TableName(applier.database, "p")].is_live
    assert applier.state.completeness[TableName(applier.database, "q")] == incomplete(Why.CAME_BACK)


def test_a_table_that_was_not_kept_cannot_come_back(start: Start) -> None:
    """The refusal names the setting that keeps dropped tables."""
    applier = start(on_drop="drop")
    partitioned(applier)
    applier.ddl("DROP TABLE p")

    with pytest.raises(SchemaChangeRefused, match="brings back rows of table .* that are not here") as refusal:
        applier.ddl("FLASHBACK TABLE p")

    assert 'tables.on_drop to "keep"' in refusal.value.hint
