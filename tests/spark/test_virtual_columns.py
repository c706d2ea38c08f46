"""Virtual generated columns: no message carries their values, so a table does not show NULL in their place."""

from __future__ import annotations

from dataclasses import replace

import pytest

from applier.changefeed.table import TableName, TableVersion
from applier.ddl.parser import parse
from applier.ddl.schema_tracker import Tables
from tests.few import few
from tests.spark.ddl_applier import Applier, Start

CREATE = "CREATE TABLE t (id INT PRIMARY KEY, a INT, v INT AS (a + 1) VIRTUAL, s INT AS (a + 2) STORED)"


class Upstream:
    """Sends DDL as a protocol does: with what the table is after it, which does not name generated columns, or not."""

    def __init__(self, applier: Applier, *, describes: bool) -> None:
        self.applier = applier
        self.describes = describes
        self.tables = Tables()

    def ddl(self, sql: str) -> None:
        """One statement on the table `t`."""
        for action in parse(sql, self.applier.database):
            self.tables.apply(action, self.applier.clock + 1)
        after = self.tables.get(TableName(self.applier.database, "t"))
        self.applier.ddl(sql, after=_undeclared(after) if after and self.describes else None)

    def columns(self) -> list[str]:
        """Columns of the Iceberg table."""
        writer = self.applier.targets.writer(TableName(self.applier.database, "t"))
        assert writer is not None
        return [field.name for field in writer.table.schema.fields]


def _undeclared(version: TableVersion) -> TableVersion:
    return replace(version, columns=tuple(replace(column, generated=None) for column in version.columns))


@pytest.mark.parametrize("describes", few([True, False]))
def test_virtual_columns_are_left_out_whatever_is_done_to_them(start: Start, *, describes: bool) -> None:
    """Statements on them change nothing, those beside them do, and a restart between two forgets nothing."""
    applier = start()
    upstream = Upstream(applier, describes=describes)
    upstream.ddl(CREATE)
    assert upstream.columns() == ["id", "a", "s"]
    applier.insert("t", (1, 10, 12))
    for sql, columns in (
        ("ALTER TABLE t ADD COLUMN w INT AS (a * 2) VIRTUAL AFTER id", ["id", "a", "s"]),
        ("ALTER TABLE t RENAME COLUMN v TO V2, ADD COLUMN b INT DEFAULT 7 AFTER V2", ["id", "a", "b", "s"]),
        ("ALTER TABLE t MODIFY COLUMN v2 BIGINT AS (a + 1) VIRTUAL FIRST", ["id", "a", "b", "s"]),
        ("ALTER TABLE t DROP COLUMN w", ["id", "a", "b", "s"]),
        ("ALTER TABLE t ADD COLUMN w INT", ["id", "a", "b", "s", "w"]),
    ):
        applier.checkpoint()
        applier.restart()
        upstream.ddl(sql)
        assert upstream.columns() == columns, sql

    assert applier.rows("t") == [(1, 10, 7, 12, None)]
    assert [column.generated for column in applier.versions[TableName(applier.database, "t")].columns] == [
        *("virtual", None, None, None, "stored", None),
    ]


def test_a_table_made_with_a_virtual_column_keeps_it(start: Start) -> None:
    """What an earlier configuration or version made is followed, never dropped: new ones are left out."""
    applier = start(virtual_columns="null")
    upstream = Upstream(applier, describes=True)
    upstream.ddl(CREATE)
    assert upstream.columns() == ["id", "a", "v", "s"]
    applier.insert("t", (1, 10, None, 12))
    applier.checkpoint()

    applier.settings = applier.settings.model_copy(update={"virtual_columns": "omit"})
    applier.restart()
    upstream.ddl("ALTER TABLE t RENAME COLUMN v TO x, ADD COLUMN w INT AS (a) VIRTUAL")
    assert upstream.columns() == ["id", "a", "x", "s"]
    assert applier.rows("t") == [(1, 10, None, 12)]
    upstream.ddl("ALTER TABLE t DROP COLUMN x")
    assert upstream.columns() == ["id", "a", "s"]


def test_a_table_like_one_with_a_virtual_column_lacks_it_too(start: Start) -> None:
    """CREATE TABLE … LIKE takes over which columns are virtual."""
    applier = start()
    applier.ddl(CREATE)
    applier.ddl("CREATE TABLE u LIKE t")
    writer = applier.targets.writer(TableName(applier.database, "u"))

    assert writer is not None
    assert [field.name for field in writer.table.schema.fields] == ["id", "a", "s"]
