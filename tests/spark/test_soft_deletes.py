"""Tables whose deleted rows stay: living tables, DDL, rows whose old image is missing, and tables without a key."""

from __future__ import annotations

from typing import Any

import pytest

from applier.commands.plan.command import plan
from applier.errors import ConfigError
from tests.spark.feeds import read, sql_name
from tests.spark.world import KINDS, Make, World

pytestmark = pytest.mark.spark

CREATE = "CREATE TABLE a (id BIGINT PRIMARY KEY, v VARCHAR(9), w INT)"


def ask(world: World, deletes: str = "soft", **more: Any) -> None:
    """Let deleted rows stay, or go."""
    world.settings.setdefault("tables", {})["shop.*"] = {"deletes": deletes, **more}


def change(world: World, key: int, op: str = "INSERT", *, w: int = 0) -> None:
    """A change of a row, whose values name it."""
    world.put("a", key, op=op, w=str(w))


def delete(world: World, row: dict[str, str]) -> None:
    """A delete whose message holds these columns."""
    message = {"table": "a", "type": "DELETE", "pkNames": ["id"], "mysqlType": {name: KINDS[name] for name in row}}
    world.send({**message, "sqlType": dict.fromkeys(row, 12), "data": [row]})


def apply(world: World) -> None:
    """One process, to the end."""
    world.resolve()
    world.start()


def shown(world: World) -> dict[int, tuple[Any, bool]]:
    """By key the value of `w`, and whether the row lives; each key is there once."""
    rows = read(world.spark, (f"{world.name}__shop", "a")).to_pylist()
    assert len(rows) == len({row["id"] for row in rows})
    return {row["id"]: (row["w"], row["_deleted_at"] is None) for row in rows}


def test_deleted_rows_stay_and_live_again(make: Make) -> None:
    """Within a step and over several, with the values of the old image; ids are kept where that is asked for."""
    world = make()
    ask(world, row_ids="keep", partition_by=["day(_deleted_at)"])
    world.ddl(CREATE)
    for key in (1, 2, 3):
        change(world, key, w=key)
    change(world, 3, "DELETE", w=3)
    apply(world)
    assert shown(world) == {1: (1, True), 2: (2, True), 3: (3, False)}
    change(world, 1, "DELETE", w=7)
    change(world, 3, w=9)
    apply(world)
    assert shown(world) == {1: (7, False), 2: (2, True), 3: (9, True)}
    change(world, 3, "DELETE", w=9)
    change(world, 1, w=8)
    change(world, 1, "DELETE", w=8)
    change(world, 2, "UPDATE", w=5)
    apply(world)
    assert shown(world) == {1: (8, False), 2: (5, True), 3: (9, False)}
    assert world.table("a").state == "in step"


def test_a_living_table_keeps_deleted_rows_from_a_start_on(make: Make) -> None:
    """By a change of its metadata; the other way it is parked, as its deleted rows would come to life."""
    world = make()
    ask(world, "hard")
    world.ddl(CREATE)
    for key in (1, 2):
        change(world, key, w=key)
    change(world, 1, "DELETE")
    apply(world)
    ask(world)
    (due,) = plan(world.config).layouts
    assert (due.change, due.note) == (
        "with _deleted_at",
        "It costs a change of metadata, which counts for each row from its next change on.",
    )
    change(world, 2, "DELETE", w=2)
    apply(world)
    assert shown(world) == {2: (2, False)}
    ask(world, "hard")
    apply(world)
    line = world.table("a")
    assert line.state == "parked"
    assert "holds rows of another shape than its pattern under [tables] gives them now" in str(line.because)
    ask(world)
    change(world, 2, w=3)
    apply(world)
    assert (world.table("a").state, shown(world)) == ("in step", {2: (3, True)})


def test_ddl_reaches_deleted_rows_or_parks_their_table(make: Make) -> None:
    """Columns and TRUNCATE are those of all rows; under another key deleted rows could be alike."""
    world = make()
    ask(world)
    world.ddl(CREATE)
    change(world, 1, w=1)
    change(world, 1, "DELETE", w=1)
    world.ddl("ALTER TABLE a ADD COLUMN c INT DEFAULT 4, MODIFY COLUMN w BIGINT")
    apply(world)
    (row,) = read(world.spark, (f"{world.name}__shop", "a")).to_pylist()
    assert (row["w"], row["c"]) == (1, 4)
    world.ddl("TRUNCATE TABLE a")
    apply(world)
    assert shown(world) == {}
    world.ddl("ALTER TABLE a DROP PRIMARY KEY, ADD PRIMARY KEY (id, w)")
    apply(world)
    line = world.table("a")
    assert line.state == "parked"
    assert "Its key changes, and `deletes` is soft: deleted rows may be alike in the new one" in str(line.because)


def test_a_delete_without_the_whole_row_is_refused(make: Make) -> None:
    """Its table is parked: NULL would stand for what the message does not hold."""
    world = make()
    ask(world)
    world.ddl(CREATE)
    change(world, 1, w=1)
    delete(world, {"id": "1"})
    apply(world)
    line = world.table("a")
    assert line.state == "parked"
    assert "A delete of table shop.a does not hold column v, and its row is to stay" in str(line.because)


def test_a_table_without_a_key_is_parked(make: Make) -> None:
    """Nothing tells its deleted rows from living ones."""
    world = make()
    ask(world)
    world.ddl("CREATE TABLE a (id BIGINT, v VARCHAR(9))")
    row = {"id": "1", "v": "x"}
    kinds = {name: KINDS[name] for name in row}
    message = {"table": "a", "type": "INSERT", "pkNames": None, "mysqlType": kinds, "sqlType": dict.fromkeys(row, 12)}
    world.send({**message, "data": [row]})
    apply(world)
    line = world.table("a")
    assert line.state == "parked"
    assert "Table shop.a has no key, and `deletes` is soft: nothing tells deleted rows from living" in str(line.because)


def test_what_cannot_be_soft_is_refused_when_the_file_is_read(make: Make) -> None:
    """Deletes of Avro hold the key alone; and a filter deletes rows that upstream has."""
    world = make()
    ask(world, where="w > 1")
    with pytest.raises(ConfigError, match=r"deletes: is soft, and `where` deletes rows that upstream has"):
        _ = world.config
    ask(world)
    world.settings["changefeed"] = {"protocol": "avro"}
    world.settings["registry"] = {"url": "http://127.0.0.1:1"}
    with pytest.raises(ConfigError, match=r"deletes: is soft, and deletes of the protocol avro hold the key alone"):
        _ = world.config


def test_an_update_of_a_deleted_row_shows_that_a_change_was_lost(make: Make) -> None:
    """As one of a row that is not there does, also where an insert meets a living row."""
    world = make()
    ask(world)
    world.ddl(CREATE)
    for key in (1, 2):
        change(world, key, w=key)
    change(world, 1, "DELETE", w=1)
    apply(world)
    change(world, 1, "UPDATE", w=5)
    apply(world)
    line = world.table("a")
    assert line.state == "parked"
    assert "does not hold 1 row" in str(line.because)


def test_many_deletes_of_a_step_are_read_one_by_one(make: Make) -> None:
    """Blocks of alike messages hold the keys of deletes alone; the rows stay whole."""
    world = make()
    ask(world)
    world.ddl(CREATE)
    for key in range(400):
        change(world, key, w=key)
    apply(world)
    for key in range(399):
        change(world, key, "DELETE", w=key + 1)
    apply(world)
    assert shown(world) == {**{key: (key + 1, False) for key in range(399)}, 399: (399, True)}


def test_rows_that_are_applied_again_are_deleted_or_alive_as_they_were(make: Make) -> None:
    """By a backfill, which mends deleted rows as well, and as a table that was parked comes back."""
    world = make()
    ask(world)
    world.ddl(CREATE)
    for key in (1, 2, 3):
        change(world, key, w=key)
    change(world, 1, "DELETE", w=1)
    apply(world)
    world.obey(f"applier park -c {world.path} --tables shop.a --why test")
    change(world, 2, "DELETE", w=2)
    change(world, 1, w=7)
    world.resolve()
    world.obey(f"applier resume -c {world.path} --tables shop.a")
    world.start()
    assert world.table("a").state == "in step"
    assert shown(world) == {1: (7, True), 2: (2, False), 3: (3, True)}
    world.spark.sql(f"UPDATE {sql_name((f'{world.name}__shop', 'a'))} SET w = 9 WHERE id > 1")
    world.obey(f"applier backfill -c {world.path} --from beginning --repair --take-over")
    assert shown(world) == {1: (7, True), 2: (2, False), 3: (3, True)}


def test_a_table_whose_mark_of_deleted_rows_another_writer_takes_is_parked(make: Make) -> None:
    """Rows that are deleted would look alive."""
    world = make()
    ask(world)
    world.ddl(CREATE)
    for key in (1, 2):
        change(world, key, w=key)
    change(world, 1, "DELETE", w=1)
    apply(world)
    own = sql_name((f"{world.name}__shop", "a"))
    world.spark.sql(f"ALTER TABLE {own} DROP COLUMN _deleted_at")
    world.spark.sql(f"ALTER TABLE {own} ADD COLUMN _deleted_at STRING")
    change(world, 2, "DELETE", w=2)
    apply(world)
    line = world.table("a")
    assert line.state == "parked"
    assert "holds rows of another shape than its pattern under [tables] gives them now" in str(line.because)
    assert "applier load" in str(line.way_out)
    assert {row["id"] for row in read(world.spark, (f"{world.name}__shop", "a")).to_pylist()} == {1, 2}
