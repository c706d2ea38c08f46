"""What ended the last run: `applier status` says it, until a step is done, and its way out can be gone."""

from __future__ import annotations

import base64
import io
import json
import re
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastavro
import pytest

from applier.changefeed.ts import wall_clock
from applier.decode import protocols
from tests.fake_registry import Answer, FakeRegistry, fake_registry
from tests.spark.feeds import read
from tests.spark.world import START, Make, World
from tests.unit.decode.avro_messages import EXTENSION, ID, column, record

pytestmark = pytest.mark.spark

KEY, ROW = record(ID), record(ID, column("v", "TEXT", "string", null="first", default=None), *EXTENSION)
"""Ids 1 and 2."""


class AvroFeed:
    """Messages of Avro in the folder of a world's archive."""

    def __init__(self, world: World, registry: FakeRegistry) -> None:
        self._world, self._registry = world, registry
        self._lines: dict[str, list[dict[str, Any]]] = {}
        self.ts = START
        world.settings |= {"changefeed": {"protocol": "avro"}, "registry": {"url": registry.url}}
        self.give({1: KEY, 2: ROW})

    def give(self, schemas: dict[int, Any]) -> None:
        """Let the registry give these schemas for ids, and know no others."""
        self._registry.scripts.clear()
        for number, schema in schemas.items():
            self._registry.on(f"/schemas/ids/{number}", Answer(200, {"schema": json.dumps(schema)}))

    def ddl(self, sql: str, database: str = "shop", topic: str = "avro") -> None:
        """A DDL."""
        self.ts += 1
        body = {"query": sql, "type": 1, "schema": database, "table": "", "commitTs": self.ts}
        self._put(topic, None, b"\x01" + json.dumps(body).encode())

    def row(
        self, key: int, value: str, topic: str = "avro", schemas: tuple[Any, Any] = (KEY, ROW), ids: int = 1
    ) -> None:
        """A new row, whose schemas have two ids in a row."""
        self.ts += 1
        extension = {"_tidb_op": "c", "_tidb_commit_ts": self.ts, "_tidb_commit_physical_time": self.ts >> 18}
        self._put(
            topic,
            _framed(ids, schemas[0], {"id": key}),
            _framed(ids + 1, schemas[1], {"id": key, "v": value} | extension),
        )

    def mark(self, *topics: str) -> int:
        """A watermark."""
        self.ts += 1
        for topic in topics or ("avro",):
            self._put(topic, None, b"\x02" + struct.pack(">Q", self.ts))
        return self.ts

    def lose(self, topic: str) -> None:
        """Let the source lose a topic's messages; the next ones have higher offsets."""
        self._lines[topic] = [{} for _ in self._lines[topic]]
        self._write()

    def _put(self, topic: str, key: bytes | None, value: bytes) -> None:
        lines = self._lines.setdefault(topic, [])
        body = {"topic": topic, "partition": 0, "offset": len(lines), "timestamp": self.ts >> 18}
        text = {
            "key": None if key is None else base64.b64encode(key).decode(),
            "value": base64.b64encode(value).decode(),
        }
        lines.append(body | text)
        self._write()

    def _write(self) -> None:
        self._world.folder.mkdir(exist_ok=True)
        lines = (line for found in self._lines.values() for line in found if line)
        (self._world.folder / "avro.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def _framed(number: int, schema: Any, values: dict[str, Any]) -> bytes:
    body = io.BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(json.loads(json.dumps(schema))), values)
    return b"\0" + struct.pack(">I", number) + body.getvalue()


def _export(folder: Path, tso: int, rows: dict[int, str], database: str = "shop", table: str = "t") -> Path:
    """What Dumpling writes of a table, as far as it is read."""
    folder.mkdir()
    (folder / "metadata").write_text(
        f"Started dump at: {wall_clock(tso):%F %T}\nSHOW MASTER STATUS:\n\tLog: tidb-binlog\n\tPos: {tso}\n\tGTID:\n\n"
        f"Finished dump at: {wall_clock(tso):%F %T}\n"
    )
    (folder / f"{database}-schema-create.sql").write_text(f"CREATE DATABASE `{database}`;\n")
    declared = f"CREATE TABLE `{table}` (`id` BIGINT PRIMARY KEY, `v` TEXT);\n"
    (folder / f"{database}.{table}-schema.sql").write_text(declared)
    values = ",\n".join(f"({key},'{value}')" for key, value in rows.items())
    (folder / f"{database}.{table}.000000000.sql").write_text(f"INSERT INTO `{table}` VALUES\n{values};\n")
    return folder


@pytest.fixture
def feed(make: Make) -> Iterator[tuple[World, AvroFeed]]:
    """A changefeed of Avro, with a registry that can be rebuilt."""
    with fake_registry() as registry:
        made = make()
        yield made, AvroFeed(made, registry)


@pytest.mark.soak
def test_a_stop_for_a_rebuilt_registry_is_seen_and_its_way_out_can_be_gone(
    feed: tuple[World, AvroFeed], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The schemas come back; or everything begins anew, from an export."""
    world, avro = feed
    avro.ddl("CREATE TABLE t (id BIGINT PRIMARY KEY, v TEXT)")
    avro.row(1, "one")
    avro.mark()
    world.start()
    assert world.rows("t") == {1: "one"}

    other = record(ID, name="u")
    avro.give({1: KEY, 2: other})
    avro.row(2, "two")
    avro.mark()
    said = world.obey(f"applier run -c {world.path} --once", code=3)
    (stale,) = map(str, world.status().stale)
    assert stale.startswith(f"The last run of changefeed {world.name} ended at ")
    assert stale.partition(": ")[2] == said.strip().splitlines()[-1]

    avro.give({1: KEY, 2: ROW})
    world.start()
    assert world.status().stale == ()
    assert world.rows("t") == {1: "one", 2: "two"}

    avro.give({1: record(ID, name="u"), 2: other, 3: KEY, 4: ROW})
    avro.row(3, "three")
    world.obey(f"applier run -c {world.path} --once", code=3)
    (stale,) = map(str, world.status().stale)
    avro.lose("avro")
    folder = _export(tmp_path / "export", avro.mark(), {1: "one", 2: "two", 3: "three"})
    avro.row(4, "four", ids=3)
    avro.mark()
    monkeypatch.setattr(protocols, "_OF_THREAD", threading.local())  # Each command is a process of its own.
    for command in re.findall(r"`(applier [^`]*)`", stale):
        world.obey(command.replace("DIR", str(folder)))
    world.start()
    assert world.status().stale == ()
    assert world.rows("t") == {1: "one", 2: "two", 3: "three", 4: "four"}


TWINS = record(ID, namespace="default.my_db"), record(*ROW["fields"], namespace="default.my_db")
"""Schemas of `my-db.t` and of `my_db.t`."""


def _rows(world: World, database: str, table: str = "t") -> dict[int, str]:
    return {row["id"]: row["v"] for row in read(world.spark, (f"{world.name}__{database}", table)).to_pylist()}


@pytest.mark.soak
def test_twins_in_avro_that_are_parked_come_back_as_the_reason_says(
    feed: tuple[World, AvroFeed], tmp_path: Path
) -> None:
    """One of them gets another name upstream; then both are loaded from an export."""
    world, avro = feed
    avro.give({1: TWINS[0], 2: TWINS[1]})
    for database in ("my-db", "my_db"):
        avro.ddl("CREATE TABLE t (id BIGINT PRIMARY KEY, v TEXT)", database)
    avro.row(1, "one", schemas=TWINS)
    avro.mark()
    world.start()
    (reason,) = map(str, world.status().stale)
    assert reason.startswith("Tables my-db.t and my_db.t are parked")
    assert "One alone may have it" in reason
    assert "applier resume" not in reason

    avro.ddl("RENAME TABLE my_db.t TO my_db.u")
    avro.row(2, "two", schemas=TWINS)
    folder = _export(tmp_path / "export", avro.mark(), {1: "one", 2: "two"}, "my-db")
    avro.row(3, "three", schemas=TWINS)
    avro.mark()
    (load,) = re.findall(r"`(applier load [^`]*--tables )'", reason)
    world.obey(f"{load.replace('DIR', str(folder))}'`my-db`.`t`'")  # The other one is `my_db.u` now.
    world.start()
    assert _rows(world, "my-db") == {1: "one", 2: "two", 3: "three"}

    (reason,) = map(str, world.status().stale)
    assert reason.startswith("Table my_db.u is parked")
    folder = _export(tmp_path / "again", avro.mark(), {5: "five"}, "my_db", "u")
    avro.mark()
    (load,) = re.findall(r"`(applier load [^`]*)`", reason)
    world.obey(load.replace("DIR", str(folder)))
    world.start()
    assert world.status().stale == ()


def test_topics_of_ddl_outlast_a_restart_before_the_rows(feed: tuple[World, AvroFeed]) -> None:
    """Two tables that are one in Avro come in a topic each; the second applier reads no DDL."""
    world, avro = feed
    avro.give({1: TWINS[0], 2: TWINS[1]})
    topics = {"my-db": "here", "my_db": "there"}
    for database, topic in topics.items():
        avro.ddl("CREATE TABLE t (id BIGINT PRIMARY KEY, v TEXT)", database, topic)
    avro.mark(*topics.values())
    world.start()
    avro.row(1, "one", "here", TWINS)
    avro.row(2, "two", "there", TWINS)
    avro.mark(*topics.values())
    world.start()

    assert world.status().stale == ()
    assert [_rows(world, database) for database in topics] == [{1: "one"}, {2: "two"}]


def test_checkpoints_that_others_dropped_come_back_by_the_printed_sql(make: Make) -> None:
    """Where the feed has lost its first messages, nothing else shows which rows the tables lack."""
    world = make()
    world.create("a")
    world.put("a", 1)
    world.resolve()
    world.run()
    space = f"applier_{world.name}"
    described = {row[0]: row[1] for row in world.spark.sql(f"DESCRIBE EXTENDED lake.{space}.checkpoints").collect()}
    world.spark.sql(f"DROP TABLE lake.{space}.checkpoints")
    world.put("a", 2)
    world.resolve()
    world.lose(1)

    told = world.obey(f"applier run -c {world.path} --once --take-over", code=3)
    found = re.search(r"`(CALL [^`]*)`", told)
    assert found is not None
    folder = Path(described["Location"].removeprefix("file:")) / "metadata"
    newest = max(folder.glob("*.metadata.json"))
    world.spark.sql(found[1].replace("'FILE'", f"'{newest}'"))
    world.start()

    assert (world.keys("a"), world.table("a").state) == ({1, 2}, "in step")
