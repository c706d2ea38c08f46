"""A zero date in a key: the table is parked, and what is printed brings it back as it is, on the table that lives."""

from __future__ import annotations

import pytest

from tests.spark.feeds import read
from tests.spark.world import Make, World

pytestmark = pytest.mark.spark

KINDS = {"d": "date", "v": "varchar(9)"}


def _put(world: World, day: str, value: str) -> None:
    message = {
        "table": "a",
        "type": "INSERT",
        "pkNames": ["d"],
        "mysqlType": KINDS,
        "sqlType": dict.fromkeys(KINDS, 12),
    }
    world.send({**message, "data": [{"d": day, "v": value}]})


def _rows(world: World) -> list[tuple[str, str]]:
    return sorted((str(row["d"]), row["v"]) for row in read(world.spark, (f"{world.name}__shop", "a")).to_pylist())


def test_the_printed_way_out_of_a_zero_date_in_a_key_works_on_the_living_table(make: Make) -> None:
    """Its column becomes text, and the feed brings every row again, two partial dates among them."""
    world = make()
    world.ddl("CREATE TABLE a (d DATE PRIMARY KEY, v VARCHAR(9))")
    _put(world, "2024-02-29", "x")
    world.resolve()
    world.run()
    _put(world, "0000-00-00", "zero")
    _put(world, "2024-00-00", "part")
    world.resolve()

    told = world.obey(f"applier run -c {world.path} --once --take-over")

    found = world.table("a")
    assert found.state == "parked"
    assert "it is a zero, partial or impossible date, which a key holds as text alone (tables.zero_dates_of)" in (
        found.because or ""
    )
    assert 'Set zero_dates_of = { "shop.a.d" = "string" } in [tables]' in told.replace('\\"', '"')
    assert _rows(world) == [("2024-02-29", "x")]

    world.settings["tables"] = {"zero_dates_of": {"shop.a.d": "string"}}
    world.start()
    assert world.table("a").state == "parked"
    world.heal(world.table("a").way_out)

    assert world.table("a").state == "in step"
    assert _rows(world) == [("0000-00-00", "zero"), ("2024-00-00", "part"), ("2024-02-29", "x")]
