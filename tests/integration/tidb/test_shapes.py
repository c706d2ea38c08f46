"""Tables of all shapes from a real TiDB: loaded, followed, compared, and mended. Plain Python says what they hold."""

from __future__ import annotations

import base64
import gzip
import hashlib
import hmac
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from applier.changefeed.table import TableName
from applier.commands.load.command import load
from applier.commands.verify.repair import repaired
from applier.config import settings
from tests.expected import bag
from tests.integration.tidb.feed import now, replay
from tests.integration.tidb.test_beside import message
from tests.integration.tidb.test_verify import follow, verified
from tests.replay import Replay
from tests.secret_watch import SecretWatch
from tests.services.tidb import Tidb

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DATABASE, KEY = "shaped", "a key of sixteen letters"
SECRETS = {
    f"{what} {n}": f"{what}-of-{n}@hidden.example" for what in ("code", "mail", "note", "card") for n in range(9)
}

KINDS = {
    "people": {
        "code": "varchar(40)",
        "id": "bigint",
        "mail": "varchar(60)",
        "note": "text",
        "card": "varchar(40)",
        "amount": "decimal(10,2)",
        "state": "enum('new','paid','late')",
        "at": "time",
    },
    "sales": {"id": "bigint", "region": "varchar(9)", "amount": "int"},
    "kept": {"id": "bigint", "v": "varchar(20)"},
}
KEYS = {"people": ("code", "id"), "sales": ("id",), "kept": ("id",)}

TABLES: Mapping[str, Any] = {
    "include": [f"{DATABASE}.*"],
    "mask_key": KEY,
    f"{DATABASE}.people": {
        "metadata": ["_commit_ts", "_op"],
        "types": {"enum": "int", "time": "long"},
        "columns": {
            "exclude": ["card"],
            "cast": {"amount": "string"},
            "mask": {"code": "hash", "mail": "last4", "note": "redact"},
        },
    },
    f"{DATABASE}.sales": {"where": "region = 'eu' and amount >= 10"},
    f"{DATABASE}.kept": {"deletes": "soft"},
}

Row = dict[str, str | None]


@dataclass(slots=True)
class Shop:
    """A TiDB whose changes go into a feed as well.

    Attributes:
        tidb: The server.
        sent: The messages, in Canal-JSON.
        deleted: Rows of `kept` that are gone, by key.
    """

    tidb: Tidb
    sent: list[dict[str, Any]] = field(default_factory=list)
    deleted: dict[str, Row] = field(default_factory=dict)

    def create(self) -> None:
        """Make the tables anew, with four rows each."""
        made = [
            f"CREATE TABLE {name} ({', '.join(f'`{column}` {kind}' for column, kind in kinds.items())}, "
            f"PRIMARY KEY ({', '.join(KEYS[name])}))"
            for name, kinds in KINDS.items()
        ]
        self.tidb.run(f"DROP DATABASE IF EXISTS {DATABASE}", f"CREATE DATABASE {DATABASE}", f"USE {DATABASE}", *made)
        for number in range(4):
            self._write([("people", person(number)), ("sales", sale(number, "eu", 5 * number)), ("kept", kept(number))])

    def put(self, *rows: tuple[str, Row]) -> None:
        """Insert rows or put them in the place of others, and send it."""
        olds = [self._find(table, row) for table, row in rows]
        self._write(rows)
        ts = now(self.tidb)
        for (table, row), old in zip(rows, olds, strict=True):
            self._send(ts, "INSERT" if old is None else "UPDATE", table, row, old)
            if table == "kept":
                self.deleted.pop(str(row["id"]), None)

    def delete(self, table: str, row: Row) -> None:
        """Delete one row, and send it."""
        old = self._find(table, row)
        assert old is not None
        self.tidb.run(f"DELETE FROM {DATABASE}.{table} WHERE {_is(table, row)}")
        self._send(now(self.tidb), "DELETE", table, old)
        if table == "kept":
            self.deleted[str(row["id"])] = old

    def resolve(self) -> None:
        """Send a watermark."""
        self.sent.append(message("TIDB_WATERMARK", now(self.tidb)))

    def write_feed(self, folder: Path) -> None:
        """Write all messages to where `replay` reads them."""
        with gzip.open(folder / "feed.jsonl.gz", "wt") as file:
            for offset, one in enumerate(self.sent):
                value = base64.b64encode(json.dumps(one).encode()).decode()
                place = {"topic": "feed", "partition": 0, "offset": offset, "timestamp": 1, "key": None, "headers": []}
                file.write(json.dumps({**place, "value": value}) + "\n")

    def rows(self, table: str) -> list[Row]:
        """What SQL shows."""
        shown = self.tidb.rows(f"SELECT {', '.join(f'`{name}`' for name in KINDS[table])} FROM {DATABASE}.{table}")
        return [{k: None if v is None else str(v) for k, v in zip(KINDS[table], row, strict=True)} for row in shown]

    def wanted(self, table: str) -> list[dict[str, Any]]:
        """What the Iceberg table has to hold, but for columns of metadata."""
        rows = self.rows(table)
        if table == "people":
            return [person_here(row) for row in rows]
        if table == "sales":
            admitted = [row for row in rows if row["region"] == "eu" and int(row["amount"] or 0) >= 10]
            return [{**row, "id": int(row["id"] or 0), "amount": int(row["amount"] or 0)} for row in admitted]
        living = [{**row, "id": int(row["id"] or 0), "lives": True} for row in rows]
        return living + [{**row, "id": int(row["id"] or 0), "lives": False} for row in self.deleted.values()]

    def _find(self, table: str, row: Row) -> Row | None:
        return next((old for old in self.rows(table) if all(old[k] == row[k] for k in KEYS[table])), None)

    def _write(self, rows: Sequence[tuple[str, Row]]) -> None:
        self.tidb.run(
            f"USE {DATABASE}",
            *(f"REPLACE INTO {table} VALUES ({', '.join(map(_literal, row.values()))})" for table, row in rows),
        )

    def _send(self, ts: int, kind: str, table: str, row: Row, old: Row | None = None) -> None:
        kinds = KINDS[table]
        types = {"pkNames": list(KEYS[table]), "sqlType": dict.fromkeys(kinds, 12), "mysqlType": kinds}
        images = [None if image is None else [_canal(image)] for image in (row, old)]
        sent = message(kind, ts, **types, data=images[0], old=images[1])
        self.sent.append({**sent, "database": DATABASE, "table": table})


def person(number: int, state: str = "new", amount: str = "12.50") -> Row:
    """A row of `people`, whose secrets name it; the third one has no mail."""
    words = {what: SECRETS[f"{what} {number}"] for what in ("code", "mail", "note", "card")}
    mail = None if number == 2 else words["mail"]
    row: Row = {"code": words["code"], "id": str(number), "mail": mail, "note": words["note"], "card": words["card"]}
    return {**row, "amount": amount, "state": state, "at": f"-0{number}:00:01"}


def sale(number: int, region: str | None, amount: int | None) -> Row:
    """A row of `sales`."""
    return {"id": str(number), "region": region, "amount": None if amount is None else str(amount)}


def kept(number: int, v: str = "first") -> Row:
    """A row of `kept`."""
    return {"id": str(number), "v": v}


def person_here(row: Row) -> dict[str, Any]:
    """A row of `people` as its Iceberg table holds it."""
    code, mail, at = str(row["code"]), row["mail"], str(row["at"])
    hours, minutes, seconds = map(int, at.lstrip("-").split(":"))
    micros = ((hours * 60 + minutes) * 60 + seconds) * 1_000_000
    return {
        "code": hmac.new(KEY.encode(), code.encode(), hashlib.sha256).hexdigest(),
        "id": int(row["id"] or 0),
        "mail": None if mail is None else "*" * (len(mail) - 4) + mail[-4:],
        "note": "***",
        "amount": str(Decimal(row["amount"] or 0)),
        "state": {"new": 1, "paid": 2, "late": 3}[str(row["state"])],
        "at": -micros if at.startswith("-") else micros,
    }


def _canal(row: Row) -> Row:
    numbers = {"new": "1", "paid": "2", "late": "3"}
    return {k: numbers[str(v)] if k == "state" else v for k, v in row.items()}


def _is(table: str, row: Row) -> str:
    return " AND ".join(f"`{name}` = {_literal(row[name])}" for name in KEYS[table])


def _literal(value: str | None) -> str:
    return "NULL" if value is None else f"'{value}'"


def hold_all(found: Replay, shop: Shop) -> None:
    """Compare all cells of all tables with what SQL shows."""
    for table in KINDS:
        rows = found.contents(TableName(DATABASE, table)) or []
        if table == "kept":
            rows = [{**row, "lives": row["_deleted_at"] is None} for row in rows]
        own = [{k: v for k, v in row.items() if not k.startswith("_")} for row in rows]
        assert bag(own) == bag(shop.wanted(table)), table


def brought(
    by: str, shop: Shop, spark: SparkSession, lake: dict[str, str], folder: Path, order: str = "resolved"
) -> Replay:
    """The tables, loaded from TiDB or from a dump of it."""
    shop.create()
    at, url = now(shop.tidb), {"url": f"mysql://root@127.0.0.1:{shop.tidb.port}"}
    options = ("--filetype", "csv", "--params", "time_zone=+00:00", "--filter", f"{DATABASE}.*", "--snapshot", str(at))
    upstream = {"dump": shop.tidb.dump(folder / "export", *options)} if by == "dump" else url
    found = replay(f"shapes{by}{order}", at, upstream, lake, folder)
    found.raw["tables"] |= TABLES
    found.raw["changefeed"]["order"] = order
    shop.sent.append(message("TIDB_WATERMARK", at + 1))
    shop.write_feed(folder)
    assert load(settings.parse(found.raw), None, (), lambda _: None, at=None if by == "dump" else at).refused == ()
    found.raw["upstream"] = url
    follow(found, spark)
    hold_all(found, shop)
    return found


def test_shaped_tables_follow_a_load_in_offset_order(
    tidb: Tidb, spark: SparkSession, lake: dict[str, str], tmp_path: Path
) -> None:
    """A process for each round of changes."""
    shop = Shop(tidb)
    found = brought("sql", shop, spark, lake, tmp_path, "offset")
    for step in (first_changes, later_changes):
        step(shop)
        shop.write_feed(tmp_path)
        follow(found, spark)
        hold_all(found, shop)


@pytest.mark.parametrize("by", ["sql", "dump"])
def test_shaped_tables_are_what_sql_shows(
    by: str, tidb: Tidb, spark: SparkSession, lake: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """After a load, after changes, in the eyes of `verify` with and without a memory, and after a repair."""
    shop = Shop(tidb)
    found = brought(by, shop, spark, lake, tmp_path)
    name = found.prefix
    memory, said = tmp_path / "memory", list[str]()
    for step in (first_changes, later_changes):
        step(shop)
        shop.resolve()
        shop.write_feed(tmp_path)
        follow(found, spark)
        hold_all(found, shop)
        for remembered in (None, memory, memory):
            report = verified(found, memory=remembered)
            assert {table.table: table.state for table in report.tables} == dict.fromkeys(
                [f"{DATABASE}.{table}" for table in KINDS], "equal"
            ), report

    wrong = plant(spark, name)
    for remembered in (None, memory):
        report = verified(found, memory=remembered)
        said.append(repr(report))
        seen = {(table.table, item.kind, item.columns) for table in report.tables for item in table.differences}
        assert seen == wrong, report
    assert repaired(settings.parse(found.raw), report, said.append) is not None
    follow(found, spark)
    assert {table.state for table in verified(found, memory=memory).tables} == {"equal"}
    shop.deleted.clear()  # the table that is built anew has no deleted rows
    hold_all(found, shop)
    watch = SecretWatch({**SECRETS, "key": KEY})
    watch.look("\n".join([*said, *capsys.readouterr()]).encode(), "what is printed")
    for path in Path(lake["warehouse"]).rglob("*"):
        if path.is_file() and f"/{name}" in str(path):
            watch.look_into(path.read_bytes(), path.name)
    assert len(watch.places) > 10
    assert watch.found == set()


def first_changes(shop: Shop) -> None:
    """Rows of each kind, into the filter and out of it, deleted and alive again."""
    shop.put(("people", person(0, "paid", "0.00")), ("people", person(5)), ("sales", sale(2, "us", 99)))
    shop.put(("sales", sale(0, "eu", 70)), ("sales", sale(6, None, 70)), ("kept", kept(1, "second")))
    shop.delete("people", person(1))
    shop.delete("sales", sale(3, "eu", 15))
    for key in (1, 2):
        shop.delete("kept", kept(key))


def later_changes(shop: Shop) -> None:
    """A key that lives again, one that comes and goes, and another row for a hashed key."""
    shop.put(("kept", kept(1, "third")), ("kept", kept(8)), ("people", person(1, "late", "-3.25")))
    shop.delete("kept", kept(8))
    shop.put(("sales", sale(2, "eu", 10)), ("sales", sale(0, "EU", 70)), ("people", person(2, "late", "7.00")))


def plant(spark: SparkSession, name: str) -> set[tuple[str, str, tuple[str, ...]]]:
    """Let another writer spoil a cell of each table; what `verify` has to say of it."""
    own = f"lake.{name}__{DATABASE}"
    spark.sql(f"UPDATE {own}.people SET mail = 'x', amount = '1.00' WHERE id = 0")
    spark.sql(f"UPDATE {own}.sales SET amount = 11 WHERE id = 2")
    spark.sql(f"UPDATE {own}.kept SET v = 'wrong' WHERE id = 0")
    return {
        (f"{DATABASE}.people", "different", ("mail", "amount")),
        (f"{DATABASE}.sales", "different", ("amount",)),
        (f"{DATABASE}.kept", "different", ("v",)),
    }
