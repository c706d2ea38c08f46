"""Rows that come behind a DDL of an earlier step, in a feed in offset order whose partitions lag."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, cast

import pyarrow as pa
import pytest

from applier.changefeed.checkpoint import Checkpoint, Holder, Lease
from applier.changefeed.completeness import LIVE, Completeness, Reason, Why
from applier.changefeed.message import MESSAGE_SCHEMA, by_place
from applier.changefeed.position import DdlId, FeedPosition
from applier.changefeed.table import TableName
from applier.changefeed.types import TypeRules
from applier.ddl.late_rows import Late, losing
from applier.ddl.late_rows import lates as every_late
from applier.decode.options import DecoderOptions
from applier.order.feed_order import OffsetOrder
from applier.pipeline.scan.decode_task import DecodeTask
from applier.pipeline.scan.task_versions import DdlMarks
from applier.pipeline.state import State
from applier.pipeline.tables.completeness import doubt_late
from applier.sink.control.control import SchemaDecision
from applier.sink.control.rows import Decision, IgnoredFor

X, Y, Z = (TableName("d", name) for name in "xyz")
TS = 470_606_913_410_433_024
NEVER = (1 << 63) - 1


def state_after(*statements: str, **known: Completeness) -> State:
    """What is known once the DDL are applied, at the commit ts `TS` + 10, and so on."""
    state = State(cast("Any", None), Checkpoint(Lease(1, Holder("t", "h")), 1, 0, 0))
    for number, sql in enumerate(statements, 1):
        state.ddl.note([decided(sql, TS + 10 * number)])
    state.completeness = {TableName("d", name): item for name, item in known.items()}
    return state


def decided(sql: str, ts: int, decision: Decision = "applied", why: IgnoredFor | None = None) -> SchemaDecision:
    """A row of the audit."""
    table = "" if "DATABASE" in sql else sql.split("TABLE ")[1].split(maxsplit=1)[0].removeprefix("d.")
    return SchemaDecision(ts, TableName("d", table), sql, "a-kind", decision, ignored_for=why)


def lates(state: State) -> dict[TableName, Late]:
    """What shows late rows, where the checkpoint has all the DDL."""
    applied = [DdlId(item.sql, "", item.commit_ts) for item in state.ddl.past]
    return dict(every_late(state.ddl.past, applied, [X, Y, Z]))


@pytest.mark.parametrize(
    ("statements", "is_ended", "doubted"),
    [
        (["RENAME TABLE d.x TO d.y"], True, {Y}),
        (["RENAME TABLE d.x TO d.y", "RENAME TABLE d.y TO d.z"], True, {Z}),
        (["RENAME TABLE d.x TO d.y", "RENAME TABLE d.y TO d.x"], True, {X}),
        (["RENAME TABLE d.x TO d.y", "CREATE TABLE d.x (id BIGINT PRIMARY KEY)"], True, {Y}),
        (["RENAME TABLE d.x TO d.y", "TRUNCATE TABLE d.y"], True, set()),
        (["RENAME TABLE d.x TO d.y", "DROP TABLE d.y"], True, set()),
        (["DROP TABLE d.x"], True, set()),
        (["DROP DATABASE d"], True, set()),
        (["DROP TABLE d.x", "CREATE TABLE d.x (id BIGINT PRIMARY KEY)"], True, set()),
        (["CREATE TABLE d.x (id BIGINT PRIMARY KEY)"], True, set()),
        (["DROP TABLE d.x", "RENAME TABLE d.z TO d.x"], True, set()),
        (["DROP TABLE d.x", "RECOVER TABLE d.x"], True, {X}),
        (["DROP TABLE d.x", "FLASHBACK TABLE d.x TO y"], True, {Y}),
        (["TRUNCATE TABLE d.x"], True, set()),
        (["ALTER TABLE d.x EXCHANGE PARTITION p WITH TABLE d.y"], False, {X, Y}),
        (["ALTER TABLE d.y EXCHANGE PARTITION p WITH TABLE d.x", "DROP TABLE d.y"], False, {X}),
        (["ALTER TABLE d.x DROP PARTITION p"], False, {X}),
        (["ALTER TABLE d.x DROP PARTITION p", "RENAME TABLE d.x TO d.y"], True, {Y}),
        (["ALTER TABLE d.x TRUNCATE PARTITION p", "TRUNCATE TABLE d.x"], True, set()),
    ],
)
def test_the_table_that_lacks_a_late_row_is_known_by_its_name_of_now(
    statements: Sequence[str], is_ended: bool, doubted: set[TableName]
) -> None:
    """A row of a table that has gone upstream is lacked by none; one of a name that moved is never written."""
    state = state_after(*statements)
    late = lates(state)[X]

    assert late.point(TS + 5) == TS + 10
    if is_ended:
        assert late.ended >= TS + 10
    assert set(losing(X, TS + 10, state.ddl.past)) == doubted


def test_rows_behind_the_ddl_and_ddl_that_leave_rows_make_nothing_late() -> None:
    """A commit ts that is only a millisecond shows nothing either: its row may lie behind the DDL."""
    state = state_after("TRUNCATE TABLE d.x", "ALTER TABLE d.y ADD COLUMN b INT")

    assert lates(state).keys() == {X}
    assert [lates(state)[X].point(ts) for ts in (TS + 10, TS + 11, TS)] == [TS + 10, None, None]


@pytest.mark.parametrize(
    ("decision", "why", "is_late"),
    [
        ("applied", None, True),
        ("without a table", None, True),
        ("ignored", IgnoredFor.PARKED, True),
        ("ignored", IgnoredFor.CONFIGURED, False),
        ("skipped", None, False),
        ("refused", None, False),
    ],
)
def test_a_statement_without_its_effect_ends_no_table(
    decision: Decision, why: IgnoredFor | None, is_late: bool
) -> None:
    """A TRUNCATE that the configuration ignores keeps the rows, those that come late as well."""
    state = state_after()
    state.ddl.note([decided("TRUNCATE TABLE d.x", TS + 10, decision, why)])

    assert (X in lates(state)) is is_late


def test_a_ddl_that_a_failed_step_made_is_yet_to_come() -> None:
    """Its repetition takes the rows below it for what they are; a restart remembers the DDL by the checkpoint."""
    state = state_after("TRUNCATE TABLE d.x")

    assert every_late(state.ddl.past, [], [X]) == {}


@pytest.mark.parametrize("rows", [1, 3000], ids=["one by one", "many at once"])
def test_rows_of_a_table_that_has_moved_are_left_out_and_noted(rows: int) -> None:
    """A row above the DDL is applied, and so is a late one of a table whose partitions alone have changed."""
    late = {X: Late([TS + 5], TS + 5), Y: Late([TS + 5], 0)}
    values = [_row(name, key, TS + at) for name in "xy" for key in range(rows) for at in (5, 6)]
    messages = [
        {"topic": "t", "partition": 1, "offset": offset, "key": None, "value": value}
        for offset, value in enumerate(values)
    ]
    task = DecodeTask(
        "canal-json", DecoderOptions(), TypeRules(), ("*.*",), (), NEVER, OffsetOrder(), DdlMarks(late=late)
    )
    found = task(by_place(pa.Table.from_pylist(messages, schema=MESSAGE_SCHEMA)))

    assert found.late == {X: {TS + 5}, Y: {TS + 5}}
    first = {name: part.first_ts for (name, _), parts in found.parts.items() for part in parts}
    assert first == {X: TS + 6, Y: TS + 5}
    assert found.counts["doubted"] == rows


def _row(table: str, key: int, ts: int) -> bytes:
    kinds = {"mysqlType": {"id": "bigint"}, "sqlType": {"id": -5}, "pkNames": ["id"]}
    row = {"database": "d", "table": table, "type": "INSERT", "isDdl": False, "sql": "", "old": None}
    clock = {"id": 0, "es": ts >> 18, "ts": ts >> 18, "_tidb": {"commitTs": ts}}
    return json.dumps({**row, **kinds, **clock, "data": [{"id": str(key)}]}).encode()


def test_the_new_name_of_a_table_is_incomplete_and_says_why() -> None:
    """A table that is parked is incomplete once it is back; one that was loaded since has the row."""
    loaded = FeedPosition(Y, 0, version=TS + 15, is_loaded=True)
    parked = Completeness(Reason(Why.BY_HAND), position=FeedPosition(Y, 0))
    for before, after in [
        (LIVE, Completeness(Reason(Why.LATE, str(TS + 10)))),
        (parked, Completeness(Reason(Why.BY_HAND), position=FeedPosition(Y, 0), lacked=Reason(Why.LATE, str(TS + 10)))),
        (Completeness(Reason(Why.LETTERS)), Completeness(Reason(Why.LATE, str(TS + 10)))),
        (
            Completeness(Reason(Why.CATCHING_UP), position=loaded),
            Completeness(Reason(Why.CATCHING_UP), position=loaded),
        ),
    ]:
        state = state_after("RENAME TABLE d.x TO d.y", y=before)
        doubt_late(state, {X: {TS + 10}})
        assert state.completeness == {Y: after}
    state = state_after("RENAME TABLE d.x TO d.y", y=LIVE)
    state.loaded = {Y: TS + 10}
    doubt_late(state, {X: {TS + 10}})
    assert state.completeness == {Y: LIVE}


def test_a_table_that_is_brought_back_says_so_before_all_else() -> None:
    """By its earliest DDL the changefeed finds the other tables that may lack such rows."""
    origin = FeedPosition(Y, 0)
    late = Completeness(Reason(Why.LATE, str(TS + 10)), origin=origin)
    for before, point in [
        (Completeness(LIVE.reason, origin=origin), TS + 10),
        (Completeness(Reason(Why.UNRECORDED), origin=origin), TS + 10),
        (Completeness(Reason(Why.LATE, str(TS + 20)), origin=origin), TS + 10),
        (late, TS + 20),
    ]:
        state = state_after("ALTER TABLE d.y DROP PARTITION p", "ALTER TABLE d.y DROP PARTITION q", y=before)
        doubt_late(state, {Y: {point}})
        assert state.completeness == {Y: late}
