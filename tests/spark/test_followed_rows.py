"""Columns that rows of Debezium alone show: none is changed twice, and a wider type is followed."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import pytest

from tests.few import few
from tests.spark.ddl_applier import Crash
from tests.spark.feeds import read
from tests.spark.world import START, Make, World

pytestmark = pytest.mark.spark

_CONNECT = {"int": "int32", "bigint": "int64", "bigint unsigned": "int64"}


def put(world: World, kinds: Mapping[str, str], row: Mapping[str, Any]) -> None:
    """A new row of shop.t, whose columns have these types."""
    world.ts += 1
    world.settings |= {"changefeed": {"protocol": "debezium", "order": "offset"}}
    fields = [
        {"tidb_type": kind, "type": _CONNECT[kind], "optional": name != "id", "field": name}
        for name, kind in kinds.items()
    ]
    image = {"type": "struct", "optional": True, "name": "default.shop.t.Value", "fields": fields}
    images = [{**image, "field": "before"}, {**image, "field": "after"}]
    source = {"connector": "TiCDC", "name": "default", "db": "shop", "table": "t", "commit_ts": world.ts}
    source |= {"version": "2.4.0.Final", "ts_ms": world.ts >> 18, "snapshot": "false", "cluster_id": "default"}
    value = {
        "payload": {"source": source, "ts_ms": 1, "transaction": None, "op": "c", "before": None, "after": row},
        "schema": {"type": "struct", "optional": False, "name": "default.shop.t.Envelope", "fields": images},
    }
    keys = {"type": "struct", "name": "default.shop.t.Key", "optional": False, "fields": fields[:1]}
    key = {"payload": {"id": row["id"]}, "schema": keys}
    packed, text = (base64.b64encode(json.dumps(part).encode()).decode() for part in (key, value))
    line = {"topic": "t", "partition": 0, "offset": world.ts - START - 1, "timestamp": world.ts >> 18}
    world.folder.mkdir(exist_ok=True)
    with (world.folder / "debezium.jsonl").open("a") as file:
        file.write(json.dumps({**line, "key": packed, "value": text}) + "\n")


def rows(world: World) -> list[dict[str, Any]]:
    """The rows of shop.t, which may lack the beginning of the table, by their key."""
    (line,) = world.status().tables
    assert line.state == "incomplete", line.because
    return sorted(read(world.spark, (f"{world.name}__shop", "t")).to_pylist(), key=lambda row: row["id"])


@pytest.mark.parametrize(
    ("before", "after"),
    few(
        [
            ({"id": "int", "v": "int", "b": "int"}, {"id": "int", "v": "int"}),
            ({"id": "int", "v": "int"}, {"id": "int", "v": "bigint"}),
            ({"id": "int", "v": "bigint"}, {"id": "int", "v": "bigint unsigned"}),
            ({"id": "int", "v": "int"}, {"id": "bigint", "v": "int"}),
        ],
        2,
    ),
    ids=["drop", "widen", "unsigned", "widen the key"],
)
def test_what_rows_changed_is_not_changed_again_behind_a_crash(
    make: Make, crash: Callable[[str], None], before: Mapping[str, str], after: Mapping[str, str]
) -> None:
    """The step that failed has changed the Iceberg table, and no checkpoint says so."""
    world = make()
    put(world, before, dict.fromkeys(before, 1))
    world.run()
    put(world, after, dict.fromkeys(after, 2))
    crash("applied")
    with suppress(Crash):
        world.run()
    put(world, after, dict.fromkeys(after, 3))
    world.run()
    assert rows(world) == [dict.fromkeys(after, key) for key in (1, 2, 3)]
