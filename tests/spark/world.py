"""A changefeed of Canal-JSON, its applier, and the commands that a user gives, for tests of the life of a table."""

from __future__ import annotations

import base64
import io
import json
import re
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from applier import cli
from applier.commands.follower import Follower
from applier.commands.status.command import status
from applier.config import settings as config
from applier.config.settings import Config
from applier.pipeline.build import assembled
from applier.pipeline.step import Pipeline
from applier.watch.report import StatusReport, TableProgress
from tests.spark.feeds import read

START = 470_606_913_410_433_024
KINDS = {"id": "bigint", "v": "varchar(9)", "w": "int", "c": "varchar(9)"}


@dataclass
class World:
    """A changefeed of Canal-JSON with the TiDB extension, on one partition a topic, and what is asked of it.

    Attributes:
        ts: Commit ts of the newest message.
        messages: What was sent to the topic.
        lost: How many of them it does not hold any more.
        topic: Where the next messages go.
        settings: Sections of the configuration, by name.
    """

    spark: SparkSession
    lake: dict[str, str]
    folder: Path
    name: str
    ts: int = START
    messages: list[dict[str, Any]] = field(default_factory=list)
    lost: int = 0
    topic: str = "shop"
    settings: dict[str, dict[str, Any]] = field(default_factory=dict)
    _topics: list[str] = field(default_factory=list)

    def ddl(self, sql: str, table: str = "a") -> int:
        """A DDL."""
        return self.send({"table": table, "isDdl": True, "type": "QUERY", "sql": sql})

    def create(self, table: str) -> int:
        """A new table."""
        return self.ddl(f"CREATE TABLE {table} (id BIGINT PRIMARY KEY, v VARCHAR(9))", table)

    def put(self, table: str, *keys: int, op: str = "INSERT", **more: str) -> int:
        """Rows, each with the commit ts as its value."""
        for key in keys:
            row = {"id": str(key), "v": f"r{self.ts - START}", **more}
            kinds = {column: KINDS[column] for column in row}
            types = dict.fromkeys(row, 12)
            message = {"table": table, "type": op, "pkNames": ["id"], "mysqlType": kinds, "sqlType": types}
            self.send({**message, "data": [row], **({"old": [{"v": "before"}]} if op == "UPDATE" else {})})
        return self.ts

    def send_row(self, table: str, row: dict[str, str], kinds: dict[str, str] | None = None) -> int:
        """An INSERT of a row with these columns."""
        types = {column: (KINDS | (kinds or {}))[column] for column in row}
        known = {"table": table, "type": "INSERT", "pkNames": ["id"], "mysqlType": types}
        return self.send({**known, "sqlType": dict.fromkeys(row, 12), "data": [row]})

    def resolve(self) -> int:
        """A watermark."""
        self.ts += 1
        self._append({"type": "TIDB_WATERMARK", "_tidb": {"watermarkTs": self.ts}})
        return self.ts

    def send(self, message: dict[str, Any]) -> int:
        """A message with the next commit ts."""
        self.ts += 1
        self._append({"isDdl": False, "sql": "", **message, "_tidb": {"commitTs": self.ts}})
        return self.ts

    def _append(self, message: dict[str, Any]) -> None:
        clock = (self.ts >> 18) + len(self.messages)
        whole = {"id": 0, "database": "shop", "table": "", "pkNames": None, "es": clock, "ts": clock, "old": None}
        self.messages.append({"mysqlType": None, "sqlType": None, "data": None, **whole, **message})
        self._topics.append(self.topic)

    @property
    def path(self) -> Path:
        """The configuration file."""
        return self.folder.with_suffix(".toml")

    @property
    def config(self) -> Config:
        """The configuration, with the topic as it is now, which is also written to its file."""
        self.folder.mkdir(exist_ok=True)
        # Tests may append messages of their own.
        topics = [*self._topics, *("shop" for _ in self.messages[len(self._topics) :])]
        messages = [
            {
                "topic": topic,
                "partition": 0,
                "offset": topics[:place].count(topic),
                "timestamp": message["ts"],
                "key": None,
                "value": base64.b64encode(json.dumps(message).encode()).decode(),
            }
            for place, (message, topic) in enumerate(zip(self.messages, topics, strict=True))
            if place >= self.lost
        ]
        (self.folder / "feed.jsonl").write_text("".join(json.dumps(line) + "\n" for line in messages))
        base: dict[str, dict[str, Any]] = {
            "changefeed": {"name": self.name, "protocol": "canal-json"},
            "source": {"archive": str(self.folder)},
            "catalog": {"name": "lake", **self.lake},
            "tables": {"route": f"{self.name}__{{database}}.{{table}}"},
        }
        sections = {**{name: {} for name in self.settings}, **base}
        raw = {section: {**known, **self.settings.get(section, {})} for section, known in sections.items()}
        lines = [f"[{section}]\n" + "".join(map(_toml, keys.items())) for section, keys in raw.items()]
        self.path.write_text("\n".join(lines))
        return config.load(self.path)

    @contextmanager
    def applier(self) -> Iterator[Pipeline]:
        """An applier."""
        with assembled(self.config, take_over=True) as pipeline:
            yield pipeline

    def run(self, **tables: Any) -> None:
        """Apply all that is there."""
        self.settings.setdefault("tables", {}).update(tables)
        with self.applier() as pipeline:
            follower = Follower(pipeline)
            while (step := follower.turn()).moved or step.resuming:
                pass
            assert step.error is None

    def start(self) -> None:
        """Apply all that is there, as `applier run --once` does."""
        self.obey(f"applier run -c {self.path} --once --take-over")

    def lose(self, messages: int) -> None:
        """Let the topic lose its first messages."""
        self.lost = messages

    def status(self) -> StatusReport:
        """What `applier status` finds, a second after the newest message."""
        return status(self.config, now_ms=(self.ts >> 18) + 1000)

    def table(self, name: str) -> TableProgress:
        """The line of a table."""
        return next(item for item in self.status().tables if item.table == f"shop.{name}")

    def rows(self, table: str) -> dict[int, str]:
        """Rows as Spark reads them."""
        return {row["id"]: row["v"] for row in read(self.spark, (f"{self.name}__shop", table)).to_pylist()}

    def keys(self, table: str) -> set[int]:
        """Keys of the rows."""
        return set(self.rows(table))

    def in_cut(self) -> set[str]:
        """Tables that the consistent cut lists."""
        return set(re.findall(r"__shop`?\.`?(\w+)", " ".join(self.status().cut)))

    def heal(self, hint: str | None) -> str:
        """Run the first command that a hint prints, as it is printed, save a `run` that goes on; what it prints."""
        found = re.search(r"`(applier (?!run )[^`]*)`", hint or "")
        assert found is not None, hint
        return self.obey(found[1])

    def obey(self, command: str, code: int | None = 0) -> str:
        """Run a command as a user types it; what it prints on both outputs."""
        _ = self.config
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("sys.argv", shlex.split(command))
            patch.setattr("sys.stdout", out := io.StringIO())
            patch.setattr("sys.stderr", out)
            with pytest.raises(SystemExit) as ended:
                cli.main()
        assert code is None or (ended.value.code or 0) == code, out.getvalue()
        return out.getvalue()


def _toml(pair: tuple[str, Any]) -> str:
    key, value = pair
    return f"{json.dumps(key)} = {_inline(value)}\n"


def _inline(value: Any) -> str:
    if not isinstance(value, dict):
        return json.dumps(value)
    inner = ", ".join(f"{json.dumps(name)} = {_inline(item)}" for name, item in value.items())
    return f"{{{inner}}}"


Make = Callable[..., World]
