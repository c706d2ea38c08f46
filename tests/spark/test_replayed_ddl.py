"""What is replayed meets DDL as the changefeed took them: those that were ignored, and those that rows follow late."""

from __future__ import annotations

import pytest

from tests.spark.feeds import read
from tests.spark.world import Make

pytestmark = pytest.mark.spark


def test_a_repair_leaves_out_what_was_ignored_and_skipped(make: Make) -> None:
    """Rows that a TRUNCATE and a DROP COLUMN took upstream stay, whatever the configuration says now."""
    feed = make()
    feed.settings["ddl"] = {"truncate-table": "ignore", "drop-column": "ignore"}
    feed.create("a")
    feed.ddl("CREATE TABLE b (id BIGINT PRIMARY KEY, v VARCHAR(9), c VARCHAR(9))", "b")
    feed.put("a", 1)
    feed.put("b", 1, c="kept")
    feed.ddl("TRUNCATE TABLE a")
    feed.ddl("ALTER TABLE b DROP COLUMN c", "b")
    feed.ddl("ALTER TABLE b ADD COLUMN w INT DEFAULT 7", "b")
    feed.put("a", 2)
    feed.put("b", 2, w="8")
    feed.resolve()
    feed.run()
    before = {table: read(feed.spark, (f"{feed.name}__shop", table)).sort_by("id") for table in ("a", "b")}
    assert before["a"]["id"].to_pylist() == [1, 2]
    assert before["b"]["c"].to_pylist() == ["kept", None]

    feed.settings["ddl"] = {}
    feed.obey(f"applier backfill -c {feed.path} --from beginning --repair --take-over")

    assert {table: read(feed.spark, (f"{feed.name}__shop", table)).sort_by("id") for table in before} == before


@pytest.mark.soak
def test_a_repair_knows_the_ddl_in_front_of_its_range(make: Make) -> None:
    """In offset order a row behind the message of a TRUNCATE, at or below its commit ts, was sent before it."""
    feed = make(order="offset")
    feed.create("a")
    feed.put("a", 1)
    old = feed.messages[-1]
    feed.ddl("TRUNCATE TABLE a")
    feed.put("a", 2)
    feed.run()
    feed.messages.append(old)
    feed.run()
    assert feed.keys("a") == {2}

    feed.obey(f"applier backfill -c {feed.path} --from shop:0:4 --repair --tables shop.a --take-over")

    assert feed.keys("a") == {2}


def test_rows_that_lag_behind_a_rename_make_no_table_and_doubt_the_one_that_moved(make: Make) -> None:
    """In offset order one topic may be read behind the DDL in another one, also after a restart."""
    feed = make(order="offset")
    for table in ("moved", "emptied", "dropped"):
        feed.create(table)
        feed.put(table, 1)
    lagging = feed.ts + 1
    feed.ts += 9
    at = feed.ddl("RENAME TABLE moved TO there", "moved")
    feed.ddl("TRUNCATE TABLE emptied", "emptied")
    feed.ddl("DROP TABLE dropped", "dropped")
    feed.put("there", 2)
    feed.put("emptied", 2)
    feed.run()
    newest, feed.ts, feed.topic = feed.ts, lagging, "lagging"
    for table in ("moved", "emptied", "dropped"):
        feed.put(table, 8)
    feed.ts = newest
    feed.run()

    assert {item.table: item.state for item in feed.status().tables} == {
        "shop.there": "incomplete",
        "shop.emptied": "in step",
    }
    assert (feed.keys("there"), feed.keys("emptied")) == ({1, 2}, {2})
    assert f"rows that lie before its DDL of commit ts {at} came behind it" in str(feed.table("there").because)
    assert "--params 'time_zone=+00:00' -F 256MiB --filter 'shop.there' -o DIR`" in str(feed.table("there").way_out)


@pytest.mark.soak
def test_rows_that_lag_behind_the_ddl_of_before_a_table_was_parked_are_known_for_late(make: Make) -> None:
    """A row of before a TRUNCATE does not come back with its table; one of before an EXCHANGE leaves both in doubt."""
    feed = make(order="offset")
    parts = "PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (5), PARTITION p1 VALUES LESS THAN (100))"
    feed.create("emptied")
    feed.ddl(f"CREATE TABLE parted (id BIGINT PRIMARY KEY, v VARCHAR(9)) {parts}", "parted")
    feed.create("partner")
    for table, key in (("emptied", 1), ("parted", 1), ("parted", 11), ("partner", 12)):
        feed.put(table, key)
    lagging = feed.ts + 1
    feed.ts += 9
    feed.ddl("TRUNCATE TABLE emptied", "emptied")
    at = feed.ddl("ALTER TABLE parted EXCHANGE PARTITION p1 WITH TABLE partner", "parted")
    feed.put("emptied", 2)
    feed.run()
    feed.run(include=["*.*", "!shop.emptied", "!shop.parted"])
    newest, feed.ts, feed.topic = feed.ts, lagging, "lagging"
    feed.put("emptied", 8)
    feed.put("parted", 18)
    feed.ts, feed.topic = newest, "shop"
    feed.put("emptied", 3)
    feed.run()
    feed.run(include=["*.*"])

    assert feed.keys("emptied") == {2, 3}
    states = {item.table.removeprefix("shop."): item.state for item in feed.status().tables}
    assert states == {"emptied": "in step", "parted": "incomplete", "partner": "incomplete"}
    assert f"rows that lie before its DDL of commit ts {at} came behind it" in str(feed.table("partner").because)
