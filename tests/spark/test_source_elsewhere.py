"""CREATE TABLE … LIKE a table whose database the message leaves open, as TiCDC sends what a session typed."""

from __future__ import annotations

import pytest

from tests.few import few
from tests.spark.world import Make, World

pytestmark = pytest.mark.spark

WHOLE = {"id": "bigint", "v": "varchar(9)"}
ALIKE, OTHER = "id BIGINT PRIMARY KEY, v VARCHAR(9)", "id BIGINT PRIMARY KEY, v VARCHAR(9), w INT"


def _copied(make: Make, *sources: str, kinds: dict[str, str] = WHOLE, together: bool = True) -> World:
    """A table that was made LIKE `a`, and a row of it, where there are tables `a` of these columns."""
    world = make()
    for number, columns in enumerate(sources):
        world.send({"database": f"d{number}", "isDdl": True, "type": "QUERY", "sql": f"CREATE TABLE a ({columns})"})
    world.create("other")
    world.resolve()
    world.run()
    world.ddl("CREATE TABLE `shop`.`copy` LIKE `a`", "copy")
    if not together:
        world.resolve()
        world.run()
    world.send_row("copy", dict.fromkeys(kinds, "7"), kinds)
    world.put("other", 1)
    world.resolve()
    world.run()
    assert world.keys("other") == {1}
    return world


@pytest.mark.parametrize(
    "sources",
    [
        (ALIKE, OTHER),
        *(pytest.param(each, marks=pytest.mark.soak) for each in ((ALIKE,), (ALIKE, ALIKE), (OTHER, ALIKE))),
    ],
)
def test_a_table_is_made_like_the_only_one_that_its_rows_fit(sources: tuple[str, ...], make: Make) -> None:
    """Several tables of that name that have the same columns are as one."""
    world = _copied(make, *sources)

    assert world.rows("copy") == {7: "7"}
    assert world.table("copy").state == "in step"


@pytest.mark.parametrize(
    ("sources", "kinds", "named"),
    few(
        [
            ((OTHER, OTHER), WHOLE, "d0.a or d1.a"),
            (("id BIGINT PRIMARY KEY, v ENUM('7')",), {"id": "bigint", "v": "enum"}, "d0.a"),
            ((ALIKE,), {"id": "bigint"}, "d0.a"),
            ((ALIKE,), {**WHOLE, "w": "int"}, "d0.a"),
            ((ALIKE,), {"id": "bigint", "v": "int"}, "d0.a"),
            ((ALIKE,), {"id": "bigint unsigned", "v": "varchar(9)"}, "d0.a"),
        ],
        2,
    ),
)
def test_a_source_that_rows_do_not_show_is_not_guessed(
    sources: tuple[str, ...], kinds: dict[str, str], named: str, make: Make
) -> None:
    """It may be a table that the feed leaves out, also one with other members: the table is parked."""
    world = _copied(make, *sources, kinds=kinds)

    assert world.table("copy").state == "parked"
    assert f"The columns of table shop.copy are not known (LIKE {named}" in str(world.table("copy"))


def test_a_table_whose_rows_come_in_a_later_step_is_loaded(make: Make) -> None:
    """Where the step of the statement has no row of the table, no table is proven to be its source."""
    world = _copied(make, ALIKE, together=False)

    assert world.table("copy").state == "parked"
