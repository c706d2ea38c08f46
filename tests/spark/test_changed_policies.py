"""A DDL that the feed has passed, or that a step which failed has made, stays what it was, whatever `[ddl]` says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from applier.changefeed.completeness import Why, incomplete
from applier.changefeed.table import TableName
from applier.config.settings import Policy
from tests.few import few
from tests.spark.ddl_applier import Applier, Crash, Row, Start
from tests.spark.world import Make

pytestmark = pytest.mark.spark


@pytest.mark.soak
@pytest.mark.parametrize(("then", "now", "left"), few([("ignore", "apply", {1, 2}), ("apply", "ignore", {2})]))
def test_a_policy_that_changed_does_not_count_for_ddl_that_the_feed_has_passed(
    make: Make, then: str, now: str, left: set[int]
) -> None:
    """The job reads the TRUNCATE again, from the CREATE TABLE on."""
    world = make()
    world.settings["ddl"] = {"truncate-table": then}
    world.create("a")
    world.put("a", 1)
    world.ddl("TRUNCATE TABLE a")
    world.put("a", 2)
    world.resolve()
    world.run()
    assert world.keys("a") == left

    world.settings["ddl"] = {"truncate-table": now}
    world.spark.sql(f"DROP TABLE lake.{world.name}__shop.a PURGE")
    world.start()
    world.heal(world.table("a").way_out)
    world.run()
    assert world.keys("a") == left
    assert world.table("a").state == "in step"


def begun(start: Start, policy: Policy) -> Applier:
    """Tables behind a checkpoint, one of which may lack rows, with a policy for what comes."""
    applier = start()
    for table in ("a", "b"):
        applier.ddl(f"CREATE TABLE {table} (id INT PRIMARY KEY, v VARCHAR(9))")
        applier.insert(table, (1, table))
    applier.state.completeness[TableName(applier.database, "a")] = incomplete(Why.NO_CREATE)
    applier.checkpoint()
    configure(applier, policy)
    return applier


def configure(applier: Applier, policy: Policy) -> None:
    """Change the policy."""
    kinds = ("truncate-table", "rename-table", "drop-table")
    applier.ddl_applier = replace(applier.ddl_applier, policies=dict.fromkeys(kinds, policy))


def outcome(applier: Applier) -> tuple[dict[str, list[Row]], dict[str, Why], set[tuple[str, str]]]:
    """The rows of each table that is there, what is known of the tables, and the audit."""
    there = [name[-1] for name in applier.lake.list((applier.database,))]
    kept = [
        table
        for table in there
        if (writer := applier.targets.writer(TableName(applier.database, table))) is not None
        and writer.table.setting("applier.dropped-at") is None
    ]
    known = {name.table: item.why for name, item in applier.state.completeness.items()}
    return {table: applier.rows(table) for table in kept}, known, set(applier.decisions())


@pytest.mark.parametrize(
    ("point", "then", "now", "sql"),
    few(
        [
            ("ddl-applied", "apply", "ignore", "DROP TABLE a, b"),
            ("ddl-recorded", "ignore", "apply", "TRUNCATE TABLE a"),
            ("ddl-applied", "apply", "stop", "RENAME TABLE a TO c, b TO a"),
            ("ddl-recorded", "apply", "ignore", "RENAME TABLE a TO c, b TO a"),
        ],
        2,
    ),
)
def test_a_policy_that_changed_does_not_count_for_ddl_that_a_failed_step_made(
    start: Start, crash: Callable[[str], None], point: str, then: Policy, now: Policy, sql: str
) -> None:
    """Its repetition goes on as it began, also with the other tables of the statement; the audit says so."""
    expected = begun(start, then)
    expected.ddl(sql)
    applier = begun(start, then)
    crash(point)
    with pytest.raises(Crash):
        applier.ddl(sql)

    applier.restart()
    configure(applier, now)
    applier.ddl(sql, again=True)

    assert outcome(applier) == outcome(expected)
