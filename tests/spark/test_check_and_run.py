"""What `applier check --ddl` says of a DDL is what `applier run` makes of it, in every drawn configuration."""

from __future__ import annotations

import json
import random
import re
from typing import Any

import pytest

from tests.few import few
from tests.spark.feeds import read
from tests.spark.world import Make, World

pytestmark = pytest.mark.spark

_ZONES = ("UTC", "Asia/Shanghai", "America/New_York")
_COLUMNS = (
    "timestamp not null default '2024-01-01 00:00:00'",
    "timestamp null default '2024-07-01 12:00:00'",
    "timestamp not null default current_timestamp",
    "datetime not null default '2024-01-01 00:00:00'",
    "date not null default '0000-00-00'",
    "tinyint(1) not null default 1",
    "int not null",
    "varchar(9) default 'x'",
    "int as (id + 1) virtual",
)
SEEDS = few(range(1, 40), 2)


def drawn(chance: random.Random) -> tuple[dict[str, dict[str, Any]], str]:
    """A configuration, and the definition of a column that a DDL adds."""
    feed = {"timezone": chance.choice(_ZONES)}
    if chance.random() < 0.5:
        feed["session_timezone"] = chance.choice(_ZONES)
    tables: dict[str, Any] = {
        "tinyint1": chance.choice(("int", "boolean")),
        "zero_dates": chance.choice(("null", "stop", "string")),
        "virtual_columns": chance.choice(("omit", "null")),
        "unknown_default": chance.choice(("stop", "null")),
    }
    if chance.random() < 0.3:
        tables["zero_dates_of"] = {"shop.a.w": chance.choice(("null", "stop", "string"))}
    return {"changefeed": feed, "tables": tables}, chance.choice(_COLUMNS)


def promised(world: World, ddl: str) -> tuple[bool, str]:
    """Whether the check says that a DDL fits, and the value that it promises in rows that are there; "" for none."""
    out = world.obey(f'applier check -c {world.path} --json --ddl "{ddl}"', code=None)
    (change,) = json.loads(out[out.index("{") :])["changes"]
    steps = [step for table in change["tables"] for step in table["steps"]]
    found = re.search(r", (.*) in existing rows", " ".join(steps))
    value = found[1].strip("'") if found else ""
    return change["verdict"] == "fits", "" if value == "NULL" else value


@pytest.mark.parametrize("seed", SEEDS)
def test_a_ddl_does_what_the_check_says(seed: int, make: Make) -> None:
    """The same verdict, and the same value in rows that are there."""
    settings, column = drawn(random.Random(seed))
    world = make()
    world.settings = settings
    world.create("a")
    world.put("a", 1)
    world.resolve()
    world.run()
    ddl = f"ALTER TABLE shop.a ADD COLUMN w {column}"

    fits, value = promised(world, ddl)
    world.ddl(ddl)
    world.resolve()
    world.run()

    (row,) = read(world.spark, (f"{world.name}__shop", "a")).to_pylist()
    assert (world.table("a").state == "in step") == fits, (settings, ddl)
    assert str(row.get("w") if row.get("w") is not None else "") == value, (settings, ddl)
