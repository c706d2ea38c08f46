"""Rows of Debezium of older builds of TiCDC do not show their types: the way out of the table that is parked for it."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.spark.test_ways_out import commands
from tests.spark.world import Make, World
from tests.unit.decode.dump import dumpling

pytestmark = pytest.mark.spark

CREATE = "CREATE TABLE `a` (`id` bigint unsigned NOT NULL, `v` varbinary(9), PRIMARY KEY (`id`));\n"


def put(world: World, key: int, text: str) -> None:
    """An INSERT, whose bytes are base64 and whose unsigned number looks like a signed one."""
    world.ts += 1
    fields = [{"type": "int64", "optional": False, "field": "id"}, {"type": "string", "optional": True, "field": "v"}]
    image = {"type": "struct", "optional": True, "name": "default.shop.a.Value", "fields": fields}
    source = {"connector": "TiCDC", "name": "default", "db": "shop", "table": "a", "commit_ts": world.ts}
    row = {"id": key, "v": text}
    payload = {"source": source, "ts_ms": 1, "transaction": None, "op": "c", "before": None, "after": row}
    both = [{**image, "field": "before"}, {**image, "field": "after"}]
    schema = {"type": "struct", "optional": False, "name": "default.shop.a.Envelope", "version": 1, "fields": both}
    world.messages.append({"payload": payload, "schema": schema, "ts": world.ts >> 18})


def test_an_export_loads_a_table_whose_types_rows_do_not_show(make: Make) -> None:
    """The command is given as it is printed; what is exported and what comes later has the types of upstream."""
    untold: dict[str, dict[str, Any]] = {
        "changefeed": {"protocol": "debezium", "order": "offset"},
        "tables": {"keys": {"shop.a": ["id"]}},
    }
    world = make()
    world.settings = untold
    put(world, 1, "/wA=")
    world.run()
    parked = world.table("a")
    assert parked.state == "parked"
    world.ts += 1
    folder = world.folder.parent / "export"
    folder.mkdir()
    (folder / "metadata").write_text(dumpling.METADATA.replace("470606910897520641", str(world.ts)))
    (folder / "shop.a-schema.sql").write_text(CREATE)
    (folder / "shop.a.000000000.sql").write_text("INSERT INTO `a` VALUES\n(1,x'ff00');\n")

    printed = commands(str(parked))
    assert printed.keys() == {"load"}, str(parked)
    world.obey(re.sub("--from DIR", f"--from {folder}", printed["load"]))
    put(world, -1, "AAE=")
    world.run()

    rows: dict[int, object] = {**world.rows("a")}
    assert rows == {1: b"\xff\x00", 2**64 - 1: b"\x00\x01"}
    assert world.status().exit_code == 0
