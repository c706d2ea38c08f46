"""Tables with a row filter: DDL, a changed filter, tables without a key, and tables that TiDB deletes from softly."""

from __future__ import annotations

import pytest

from applier.commands.plan.command import plan
from applier.pipeline.tables import layouts
from tests.spark.feeds import read, sql_name
from tests.spark.world import Make, World

pytestmark = pytest.mark.spark

CREATE = "CREATE TABLE a (id BIGINT PRIMARY KEY, v VARCHAR(9), w INT)"


def ask(world: World, where: str, pattern: str = "shop.*") -> None:
    """Let tables have the rows of a filter alone."""
    world.settings.setdefault("tables", {})[pattern] = {"where": where}


@pytest.mark.parametrize("sql", ["DROP COLUMN w", "RENAME COLUMN w TO m", "MODIFY COLUMN w VARCHAR(9)"])
def test_ddl_of_a_column_of_the_filter_parks_its_table(make: Make, sql: str) -> None:
    """Before rows of the new column are written; DDL of others go on."""
    world = make()
    ask(world, "W > 1 or w is null")
    world.ddl(CREATE)
    world.put("a", 1, w="1")
    world.put("a", 2, w="2")
    world.ddl("ALTER TABLE a ADD COLUMN c INT DEFAULT 3, MODIFY COLUMN w BIGINT, MODIFY COLUMN v VARCHAR(19)")
    world.resolve()
    world.start()
    assert [(row["id"], row["c"]) for row in read(world.spark, (f"{world.name}__shop", "a")).to_pylist()] == [(2, 3)]

    world.ddl(f"ALTER TABLE a {sql}")
    world.resolve()
    because = "Column w, which `where` of the table looks at, is changed"
    assert because in str(plan(world.config).ddl)
    world.start()
    line = world.table("a")
    assert line.state == "parked"
    assert because in str(line.because)
    assert "applier load" in str(line.way_out)


def test_a_filter_that_does_not_fit_parks_its_table(make: Make) -> None:
    """By a sentence that names the table and the column; corrected, the table is read from its CREATE TABLE."""
    world = make()
    ask(world, "nowhere = 1")
    world.ddl(CREATE)
    world.put("a", 1, w="1")
    world.resolve()
    because = "Table shop.a cannot be filtered by its `where`: it has no column nowhere"
    world.start()
    line = world.table("a")
    assert line.state == "parked"
    assert because in str(line.because)
    ask(world, "w = 1")
    world.start()
    assert (world.table("a").state, world.keys("a")) == ("in step", {1})


def test_a_changed_filter_parks_a_living_table(make: Make) -> None:
    """Its rows are those of the former one; set back, it goes on."""
    world = make()
    ask(world, "w > 1")
    world.ddl(CREATE)
    world.put("a", 1, w="1")
    world.put("a", 2, w="2")
    world.resolve()
    world.start()
    ask(world, "w > 0")
    world.start()
    line = world.table("a")
    assert line.state == "parked"
    assert "holds rows of another shape than its pattern under [tables] gives them now" in str(line.because)
    ask(world, "w > 1")
    world.start()
    world.put("a", 1, op="UPDATE", w="5")
    world.put("a", 2, op="UPDATE", w="0")
    world.resolve()
    world.start()
    assert (world.table("a").state, world.keys("a")) == ("in step", {1})


_SOFT = {"id": "bigint", "v": "varchar(9)", "_tidb_softdelete_time": "timestamp(6)"}


def _send(world: World, key: int, op: str, deleted: str | None = None) -> None:
    row = {"id": str(key), "v": op, "_tidb_softdelete_time": deleted}
    types = dict.fromkeys(row, 12)
    message = {"table": "a", "type": op, "pkNames": ["id"], "mysqlType": _SOFT, "sqlType": types, "data": [row]}
    world.send({**message, **({"old": [{"v": "before"}]} if op == "UPDATE" else {})})


def test_rows_of_a_table_that_is_softly_deleted_from_come_and_go(make: Make) -> None:
    """TiCDC sends its soft deletes as deletes or as updates, and never the deletes: the filter takes both."""
    world = make()
    ask(world, "_tidb_softdelete_time is null")
    world.ddl("CREATE TABLE a (id BIGINT PRIMARY KEY, v VARCHAR(9), _tidb_softdelete_time TIMESTAMP(6) NULL)")
    for key in (1, 2, 3):
        _send(world, key, "INSERT")
    world.resolve()
    world.start()
    _send(world, 1, "DELETE")
    _send(world, 2, "UPDATE", "2026-01-01 00:00:00.000000")
    world.resolve()
    world.start()
    assert world.keys("a") == {3}
    # TiDB restores both.
    _send(world, 1, "UPDATE")
    _send(world, 2, "UPDATE")
    world.resolve()
    world.start()
    assert (world.table("a").state, world.keys("a")) == ("in step", {1, 2, 3})


def test_a_reload_that_would_park_a_table_is_refused(make: Make) -> None:
    """By the sentence of the park; the running process goes on as before."""
    world = make()
    ask(world, "w > 1")
    world.ddl(CREATE)
    world.put("a", 1, w="2")
    world.resolve()
    with world.applier() as pipeline:
        while pipeline.step(pipeline.ends()).moved:
            pass
        former = pipeline.config
        ask(world, "w > 2")
        shown = layouts.misshapen(pipeline.state, pipeline.targets, world.config, former)
        assert layouts.misshapen(pipeline.state, pipeline.targets, former, former) == []
    (sentence,) = shown
    assert "holds rows of another shape than its pattern under [tables] gives them now. Set the keys" in sentence


def test_rows_that_are_applied_again_are_those_of_the_filter(make: Make) -> None:
    """By a backfill, which takes out what the filter does not admit, and as a table that was parked comes back."""
    world = make()
    ask(world, "w > 1")
    world.ddl(CREATE)
    for key in (1, 2, 3, 4):
        world.put("a", key, w=str(key))
    world.resolve()
    world.start()
    assert world.keys("a") == {2, 3, 4}
    world.obey(f"applier park -c {world.path} --tables shop.a --why test")
    world.put("a", 1, op="UPDATE", w="5")
    world.put("a", 2, op="UPDATE", w="0")
    world.put("a", 3, op="DELETE", w="3")
    world.resolve()
    world.obey(f"applier resume -c {world.path} --tables shop.a")
    world.start()
    assert world.table("a").state == "in step"
    assert world.keys("a") == {1, 4}
    own = sql_name((f"{world.name}__shop", "a"))
    world.spark.sql(f"DELETE FROM {own} WHERE id = 1")
    world.spark.sql(f"INSERT INTO {own} (id, v, w) VALUES (2, 'x', 0)")
    world.obey(f"applier backfill -c {world.path} --from beginning --repair --take-over")
    assert world.keys("a") == {1, 4}


@pytest.mark.parametrize("section", [{"order": "offset"}, {"filtered": True}])
def test_an_insert_that_is_not_admitted_takes_a_row_of_before_away(make: Make, section: dict[str, object]) -> None:
    """Where the insert was sent again, or the delete before it was left out: the key is new in the step alone."""
    world = make()
    world.settings["changefeed"] = section
    ask(world, "w > 1")
    world.ddl(CREATE)
    for key in (1, 2):
        world.put("a", key, w="2")
    world.resolve()
    world.start()
    assert world.keys("a") == {1, 2}
    world.put("a", 1, w="0")
    world.put("a", 2, w="3")
    world.put("a", 2, op="UPDATE", w="1")
    world.resolve()
    world.start()
    assert (world.table("a").state, world.keys("a")) == ("in step", set())
