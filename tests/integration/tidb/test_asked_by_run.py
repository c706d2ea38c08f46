"""`applier run` follows DDL of a real TiDB whose values no message shows, and asks the TiDB for them."""

from __future__ import annotations

import base64
import gzip
import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from applier.changefeed.table import TableName
from tests import expected
from tests.handmade import Canal, Change, Columns, Message
from tests.integration.tidb import corpus, ranged, stored
from tests.recovery.process import Applier, Ended, once
from tests.replay import Replay
from tests.services.tidb import Tidb

DATABASE = "asked_run"
CODES = {"int": 4, "timestamp": 93, "double": 8, "varchar(20)": 12, "datetime": 93, "float(7,2)": 7}
KEYED = {"id": "int", "at": "timestamp", "ratio": "double", "day": "varchar(20)"}
LOOSE = {"id": "int", "at": "timestamp"}


class Feed:
    """What TiCDC would send of statements that are run in a TiDB in Shanghai, in no strict mode."""

    def __init__(self, tidb: Tidb) -> None:
        ranged.keep_past(tidb)
        tidb.run(f"DROP DATABASE IF EXISTS {DATABASE}")
        self.tidb, self.wire, self.messages = tidb, Canal(), list[Message]()
        self.kinds = {"t": dict(KEYED), "loose": dict(LOOSE)}
        self._ran(f"CREATE DATABASE IF NOT EXISTS {DATABASE}", "QUERY", "")

    def _ran(self, statement: str, kind: str, table: str) -> None:
        with stored.session(self.tidb, "", "Asia/Shanghai", DATABASE) as cursor:
            cursor.execute(statement)
        self.wire.of = Columns(DATABASE, "id")
        self.messages.append(self.wire.ddl(statement, self.now, kind, table, ()))

    @property
    def now(self) -> int:
        """A TSO behind all so far."""
        return int(self.tidb.rows("SHOW MASTER STATUS")[0][1])

    def create(self, table: str, key: str = "") -> None:
        """CREATE TABLE, with three rows."""
        columns = ", ".join(f"{name} {kind}" for name, kind in self.kinds[table].items())
        self._ran(f"CREATE TABLE {table} ({columns}{key})", "CREATE", table)
        shown = {"id": "{0}", "at": "'2024-06-0{0} 12:00:00'", "ratio": "{0}.245", "day": "'{0}x'"}
        for number in (1, 2, 3):
            cells = ", ".join(shown[name].format(number) for name in self.kinds[table])
            self.tidb.run(f"INSERT INTO {DATABASE}.{table} VALUES ({cells})")
            self.row(table, number)
        self.watermark(self.now)

    def alter(self, table: str, name: str, kind: str, what: str) -> None:
        """A change of one column, whose type is another one from here on."""
        self._ran(f"ALTER TABLE {table} {what}", "ALTER", table)
        self.kinds[table][name] = kind

    def row(self, table: str, number: int, old: dict[str, Any] | None = None) -> dict[str, Any]:
        """Send a row as it is."""
        kinds = self.kinds[table]
        (cells,) = self.tidb.rows(f"SELECT {', '.join(kinds)} FROM {DATABASE}.{table} WHERE id = {number}")
        row = dict(zip(kinds, cells, strict=True))
        self.wire.of = Columns(DATABASE, "id")
        key, value = self.wire.row(Change(table, [name for name in kinds if name != "id"], old, row), self.now)
        types = {"mysqlType": kinds, "sqlType": {name: CODES[kind] for name, kind in kinds.items()}}
        keyed = {} if table == "t" else {"pkNames": None}
        self.messages.append((key, json.dumps(json.loads(value) | types | keyed).encode()))
        return row

    def watermark(self, ts: int) -> None:
        """A resolved ts."""
        self.messages.append(self.wire.watermark(ts))

    def replay(self, folder: Path, name: str) -> Replay:
        """A changefeed that reads it."""
        with gzip.open(folder / "feed.jsonl.gz", "wt") as file:
            for offset, message in enumerate(self.messages):
                key, value = (None if part is None else base64.b64encode(part).decode() for part in message)
                record = {"topic": "t", "partition": 0, "offset": offset, "key": key, "value": value}
                file.write(json.dumps(record) + "\n")
        lake = {"type": "jdbc", "uri": f"jdbc:sqlite:{folder}/catalog.db", "warehouse": f"{folder}/tables"}
        raw = {
            "changefeed": {"name": name, "protocol": "canal-json", "timezone": "UTC"},
            "source": {"archive": str(folder / "feed.jsonl.gz")},
            "catalog": {"name": "lake", **lake},
            "tables": {"route": f"{name}__{{database}}.{{table}}"},
        }
        return Replay("", "", name, lake, raw)


@pytest.fixture(scope="module")
def feed(tidb: Tidb) -> Feed:
    """Two tables, the second without a key, with DDL of which no message shows the values."""
    feed = Feed(tidb)
    feed.create("t", ", PRIMARY KEY (id)")
    feed.create("loose")
    feed.alter("t", "made", "datetime", "ADD COLUMN made DATETIME DEFAULT CURRENT_TIMESTAMP")
    feed.alter("t", "at", "datetime", "MODIFY COLUMN at DATETIME")
    feed.alter("t", "ratio", "float(7,2)", "MODIFY COLUMN ratio FLOAT(7,2)")
    feed.alter("t", "day", "int", "MODIFY COLUMN day INT")
    feed.alter("loose", "at", "datetime", "MODIFY COLUMN at DATETIME")
    (cells,) = tidb.rows(f"SELECT {', '.join(feed.kinds['t'])} FROM {DATABASE}.t WHERE id = 1")
    tidb.run(f"UPDATE {DATABASE}.t SET ratio = 9.5, made = '2020-02-02 00:00:00', at = NULL WHERE id = 1")
    feed.row("t", 1, dict(zip(feed.kinds["t"], cells, strict=True)))
    feed.watermark(feed.now + (1 << 40))
    return feed


def differing(tidb: Tidb, found: Replay) -> list[str]:
    """Tables that are not what SQL shows."""
    wanted = corpus.shown(tidb, DATABASE).items()
    return [
        name.table
        for name, table in wanted
        if expected.bag(found.contents(name) or []) != expected.bag(expected.rows(table))
    ]


def hint_of(ended: Ended, table: str) -> dict[str, Any]:
    """The event that says that a table was parked."""
    name = str(TableName(DATABASE, table))
    return next(event for event in ended.events if event["event"] == "table parked" and event["table"] == name)


def test_what_tidb_alone_knows_is_asked_there(feed: Feed, tidb: Tidb, tmp_path: Path) -> None:
    """A default and three changes of type; a table without a key is parked, until the printed command heals it."""
    found = feed.replay(tmp_path, "asks")
    found.raw["upstream"] = {"url": f"mysql://root@127.0.0.1:{tidb.port}"}

    ended = once(found.raw, tmp_path)

    assert [event["table"] for event in ended.events if event["event"] == "table parked"] == [f"{DATABASE}.loose"]
    assert differing(tidb, found) == ["loose"], ended.everything
    parked = hint_of(ended, "loose")
    assert "TiDB was asked: Rows of table" in parked["because"]
    command = re.search(r"`applier (load) (-c \S+ --tables \S+)`", parked["way_out"])
    assert command is not None, parked["way_out"]
    options = [option for option in shlex.split(command[2]) if option not in ("-c", str(tmp_path / "applier.toml"))]
    loaded = Applier(found.raw, tmp_path, *options, command=command[1]).wait()
    assert loaded.code == 0, loaded.everything
    assert once(found.raw, tmp_path).code == 0
    assert differing(tidb, found) == []


@pytest.mark.soak
def test_a_parked_table_resumes_once_tidb_is_named(feed: Feed, tidb: Tidb, tmp_path: Path) -> None:
    """Without it both are parked; a job that brings one back asks as of each statement."""
    found = feed.replay(tmp_path, "asks_later")
    ended = once(found.raw, tmp_path)
    assert differing(tidb, found) == ["loose", "t"]
    assert "TiDB was asked" not in ended.everything
    found.raw["upstream"] = {"url": f"mysql://root@127.0.0.1:{tidb.port}"}

    resumed = Applier(found.raw, tmp_path, "--tables", f"{DATABASE}.t", command="resume").wait()

    assert resumed.code == 0, resumed.everything
    ended = once(found.raw, tmp_path)
    assert differing(tidb, found) == ["loose"], ended.everything


@pytest.mark.soak
def test_a_tidb_that_does_not_hold_the_moment_parks(feed: Feed, tidb: Tidb, tmp_path: Path) -> None:
    """The reason names where garbage collection is."""
    found = feed.replay(tmp_path, "asks_late")
    found.raw["upstream"] = {"url": f"mysql://root@127.0.0.1:{tidb.port}"}
    past = "20160102-15:04:05 -0700"
    tidb.run("UPDATE mysql.tidb SET variable_value = '20990102-15:04:05 -0700' WHERE variable_name LIKE '%safe_point'")
    try:
        ended = once(found.raw, tmp_path)
    finally:
        tidb.run(f"UPDATE mysql.tidb SET variable_value = '{past}' WHERE variable_name LIKE '%safe_point'")

    because = hint_of(ended, "t")["because"]
    assert "TiDB was asked: TiDB" in because
    assert "no longer holds that moment: garbage collection has come to 2099" in because
