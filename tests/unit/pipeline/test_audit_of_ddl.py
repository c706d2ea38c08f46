"""What the audit of DDL says: which parts of a statement are done, and how a table began."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from applier.changefeed.table import TableName
from applier.pipeline.ddl_progress import DdlProgress
from applier.pipeline.tables.completeness import begun
from applier.sink.control.rows import Decision, SchemaDecision

A, B, C = (TableName("shop", table) for table in "abc")


def _row(ts: int, table: TableName, sql: str, kind: str = "rename-table", decision: Decision = "applied") -> Any:
    return SchemaDecision(ts, table, sql, kind, decision)


def test_a_name_that_a_statement_moves_twice_stands_for_two_parts() -> None:
    """Else the second part would pass for done once the first is, and its table would keep its name."""
    sql = "RENAME TABLE a TO c, b TO a, a TO d"
    parts = [_row(7, A, sql), _row(7, B, sql), _row(7, A, sql)]
    progress = DdlProgress()

    progress.restore((), parts[:2])
    assert progress.done(parts) == [True, True, False]
    progress.note(parts[2:])
    assert progress.done(parts) == [True, True, True]


def test_a_table_is_followed_through_a_statement_once() -> None:
    """Its parts have a row each in the audit, and one that was refused first has one more."""
    sql = "RENAME TABLE a TO c, b TO a"
    rows = [
        _row(1, A, "CREATE TABLE a (id INT)", "create-table"),
        _row(2, B, "CREATE TABLE b (id INT)", "create-table"),
        _row(7, A, sql, decision="refused"),
        _row(7, A, sql),
        _row(7, B, sql),
    ]
    state: Any = SimpleNamespace(control=SimpleNamespace(decisions=lambda: rows))

    found = begun(state)

    assert {name: item.position.name for name, item in found.items()} == {C: A, A: B}
