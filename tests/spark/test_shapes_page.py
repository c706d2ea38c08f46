"""docs/shapes.md: each configuration that it shows gives the table below it."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from tests.spark.feeds import read
from tests.spark.world import START, Make

pytestmark = pytest.mark.spark

PAGE = (Path(__file__).parents[2] / "docs" / "shapes.md").read_text(encoding="utf-8")
EXAMPLES = [("", PAGE.partition("Without a pattern:")[2])] + [
    (block, after) for block, after in re.findall(r"```toml\n(.*?)```\n(.*?)(?=\n```|\Z)", PAGE, re.DOTALL)
]


def table_of(text: str) -> list[list[str]]:
    """The cells of the first table of a text, with its heads."""
    lines = re.search(r"(?:^\|.*\n)+", text, re.MULTILINE)
    assert lines is not None
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[0].splitlines()]
    return [rows[0], *rows[2:]]


@pytest.mark.parametrize(("block", "after"), EXAMPLES, ids=["plain", *map(str, range(1, len(EXAMPLES)))])
def test_the_page_shows_what_its_configuration_gives(make: Make, block: str, after: str) -> None:
    """By the statements at its top."""
    assert str(START + 1) in PAGE
    world = make()
    world.settings["tables"] = tomllib.loads(block).get("tables", {})
    world.ddl("CREATE TABLE shop.orders (id BIGINT PRIMARY KEY, v VARCHAR(9))", "orders")
    for key in (1, 2):
        world.put("orders", key, v="new")
    world.put("orders", 2, op="UPDATE", v="paid")
    world.resolve()
    world.start()
    rows = read(world.spark, (f"{world.name}__shop", "orders"))
    shown = [list(map(str, row.values())) for row in sorted(rows.to_pylist(), key=lambda row: row["id"])]
    assert [rows.column_names, *shown] == table_of(after)


def test_the_view_of_the_page_shows_shards_as_one_table(make: Make) -> None:
    """With the shard as a part of the key, in the words of the page."""
    found = re.search(r"CREATE VIEW lake.sales.orders AS\n(.*?)\n```", PAGE, re.DOTALL)
    assert found is not None
    world = make()
    for database, value in (("shop_1", "one"), ("shop_2", "two")):
        sql = "CREATE TABLE orders (id BIGINT PRIMARY KEY, v VARCHAR(9))"
        named = {"database": database, "table": "orders"}
        world.send({**named, "isDdl": True, "type": "QUERY", "sql": sql})
        kinds = {"id": "bigint", "v": "varchar(9)"}
        row = {"data": [{"id": "1", "v": value}], "mysqlType": kinds, "sqlType": {"id": -5, "v": 12}}
        world.send({**named, "type": "INSERT", "pkNames": ["id"], **row})
    world.resolve()
    world.start()
    query = re.sub(r"lake\.(\w+)", rf"lake.{world.name}__\1", found[1])
    rows = world.spark.sql(f"{query} ORDER BY shard").toArrow().to_pylist()
    assert rows == [{"shard": "shop_1", "id": 1, "v": "one"}, {"shard": "shop_2", "id": 1, "v": "two"}]
