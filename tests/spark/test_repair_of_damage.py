"""A repair shows no table as whole that lacks rows, or has them twice: what lies in front of its range counts too."""

from __future__ import annotations

import re

import pytest

from applier.runtime import failpoints
from tests.few import few
from tests.spark.world import Make, World

pytestmark = pytest.mark.spark


class Crash(BaseException):
    """The process is gone."""


LATER = (5 * 60_000) << 18


def repair(feed: World, begin: str, code: int = 0) -> str:
    """`applier backfill --repair`; what it prints."""
    return feed.obey(f"applier backfill -c {feed.path} --from {begin} --repair --take-over", code)


def name(feed: World, table: str) -> str:
    """A table as Spark's SQL calls it."""
    return f"lake.`{feed.name}__shop`.`{table}`"


def set_back(feed: World, snapshot: int) -> None:
    """Set a table to one of its snapshots, which are counted from the newest."""
    made = feed.spark.sql(f"SELECT snapshot_id FROM {name(feed, 'a')}.snapshots ORDER BY committed_at").collect()
    feed.spark.sql(f"CALL lake.system.set_current_snapshot('{feed.name}__shop.a', {made[-snapshot][0]})")


def test_a_truncate_that_was_ignored_empties_no_keyless_table(make: Make) -> None:
    """Its rows would be there twice."""
    feed = make()
    feed.settings["ddl"] = {"truncate-table": "ignore"}
    made = feed.ddl("CREATE TABLE k (v INT)", "k")
    row = {"table": "k", "type": "INSERT", "pkNames": None, "mysqlType": {"v": "int"}, "sqlType": {"v": 4}}
    feed.send({**row, "data": [{"v": "1"}]})
    feed.ddl("TRUNCATE TABLE k", "k")
    feed.resolve()
    feed.run()

    told = repair(feed, str(made), 3)

    assert "begin the range before its CREATE TABLE, or before a TRUNCATE that emptied it" in told
    assert feed.spark.sql(f"SELECT * FROM {name(feed, 'k')}").count() == 1


@pytest.mark.parametrize("order", few(["offset", "resolved_ts"]))
def test_offsets_behind_what_a_table_shows_that_was_set_back_are_refused(make: Make, order: str) -> None:
    """The rows between would be lost; the bound that is named brings all of them back."""
    feed = make(order="offset") if order == "offset" else make()
    feed.create("a")
    for key in (1, 2, 3):
        begin = len(feed.messages)
        feed.put("a", key)
        feed.resolve()
        feed.run()
        feed.ts += LATER
    set_back(feed, 3)

    told = repair(feed, f"0:{begin}", 3)
    assert feed.keys("a") == {1}
    bound = re.search(r"begin the range there, with --from (\S+);", told)
    assert bound is not None
    repair(feed, bound[1])

    assert feed.keys("a") == {1, 2, 3}
    assert feed.table("a").state == "in step"


@pytest.mark.soak
def test_a_table_that_was_set_back_behind_a_truncate_takes_it_again(make: Make) -> None:
    """The rows up to the TRUNCATE carry its commit ts already."""
    feed = make()
    feed.create("a")
    feed.put("a", 1)
    at = feed.ddl("TRUNCATE TABLE a")
    feed.put("a", 2)
    feed.resolve()
    feed.run()
    set_back(feed, 3)
    assert feed.keys("a") == {1}

    assert f"begin the range there, with --from {at - 1};" in repair(feed, str(at), 3)
    repair(feed, str(at - 1))

    assert feed.keys("a") == {2}


def test_a_message_that_cannot_be_read_again_leaves_its_table_in_doubt(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the process dies once readers see the table, and `run` goes on."""
    feed = make(on_bad_message="dead_letter")
    made = feed.create("a")
    feed.put("a", 1, 2)
    feed.resolve()
    feed.run()
    feed.spark.sql(f"DELETE FROM {name(feed, 'a')} WHERE id = 1")
    feed.messages[1]["data"][0]["id"] = "no number"

    def die(point: str) -> None:
        if point == "copy-shown":
            raise Crash

    with monkeypatch.context() as patch:
        patch.setattr(failpoints, "reach", die)
        with pytest.raises(Crash):
            repair(feed, str(made))
    feed.start()

    assert feed.keys("a") == {2}
    assert feed.table("a").state == "incomplete"
    assert feed.in_cut() == set()


@pytest.mark.parametrize("tables", few([" --tables shop.b", "", " --tables shop.A"]))
def test_a_swap_in_one_statement_is_followed_through_all_of_its_parts(make: Make, tables: str) -> None:
    """Its third part moves the table that its first one moved: rows behind it are not left out."""
    feed = make()
    feed.create("a")
    feed.ddl("CREATE TABLE b (id BIGINT PRIMARY KEY, v VARCHAR(9), w INT)", "b")
    feed.put("a", 1)
    feed.put("b", 2, w="2")
    feed.ddl("RENAME TABLE a TO t, b TO a, t TO b")
    feed.put("b", 3)
    feed.put("a", 4, w="4")
    feed.resolve()
    feed.run()
    chosen = [table for table in "ab" if not tables or tables.endswith((table, table.upper()))]
    for table in chosen:
        feed.spark.sql(f"DELETE FROM {name(feed, table)} WHERE id > 0")

    feed.obey(f"applier backfill -c {feed.path} --from beginning --repair --take-over{tables}")

    assert {table: feed.keys(table) for table in "ab"} == {"a": {2, 4}, "b": {1, 3}}


@pytest.mark.soak
def test_a_table_made_like_another_one_is_built_along_with_it(make: Make) -> None:
    """Alone it is refused with that way out."""
    feed = make()
    feed.create("a")
    feed.ddl("CREATE TABLE b LIKE a", "b")
    feed.put("b", 2)
    feed.resolve()
    feed.run()
    feed.spark.sql(f"DELETE FROM {name(feed, 'b')} WHERE id > 0")
    command = f"applier backfill -c {feed.path} --from beginning --repair --take-over"

    told = feed.obey(f"{command} --tables shop.b", 3)

    assert "Table shop.b was made LIKE table shop.a, which is not built along. Hint: choose both in --tables" in told
    feed.obey(command)
    assert feed.keys("b") == {2}
