"""Rows that messages hold by their key alone are those of a real TiDB as of their commit ts."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from applier.changefeed.table import TableName
from applier.errors import TransientError
from applier.runtime.outages import system_of
from tests import expected
from tests.integration.tidb import corpus, feed
from tests.recovery.process import Applier, once
from tests.replay import Replay
from tests.services.process import free_ports
from tests.services.tidb import Tidb

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEYS = {
    "wide": {"id": "int"},
    "timed": {"code": "varbinary(8)", "at": "datetime(3)"},
    "mixed": {"id": "bigint"},
}
CREATES = {
    "wide": "CREATE TABLE wide (id INT PRIMARY KEY, name VARCHAR(40), n DECIMAL(10,2), at TIMESTAMP(3) NULL, doc JSON, "
    "raw VARBINARY(20), ratio FLOAT, kind ENUM('a','b'), some SET('x','y'), bits BIT(10), y YEAR, "
    "twice INT AS (id * 2) VIRTUAL)",
    "timed": "CREATE TABLE timed (code VARBINARY(8), at DATETIME(3), v LONGTEXT, PRIMARY KEY (code, at))",
    "mixed": "CREATE TABLE mixed (id BIGINT, v VARCHAR(3000), PRIMARY KEY (id))",
}


class Reduced:
    """A changefeed in Canal-JSON of statements that are run in a TiDB."""

    def __init__(self, tidb: Tidb, database: str) -> None:
        feed.now(tidb)
        self.tidb, self.database = tidb, database
        self.messages: list[dict[str, Any]] = []
        tidb.run(f"DROP DATABASE IF EXISTS {database}")
        self.ddl("", f"CREATE DATABASE {database}")
        for table, text in CREATES.items():
            self.ddl(table, text)

    def _add(self, table: str, kind: str, **more: Any) -> None:
        tso = feed.now(self.tidb)
        plain = {"id": 0, "database": self.database, "table": table, "pkNames": None, "isDdl": False, "sql": ""}
        plain |= {"es": tso >> 18, "ts": 1, "sqlType": None, "mysqlType": None, "data": None, "old": None}
        extension = {"commitTs": tso} | more.pop("tidb", {})
        self.messages.append(plain | {"type": kind, "_tidb": extension} | more)

    def ddl(self, table: str, text: str) -> None:
        """Run a DDL, and send it."""
        self.tidb.run(*([f"USE {self.database}"] if table else []), text)
        kind = "CREATE" if text.startswith("CREATE TABLE") else "ALTER" if table else "QUERY"
        self._add(table, kind, isDdl=True, sql=text)

    def change(self, table: str, kind: str, text: str, *keys: Mapping[str, str]) -> None:
        """Run a statement, and send the keys of its rows: the first one is that of before, if there are two."""
        self.tidb.run(f"USE {self.database}", text)
        kinds = KEYS[table]
        named = {"pkNames": list(kinds), "mysqlType": kinds, "sqlType": dict.fromkeys(kinds, 12)}
        more: dict[str, Any] = {"old": [keys[0]]} if kind == "UPDATE" else {}
        self._add(table, kind, data=[keys[-1]], tidb={"onlyHandleKey": True}, **named, **more)

    def whole(self, kind: str, text: str, number: int, value: str) -> None:
        """Run a statement that leaves a row of `mixed`, and send it whole."""
        self.tidb.run(f"USE {self.database}", text)
        kinds, row = {"id": "bigint", "v": "varchar(3000)"}, {"id": str(number), "v": value}
        named = {"pkNames": ["id"], "mysqlType": kinds, "sqlType": {"id": -5, "v": 12}}
        self._add("mixed", kind, data=[row], old=[row] if kind == "UPDATE" else None, **named)

    def watermark(self, ahead: int = 0) -> None:
        """A resolved ts, that of now or one ahead of it."""
        tso = feed.now(self.tidb) + ahead
        self._add("", "TIDB_WATERMARK", database="", tidb={"watermarkTs": tso})

    def replay(self, folder: Path, name: str, lake: dict[str, str], url: str = "", **changefeed: Any) -> Replay:
        """A changefeed that reads what was sent so far."""
        path = folder / "feed.jsonl.gz"
        with gzip.open(path, "wt") as file:
            for offset, message in enumerate(self.messages):
                value = base64.b64encode(json.dumps(message).encode()).decode()
                record = {"topic": "t", "partition": 0, "offset": offset, "key": None, "value": value}
                file.write(json.dumps(record) + "\n")
        raw = {
            "changefeed": {"name": name, "protocol": "canal-json", "timezone": "UTC", **changefeed},
            "source": {"archive": str(path)},
            "catalog": {"name": "lake", **lake},
            "tables": {"route": f"{name}__{{database}}.{{table}}"},
            "upstream": {"url": url or f"mysql://root@127.0.0.1:{self.tidb.port}"},
        }
        return Replay("", "", name, lake, raw)

    def fill(self) -> None:
        """Rows that are made, changed several times, moved to another key, and deleted; DDL among them."""
        one, two = {"id": "1"}, {"id": "2"}
        self.change("wide", "INSERT", WIDE.format(1, "name 1", "a"), one)
        self.change("wide", "INSERT", WIDE.format(2, "汉字 \\\\ 😀", "b"), two)
        self.change("wide", "UPDATE", "UPDATE wide SET n = -0.5, doc = NULL WHERE id = 1", one, one)
        self.ddl("wide", "ALTER TABLE wide ADD COLUMN extra VARCHAR(20) DEFAULT 'later'")
        self.change("wide", "INSERT", "INSERT INTO wide (id, extra) VALUES (3, 'own')", {"id": "3"})
        self.change("wide", "UPDATE", "UPDATE wide SET id = 20 WHERE id = 2", two, {"id": "20"})
        self.ddl("wide", "ALTER TABLE wide DROP COLUMN name")
        self.change("wide", "UPDATE", "UPDATE wide SET ratio = 1.25 WHERE id = 3", {"id": "3"}, {"id": "3"})
        key = {"code": "\x00a'\\", "at": "2024-02-29 23:59:59.999"}
        text = "INSERT INTO timed VALUES (x'0061275c', '2024-02-29 23:59:59.999', REPEAT('long ', 500))"
        self.change("timed", "INSERT", text, key)
        for number in range(40):
            self.whole("INSERT", f"INSERT INTO mixed VALUES ({number}, 'short')", number, "short")
        self.change("mixed", "UPDATE", "UPDATE mixed SET v = REPEAT('x', 2500) WHERE id = 5", {"id": "5"}, {"id": "5"})
        self.change("mixed", "UPDATE", "UPDATE mixed SET v = REPEAT('y', 2500) WHERE id = 6", {"id": "6"}, {"id": "6"})
        self.whole("UPDATE", "UPDATE mixed SET v = 'short again' WHERE id = 6", 6, "short again")
        self.change("mixed", "DELETE", "DELETE FROM mixed WHERE id = 7", {"id": "7"})


WIDE = (
    "INSERT INTO wide (id, name, n, at, doc, raw, ratio, kind, some, bits, y) VALUES ({}, '{}', 12.34, "
    "'2024-06-01 12:00:00.123', '{{\"k\": [1, 2.5, null]}}', x'00ff27', 0.1, '{}', 'x,y', 513, 2024)"
)


def differing(wanted: Mapping[TableName, Any], found: Replay) -> list[str]:
    """Tables that are not what SQL showed, with the rows that differ."""
    pairs = [
        (name, expected.bag(found.contents(name) or []), expected.bag(expected.rows(wanted[name]))) for name in wanted
    ]
    return [f"{name.table} {sorted(set(has) ^ set(rows))[:4]}" for name, has, rows in pairs if has != rows]


@pytest.mark.parametrize("order", ["resolved", "offset"])
def test_tables_are_what_sql_showed_as_of_then(
    order: str, tidb: Tidb, spark: SparkSession, lake: dict[str, str], tmp_path: Path
) -> None:
    """Also where TiDB went on before the rows were read, and after a restart."""
    made = Reduced(tidb, f"reduced_{order}")
    made.fill()
    made.watermark()
    wanted = corpus.shown(tidb, made.database)
    sent = len(made.messages)
    made.change("wide", "UPDATE", "UPDATE wide SET n = 99, kind = 'b' WHERE id = 1", {"id": "1"}, {"id": "1"})
    made.change("wide", "DELETE", "DELETE FROM wide WHERE id = 20", {"id": "20"})
    made.ddl("wide", "ALTER TABLE wide ADD COLUMN last INT")
    made.change("wide", "UPDATE", "UPDATE wide SET last = 3 WHERE id = 3", {"id": "3"}, {"id": "3"})
    made.watermark()
    later, made.messages = made.messages, made.messages[:sent]
    found = made.replay(tmp_path, f"reduced_{order}", lake, order=order)
    with found.running(spark) as pipeline:
        while (step := pipeline.step(pipeline.ends())).moved:
            assert step.error is None
        assert not pipeline.state.parked
    assert differing(wanted, found) == []

    made.messages = later
    found = made.replay(tmp_path, f"reduced_{order}", lake, order=order)
    with found.running(spark) as pipeline:
        while (step := pipeline.step(pipeline.ends())).moved:
            assert step.error is None
        assert not pipeline.state.parked
    assert differing(corpus.shown(tidb, made.database), found) == []


def test_an_outage_is_waited_for(tidb: Tidb, spark: SparkSession, lake: dict[str, str], tmp_path: Path) -> None:
    """Nothing of the window is applied until TiDB answers."""
    made = Reduced(tidb, "reduced_outage")
    made.fill()
    made.watermark()
    found = made.replay(tmp_path, "reduced_outage", lake, f"mysql://root@127.0.0.1:{free_ports(1)[0]}")
    with found.running(spark) as pipeline, pytest.raises(TransientError, match="cannot be reached") as caught:
        pipeline.step(pipeline.ends())
    assert system_of(caught.value) == "other"
    assert not found.tables()

    found = made.replay(tmp_path, "reduced_outage", lake)
    with found.running(spark) as pipeline:
        while pipeline.step(pipeline.ends()).moved:
            pass
    assert differing(corpus.shown(tidb, made.database), found) == []


def test_a_key_that_tidb_does_not_have_parks_its_table(
    tidb: Tidb, spark: SparkSession, lake: dict[str, str], tmp_path: Path
) -> None:
    """As a dead letter it is set aside alone, among rows of the same commit ts."""
    made = Reduced(tidb, "reduced_unknown")
    made.fill()
    made.change("mixed", "INSERT", "SELECT 1", {"id": "777"})
    for number in (8, 9):
        text = f"UPDATE mixed SET v = REPEAT('z', 2500) WHERE id = {number}"
        made.change("mixed", "UPDATE", text, {"id": str(number)}, {"id": str(number)})
    ts = feed.now(tidb)
    for message in made.messages[-3:]:
        message["_tidb"]["commitTs"] = ts
    made.watermark()
    wanted = corpus.shown(tidb, made.database)
    mixed = TableName(made.database, "mixed")
    found = made.replay(tmp_path, "reduced_unknown", lake)
    with found.running(spark) as pipeline:
        while pipeline.step(pipeline.ends()).moved:
            pass
        reason = pipeline.state.completeness[mixed].reason
        assert pipeline.state.parked == {mixed}
    assert (
        f"A row of {mixed} holds key columns only, because large-message-handle-option is handle-key-only. TiDB was "
        f"asked: TiDB 127.0.0.1:{tidb.port} does not show table {mixed}: rows are here, and none of them was there then"
    ) in reason.detail
    assert reason.mend == "Name the TiDB of the changefeed in upstream.url."
    assert [line.partition(" ")[0] for line in differing(wanted, found)] == ["mixed"]

    found = made.replay(tmp_path, "reduced_letters", lake, on_bad_message="dead_letter")
    with found.running(spark) as pipeline:
        while pipeline.step(pipeline.ends()).moved:
            pass
        assert not pipeline.state.parked
    assert differing(wanted, found) == []


def test_a_moment_that_is_gone_parks_until_it_is_resumed_or_loaded(tidb: Tidb, tmp_path: Path) -> None:
    """The reason names where garbage collection is; where TiDB has the moment after all, `resume` is enough."""
    made = Reduced(tidb, "reduced_gone")
    made.fill()
    made.watermark()
    made.watermark(1 << 40)
    lake = {"type": "jdbc", "uri": f"jdbc:sqlite:{tmp_path}/catalog.db", "warehouse": f"{tmp_path}/tables"}
    found = made.replay(tmp_path, "reduced_gone", lake)
    past = "20160102-15:04:05 -0700"
    tidb.run("UPDATE mysql.tidb SET variable_value = '20990102-15:04:05 -0700' WHERE variable_name LIKE '%safe_point'")
    try:
        ended = once(found.raw, tmp_path)
    finally:
        tidb.run(f"UPDATE mysql.tidb SET variable_value = '{past}' WHERE variable_name LIKE '%safe_point'")

    parked = [event for event in ended.events if event["event"] == "table parked"]
    assert {event["table"].rpartition(".")[2] for event in parked} == set(KEYS), ended.everything
    assert all("no longer holds that moment: garbage collection has come to 2099" in it["because"] for it in parked)
    assert all("SET GLOBAL tidb_gc_life_time = '24h' it keeps more" in it["because"] for it in parked)
    assert all("applier load -c" in it["way_out"] and "--tables" in it["way_out"] for it in parked)

    resumed = Applier(found.raw, tmp_path, "--tables", f"{made.database}.*", command="resume").wait()
    assert resumed.code == 0, resumed.everything
    ended = once(found.raw, tmp_path)
    assert ended.code == 0, ended.everything
    assert differing(corpus.shown(tidb, made.database), found) == [], ended.everything


def test_a_feed_without_ddl_makes_its_tables_of_what_tidb_shows(
    tidb: Tidb, spark: SparkSession, lake: dict[str, str], tmp_path: Path
) -> None:
    """The first row of a table may be one that no message holds; whole rows follow it, and a restart."""
    made = Reduced(tidb, "reduced_midstream")
    made.fill()
    made.messages = [message for message in made.messages if message["data"] and message["table"] != "wide"]
    made.watermark()
    wanted = {name: table for name, table in corpus.shown(tidb, made.database).items() if name.table != "wide"}
    found = made.replay(tmp_path, "reduced_midstream", lake, start="midstream")
    for _ in range(2):
        with found.running(spark) as pipeline:
            while (step := pipeline.step(pipeline.ends())).moved:
                assert step.error is None
            assert not pipeline.state.parked
        assert differing(wanted, found) == []
