"""A recorded feed of whole rows in, a session of a TiDB that shows them as of any moment out."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from applier.config.login import Login
from applier.decode.tidb.session import Session
from tests import recordings

_SELECT = re.compile(r"SELECT (.*) FROM `(\w+)`\.`(\w+)` WHERE \(`id`\) IN \((.*)\)")
_BINARY = re.compile("binary|blob")


@dataclass(slots=True)
class Past:
    """Rows of tables with the key `id`, by the text of that and a commit ts; None where the row was deleted.

    Attributes:
        asked: The tables whose rows were asked for, by `database.table`.
    """

    rows: dict[str, dict[str, dict[int, dict[str, bytes | None] | None]]] = field(default_factory=dict)
    creates: dict[str, str] = field(default_factory=dict)
    asked: set[str] = field(default_factory=set)
    moments: list[int] = field(default_factory=list)

    @classmethod
    def recorded(cls, scenario: str) -> Past:
        """What the messages of Canal-JSON of a scenario say, read by their text alone."""
        past = cls()
        for record in recordings.records(scenario, "canal-json-ext"):
            past.take(json.loads(record["value"]))
        return past

    def take(self, message: dict[str, Any]) -> None:
        """A message of one row, or of a DDL."""
        name = f"{message['database']}.{message['table']}"
        if message["isDdl"] and message["type"] == "CREATE":
            self.creates[name] = message["sql"]
        if message["isDdl"] or not message["data"]:
            return
        ts, kinds = message["_tidb"]["commitTs"], message["mysqlType"]
        (row,) = message["data"]
        for old in message["old"] or ():
            self._put(name, old.get("id", row.get("id")), ts, None)
        cells = {
            column: None if text is None else text.encode("latin1" if _BINARY.search(kinds[column]) else "utf-8")
            for column, text in row.items()
        }
        self._put(name, row.get("id"), ts, None if message["type"] == "DELETE" else cells)

    def _put(self, name: str, key: str | None, ts: int, row: dict[str, bytes | None] | None) -> None:
        if key is not None:
            self.rows.setdefault(name, {}).setdefault(key, {})[ts] = row

    def row(self, name: str, key: str, ts: int) -> dict[str, bytes | None] | None:
        """A row as of a commit ts; None if there was none."""
        versions = self.rows.get(name, {}).get(key, {})
        newest = max((at for at in versions if at <= ts), default=None)
        return None if newest is None else versions[newest]

    @contextmanager
    def opened(self, login: Login) -> Iterator[Session]:
        """A session of it."""
        yield PastSession(self, login)


class PastSession(Session):
    """Answers the queries of rows by their keys."""

    def __init__(self, past: Past, login: Login) -> None:
        super().__init__(past, login)

    def rows(self, query: str) -> list[tuple[bytes | None, ...]]:
        """What a query shows."""
        past: Past = self.connection
        if query.startswith("SET @@tidb_snapshot"):
            past.moments.append(int(query.split("'")[1]))
            return []
        if query.startswith("SHOW CREATE TABLE"):
            name = query.removeprefix("SHOW CREATE TABLE ").replace("`", "")
            return [(name.encode(), past.creates[name].encode())]
        columns, database, table, keys = _SELECT.fullmatch(query).groups()  # type: ignore[union-attr]
        name = f"{database}.{table}"
        past.asked.add(name)
        found = [past.row(name, key.strip("()"), past.moments[-1]) for key in keys.split(", ")]
        return [tuple(row[column.strip("`")] for column in columns.split(", ")) for row in found if row is not None]
