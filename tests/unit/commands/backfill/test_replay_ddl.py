"""Rows of before a DDL, as the table has its columns after it."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from applier.changefeed.event import Op
from applier.changefeed.table import TableName, TableVersion
from applier.changefeed.types import TypeRules
from applier.commands.backfill.prepare import _passed
from applier.commands.backfill.replay_ddl import DdlReplay, Passed, concerns, left_by
from applier.ddl.parser import parse
from applier.ddl.schema_tracker import Tables
from applier.ddl.spelling import Spelling
from applier.errors import RangeRefused
from applier.order.merge import DATA
from applier.pipeline.scan.task_result import Part
from applier.sink.control.rows import Decision, SchemaDecision
from tests.builders import ACCOUNT, version

BEFORE = version(("id", "bigint"), ("a", "int"), ("b", "varchar"), number=10)


def passed(*ddl: tuple[int, str]) -> list[Passed]:
    """DDL that the changefeed has applied."""
    return [Passed(commit_ts, parse(sql, "shop")) for commit_ts, sql in ddl]


def lineage(*ddl: tuple[int, str]) -> DdlReplay:
    """The lineage of the account table after some DDL."""
    live = Tables([BEFORE])
    for item in passed(*ddl):
        for action in item.actions:
            live.apply(action, item.commit_ts)
    return DdlReplay(passed(*ddl), live, TypeRules())


def part(ts: int, *, of: TableVersion = BEFORE) -> Part:
    """A row that was put and one that was deleted, with that commit ts."""
    meta: dict[str, Any] = {
        "m.first_ts": pa.array([ts, ts]),
        "m.first_op": pa.array([Op.INSERT, Op.DELETE], pa.int8()),
        "m.ts": pa.array([ts, ts]),
        "m.present": pa.array([True, False]),
    }
    data = {"id": pa.array([1, 2]), "a": pa.array([7, None], pa.int32()), "b": pa.array(["12", None])}
    return Part(of, pa.table(meta | {DATA + name: values for name, values in data.items()}))


def data(found: Part | None) -> list[dict[str, Any]]:
    """The table's own columns."""
    assert found is not None
    return [
        {name.removeprefix(DATA): value for name, value in row.items() if name.startswith(DATA)}
        for row in found.rows.to_pylist()
    ]


def test_rows_follow_every_ddl_that_they_lie_before() -> None:
    """Columns go, get other names and types, and new ones have their default; a deleted row is its key alone."""
    found = lineage(
        (20, "ALTER TABLE shop.account RENAME COLUMN a TO a2"),
        (30, "ALTER TABLE shop.account MODIFY COLUMN a2 BIGINT, ADD COLUMN c INT NOT NULL DEFAULT 5"),
        (40, "ALTER TABLE shop.account DROP COLUMN b"),
    ).forward(ACCOUNT, part(15), BEFORE)

    assert data(found)[0] == {"id": 1, "a2": 7, "c": 5}
    assert data(found)[1]["id"] == 2
    assert found is not None
    assert found.rows[DATA + "a2"].type == pa.int64()


def test_rows_at_a_ddl_lie_before_it_and_rows_above_it_do_not() -> None:
    """A row of the same commit ts was written before."""
    ddl = (20, "ALTER TABLE shop.account ADD COLUMN c INT DEFAULT 5")

    assert data(lineage(ddl).forward(ACCOUNT, part(20), BEFORE))[0]["c"] == 5
    assert "c" not in data(lineage(ddl).forward(ACCOUNT, part(21), BEFORE))[0]


@pytest.mark.parametrize("sql", ["TRUNCATE TABLE shop.account", "DROP TABLE shop.account", "DROP DATABASE shop"])
def test_rows_that_a_ddl_removed_are_gone(sql: str) -> None:
    """Also where the table was made anew afterwards."""
    found = lineage((20, sql), (30, "CREATE TABLE shop.account (id BIGINT PRIMARY KEY)"))

    assert found.forward(ACCOUNT, part(20), BEFORE) is None


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("ALTER TABLE shop.account DROP PARTITION p", "drop-partitions moves rows without a message in the feed"),
        ("RENAME TABLE shop.account TO shop.x, shop.y TO shop.account", "rename-table moves rows"),
        ("ALTER TABLE shop.account MODIFY COLUMN b JSON", "the exact result of TiDB's conversion from varchar to json"),
        ("ALTER TABLE shop.account DROP PRIMARY KEY, ADD PRIMARY KEY (id, a)", "It changes the key"),
    ],
)
def test_what_cannot_be_made_up_for_is_refused_with_its_commit_ts(sql: str, reason: str) -> None:
    """The range after it is the way out."""
    live = DdlReplay(passed((20, sql)), Tables([BEFORE]), TypeRules())

    with pytest.raises(RangeRefused, match=reason) as refused:
        live.forward(ACCOUNT, part(15), BEFORE)
    assert refused.value.what.startswith(f"Rows of table {ACCOUNT} lie before a DDL at commit ts 20 ")
    assert refused.value.hint.startswith("begin the range after it, with --from 20,")


def test_the_model_of_a_table_is_not_touched_by_its_copy() -> None:
    """CREATE TABLE … LIKE names two tables and makes one."""
    (action,) = parse("CREATE TABLE shop.copy LIKE shop.account", "shop")

    assert not concerns(action, ACCOUNT)
    assert concerns(action, TableName("shop", "copy"))


def decision(sql: str, word: Decision, kind: str = "drop-column") -> SchemaDecision:
    """What became of a DDL of the account table at commit ts 20."""
    return SchemaDecision(20, ACCOUNT, sql, kind, word)


@pytest.mark.parametrize("word", ["ignored", "skipped"])
def test_what_the_tables_did_not_take_is_not_replayed(word: Decision) -> None:
    """The column that an ignored DROP took upstream keeps its values, and a later DDL applies all the same."""
    drop, add = "ALTER TABLE shop.account DROP COLUMN b", "ALTER TABLE shop.account ADD COLUMN c INT DEFAULT 5"
    known = [decision(drop, "refused"), decision(drop, "to skip"), decision(drop, word)]
    left = left_by(known)
    ddl = _passed([*known, SchemaDecision(30, ACCOUNT, add, "add-column", "applied")], 40, Spelling([ACCOUNT]), left)
    live = Tables([version(("id", "bigint"), ("a", "int"), ("c", "int"), number=30)])

    found = DdlReplay(ddl, live, TypeRules(), left).forward(ACCOUNT, part(15), BEFORE)

    assert data(found)[0] == {"id": 1, "a": 7, "b": "12", "c": 5}


def test_what_an_ignored_truncate_left_is_replayed() -> None:
    """The rows are in the table, as configured."""
    sql = "TRUNCATE TABLE shop.account"
    left = left_by([decision(sql, "ignored", "truncate-table")])
    ddl = _passed([decision(sql, "ignored", "truncate-table")], 40, Spelling([ACCOUNT]), left)

    assert DdlReplay(ddl, Tables([BEFORE]), TypeRules(), left).forward(ACCOUNT, part(15), BEFORE) is not None


def test_a_table_that_came_back_has_taken_what_was_passed_while_it_was_parked() -> None:
    """The job that brought it back has a decision of its own."""
    sql = "TRUNCATE TABLE shop.account"
    known: list[Decision] = ["ignored", "applied"]

    assert left_by([decision(sql, word, "truncate-table") for word in known]) == frozenset()
