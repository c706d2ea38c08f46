"""`applier verify` beside steps that go on: what it compares is as of the checkpoint that it read."""

from __future__ import annotations

import base64
import gzip
import json
import random
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from applier.commands.follower import Follower
from applier.commands.status import command as status
from applier.commands.verify import command
from applier.commands.verify.against import find
from tests.integration.tidb.feed import now, replay
from tests.integration.tidb.test_verify import verified
from tests.replay import Replay
from tests.services.tidb import Tidb

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME = "verified_beside"

DDL = {
    18: "ALTER TABLE t ADD COLUMN c int DEFAULT 3",
    28: "ALTER TABLE t DROP COLUMN a",
    31: "ALTER TABLE t ADD COLUMN a int",
    44: "TRUNCATE TABLE t",
}
"""In which round which statement comes; in all others rows change."""

Row = dict[str, int | None]


def message(kind: str, commit_ts: int, **more: Any) -> dict[str, Any]:
    """In Canal-JSON, as TiCDC sends it."""
    known = {"id": 0, "database": NAME, "table": "t", "isDdl": "sql" in more, "type": kind, "es": 1, "ts": 1, "sql": ""}
    stamp = {"watermarkTs" if kind == "TIDB_WATERMARK" else "commitTs": commit_ts}
    return {**known, "data": None, "old": None, "_tidb": stamp, **more}


def change(commit_ts: int, kind: str, row: Row, old: Row | None = None) -> dict[str, Any]:
    """The message of a row."""
    texts = [None if it is None else {k: None if v is None else str(v) for k, v in it.items()} for it in (row, old)]
    types = {"pkNames": ["id"], "sqlType": dict.fromkeys(row, 4), "mysqlType": dict.fromkeys(row, "int")}
    return message(kind, commit_ts, **types, data=[texts[0]], old=texts[1] and [texts[1]])


def history(tidb: Tidb, lost: float = 0) -> Iterator[dict[str, Any]]:
    """Change a table in rounds, each with a watermark; what a feed says of it, but for so many of the changes."""
    dice, columns = random.Random(7), ["id", "a", "b"]
    create = "CREATE TABLE t (id int PRIMARY KEY, a int, b int)"
    tidb.run(f"DROP DATABASE IF EXISTS {NAME}", f"CREATE DATABASE {NAME}", f"USE {NAME}", create)
    yield message("CREATE", now(tidb), sql=create)
    rows: dict[int, Row] = {}
    for number in range(60):
        if number in DDL:
            tidb.run(f"USE {NAME}", DDL[number])
            ts = now(tidb)
            yield message("ALTER", ts, sql=DDL[number])
            columns = [
                name
                for (name,) in tidb.rows(
                    f"SELECT column_name FROM information_schema.columns WHERE "
                    f"table_schema = '{NAME}' ORDER BY ordinal_position"
                )
            ]
            shown = tidb.rows(f"SELECT {', '.join(columns)} FROM {NAME}.t")
            rows = {
                int(row[0]): {k: None if v is None else int(v) for k, v in zip(columns, row, strict=True)}
                for row in shown
            }
        else:
            changes: list[tuple[str, Row, Row | None]] = []
            for key in dice.sample(range(60), 12):
                old = rows.pop(key, None)
                if old is not None and dice.random() < 0.4:
                    changes.append(("DELETE", old, None))
                    continue
                row: Row = {name: key if name == "id" else dice.choice([None, dice.randrange(9)]) for name in columns}
                rows[key] = row
                changes.append(("INSERT" if old is None else "UPDATE", row, old))
            tidb.run(f"USE {NAME}", *(_statement(kind, row) for kind, row, _ in changes))
            ts = now(tidb)
            yield from (change(ts, *each) for each in changes if dice.random() >= lost)
        yield message("TIDB_WATERMARK", ts)


def _statement(kind: str, row: Row) -> str:
    if kind == "DELETE":
        return f"DELETE FROM t WHERE id = {row['id']}"
    cells = ", ".join("NULL" if cell is None else str(cell) for cell in row.values())
    return f"REPLACE INTO t ({', '.join(row)}) VALUES ({cells})"


def replayed(name: str, sent: Iterator[dict[str, Any]], tidb: Tidb, lake: dict[str, str], folder: Path) -> Replay:
    """A changefeed whose feed is these messages, a few in each step."""
    found = replay(name, 1, {"url": f"mysql://root@127.0.0.1:{tidb.port}"}, lake, folder)
    found.raw["source"]["messages_per_step"] = 13
    found.raw["tables"]["include"] = [f"{NAME}.*"]
    with gzip.open(folder / "feed.jsonl.gz", "wt") as file:
        for offset, one in enumerate(sent):
            value = base64.b64encode(json.dumps(one).encode()).decode()
            place = {"topic": "feed", "partition": 0, "offset": offset, "timestamp": 1, "key": None, "headers": []}
            file.write(json.dumps({**place, "value": value}) + "\n")
    return found


@pytest.mark.soak
def test_what_is_compared_is_as_of_the_checkpoint(
    tidb: Tidb, spark: SparkSession, lake: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many steps come between the checkpoint and the rows, and through DDL of each kind."""
    found = replayed("verifybeside", history(tidb), tidb, lake, tmp_path)
    moments = set[int]()
    with found.running(spark) as pipeline:
        turn, heads = Follower(pipeline).turn, status._tables
        while pipeline.state.resolved_ts < 2:
            turn()
        for number in range(18):

            def later(read: Any, *given: Any, steps: int = number % 3) -> Any:
                """What is read, behind some steps."""
                for _ in range(steps):
                    turn()
                return read(*given)

            # The heads of the tables, and then their upstream.
            monkeypatch.setattr(status, "_tables", partial(later, heads))
            monkeypatch.setattr(command, "find", partial(later, find))
            report = verified(found)
            assert [(table.state, table.because) for table in report.tables] == [("equal", "")], (number, report)
            moments.add(report.resolved_ts)
            turn()

    assert len(moments) > 10


@pytest.mark.soak
def test_a_memory_changes_no_verdict(tidb: Tidb, spark: SparkSession, lake: dict[str, str], tmp_path: Path) -> None:
    """Through rounds in which the feed loses rows and brings them again, another writer takes some, and DDL of all."""
    found = replayed("verifyremembered", history(tidb, 0.005), tidb, lake, tmp_path)
    memory, dice = tmp_path / "memory", random.Random(3)
    seen = list[tuple[str, bool]]()
    with found.running(spark) as pipeline:
        turn = Follower(pipeline).turn
        while pipeline.state.resolved_ts < 2:
            turn()
        for _ in range(40):
            if dice.random() < 0.05:
                spark.sql(f"DELETE FROM lake.verifyremembered__{NAME}.t WHERE id % 60 = {dice.randrange(60)}")
            with_it, plain = verified(found, memory=memory), verified(found)
            for one, other in zip(with_it.tables, plain.tables, strict=True):
                assert replace(one, rows_read=None) == other
                is_short = one.rows_read is not None and one.rows_read < 2 * (one.rows or 0)
                seen.append((one.state, is_short))
            if dice.random() < 0.8:
                turn()

    states = [state for state, _ in seen]
    assert states.count("different") > 2
    assert sum(is_short for _, is_short in seen) > 5, seen
    assert ("different", "equal") in set(pairwise(states))
