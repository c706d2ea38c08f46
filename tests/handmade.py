"""Rows and DDL in, messages of each protocol out, written as TiCDC writes them: for names that no recording has.

Nothing that decodes messages has a part in it.
"""

from __future__ import annotations

import io
import json
import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import fastavro

from applier.changefeed.ts import from_unix_ms

TS = from_unix_ms(1_795_250_000_000)
DATABASE, TABLE, RENAMED = "my`db.x 数", 'or\'der "s".tbl`', "select * from `t`;--"
KEY, ADDED = "select", "dr`op;--"
COLUMNS = ("a.b", "ta`ck", 'quo"te', "spa ce", "ünï", "it's", "1st", "back\\slash", "from", "%s{}")
LATER = (*COLUMNS, ADDED)
DEFAULT = "it's `here`"

Message = tuple[bytes | None, bytes]
Row = dict[str, Any]


class Change(NamedTuple):
    """One row: None as old is an insert, None as new a delete."""

    table: str
    columns: Sequence[str]
    old: Row | None
    new: Row | None


_CODES = {"int": (3, 4, "int32", "int", "INT"), "bigint": (8, -5, "int64", "long", "BIGINT")}
_TEXT = (15, 12, "string", "string", "TEXT")


@dataclass(frozen=True, slots=True)
class Columns:
    """What the messages of one table say beside its name and the names of its columns.

    Attributes:
        database: Its database.
        key: Its key column.
        kinds: `int` or `bigint` by column; all others are VARCHAR, the key alone is an INT unless it is named here.
        defaults: Defaults by column.
        before: The former name of a table that is renamed.
        before_in: The database that it was in, if that was another one.
    """

    database: str = DATABASE
    key: str = KEY
    kinds: Mapping[str, str] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=lambda: {ADDED: DEFAULT})
    before: str = TABLE
    before_in: str = ""

    @property
    def former(self) -> str:
        """The former table of a RENAME, as `tableChanges` of Debezium names it."""
        return f'"{self.before_in or self.database}"."{self.before}"'

    def kind(self, name: str) -> str:
        """The type of a column."""
        return self.kinds.get(name, "int" if name == self.key else "varchar")

    def codes(self, name: str) -> tuple[int, int, str, str, str]:
        """The type of a column in Open, Canal-JSON (of JDBC), Debezium, Avro, and as Avro names TiDB's."""
        return _CODES.get(self.kind(name), _TEXT)


HOSTILE = Columns()


class Registered(Protocol):
    """Where schemas are registered."""

    def register(self, text: str) -> int:
        """The id of a schema, a new one where it is new."""


class Wire(Protocol):
    """Writes messages of one protocol."""

    def ddl(self, sql: str, ts: int, kind: str, table: str, columns: Sequence[str]) -> Message:
        """A DDL, with the table after it; "" for one of the database."""

    def row(self, change: Change, ts: int) -> Message:
        """A row."""

    def watermark(self, ts: int) -> Message:
        """A resolved ts."""


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


class Simple:
    """Simple as JSON: each schema has a version, which rows name."""

    def ddl(self, sql: str, ts: int, kind: str, table: str, columns: Sequence[str]) -> Message:
        """See `Wire`."""
        message = {"version": 1, "type": kind, "sql": sql, "commitTs": ts, "buildTs": 1}
        return None, _json(message | ({"tableSchema": self._schema(table, columns)} if table else {}))

    def row(self, change: Change, ts: int) -> Message:
        """See `Wire`."""
        message: Row = {"version": 1, "database": DATABASE, "table": change.table, "tableID": 7, "type": _kind(change)}
        message |= {"commitTs": ts, "buildTs": 1, "schemaVersion": _version(change.columns)}
        for member, row in (("data", change.new), ("old", change.old)):
            if row is not None:
                message[member] = {name: None if value is None else str(value) for name, value in row.items()}
        return None, _json(message)

    def watermark(self, ts: int) -> Message:
        """See `Wire`."""
        return None, _json({"version": 1, "type": "WATERMARK", "commitTs": ts, "buildTs": 1})

    def _schema(self, table: str, columns: Sequence[str]) -> Row:
        number = {"mysqlType": "int", "charset": "binary", "collate": "binary", "length": 11}
        text = {"mysqlType": "varchar", "charset": "utf8mb4", "collate": "utf8mb4_bin", "length": 50}
        key = {"name": KEY, "dataType": number, "nullable": False, "default": None}
        others = [
            {"name": name, "dataType": text, "nullable": True, "default": DEFAULT if name == ADDED else None}
            for name in columns
        ]
        index = {"name": "primary", "unique": True, "primary": True, "nullable": False, "columns": [KEY]}
        where = {"schema": DATABASE, "table": table, "tableID": 7, "version": _version(columns)}
        return {**where, "columns": [key, *others], "indexes": [index]}


class _OfTable:
    """Attributes: of: The table whose messages come next."""

    of: Columns = HOSTILE


class Open(_OfTable):
    """Open: a key and a value, each behind its length."""

    def ddl(self, sql: str, ts: int, kind: str, table: str, columns: Sequence[str]) -> Message:
        """See `Wire`."""
        code = {"CREATE": 3 if table else 1, "ALTER": 5, "RENAME": 14}.get(kind if table else "CREATE", 0)
        return self._framed({"ts": ts, "scm": self.of.database, "tbl": table, "t": 2}, _json({"q": sql, "t": code}))

    def row(self, change: Change, ts: int) -> Message:
        """See `Wire`."""
        if change.new is None:
            body = {"d": self._image(change.old or {})}
        else:
            body = {"u": self._image(change.new)} | ({} if change.old is None else {"p": self._image(change.old)})
        return self._framed({"ts": ts, "scm": self.of.database, "tbl": change.table, "t": 1}, _json(body))

    def watermark(self, ts: int) -> Message:
        """See `Wire`."""
        return self._framed({"ts": ts, "t": 3}, b"")

    def _image(self, row: Row) -> Row:
        key = self.of.key
        cells = {name: {"t": self.of.codes(name)[0], "f": 64, "v": value} for name, value in row.items()}
        return {key: {"t": self.of.codes(key)[0], "h": True, "f": 11, "v": row[key]}} | {
            name: cell for name, cell in cells.items() if name != key
        }

    def _framed(self, key: Row, value: bytes) -> Message:
        name = _json(key)
        return struct.pack(">QQ", 1, len(name)) + name, struct.pack(">Q", len(value)) + value


class Canal(_OfTable):
    """Canal-JSON with the extension."""

    def ddl(self, sql: str, ts: int, kind: str, table: str, columns: Sequence[str]) -> Message:
        """See `Wire`."""
        message = self._message(table, kind if table else "QUERY", ts, {"commitTs": ts})
        return None, _json(message | {"isDdl": True, "sql": sql})

    def row(self, change: Change, ts: int) -> Message:
        """See `Wire`."""
        message = self._message(change.table, _kind(change), ts, {"commitTs": ts})
        row = change.old if change.new is None else change.new
        names = [self.of.key, *change.columns]
        message |= {
            "pkNames": [self.of.key],
            "sqlType": {name: self.of.codes(name)[1] for name in names},
            "mysqlType": {name: self.of.kind(name) for name in names},
            "data": [self._texts(row or {})],
        }
        if change.old is not None and change.new is not None:
            message["old"] = [self._texts(change.old)]
        return b"", _json(message)

    def watermark(self, ts: int) -> Message:
        """See `Wire`."""
        message = self._message("", "TIDB_WATERMARK", ts, {"watermarkTs": ts})
        return None, _json(message | {"database": ""})

    def _message(self, table: str, kind: str, ts: int, tidb: Row) -> Row:
        return {
            "id": 0,
            "database": self.of.database,
            "table": table,
            "pkNames": None,
            "isDdl": False,
            "type": kind,
            "es": ts >> 18,
            "ts": 1_795_250_000_000,
            "sql": "",
            "sqlType": None,
            "mysqlType": None,
            "data": None,
            "old": None,
            "_tidb": tidb,
        }

    def _texts(self, row: Row) -> Row:
        return {name: None if value is None else str(value) for name, value in row.items()}


class Debezium(_OfTable):
    """Debezium with the extension: a schema beside each payload."""

    def ddl(self, sql: str, ts: int, kind: str, table: str, columns: Sequence[str]) -> Message:
        """See `Wire`."""
        where = f'"{self.of.database}"."{table}"'
        described = [self._described(name, number) for number, name in enumerate([self.of.key, *columns], 1)]
        change = {
            "type": {"CREATE": "CREATE", "ERASE": "DROP"}.get(kind, "ALTER"),
            "id": f"{self.of.former},{where}" if kind == "RENAME" else where,
            "table": None
            if kind == "ERASE"
            else {
                "defaultCharsetName": "utf8mb4",
                "primaryKeyColumnNames": [self.of.key],
                "columns": described,
                "comment": None,
            },
        }
        payload = {
            "source": self._source(table, ts),
            "ts_ms": 1_795_250_000_000,
            "databaseName": self.of.database,
            "schemaName": None,
            "ddl": sql,
            "tableChanges": [change] if table and kind != "TRUNCATE" else [],
        }
        name = "io.debezium.connector.mysql.SchemaChange"
        key = {
            "payload": {"databaseName": self.of.database},
            "schema": {"type": "struct", "name": f"{name}Key", "version": 1},
        }
        return _json(key), _json({"payload": payload, "schema": {"type": "struct", "name": f"{name}Value"}})

    def row(self, change: Change, ts: int) -> Message:
        """See `Wire`."""
        op = {"INSERT": "c", "UPDATE": "u", "DELETE": "d"}[_kind(change)]
        payload = {"source": self._source(change.table, ts), "ts_ms": 1, "transaction": None, "op": op}
        payload |= {"before": change.old, "after": change.new}
        key = self.of.key
        number = {"tidb_type": self.of.kind(key), "type": self.of.codes(key)[2], "optional": False, "field": key}
        others = [
            {"tidb_type": self.of.kind(name), "type": self.of.codes(name)[2], "optional": True, "field": name}
            | ({"default": self.of.defaults[name]} if self.of.defaults.get(name) is not None else {})
            for name in change.columns
        ]
        where = "default." + re.sub(r"[^A-Za-z0-9_]", "_", self.of.database) + "." + _sanitised(change.table, ".")
        image = {"type": "struct", "optional": True, "name": f"{where}.Value", "fields": [number, *others]}
        fields = [{**image, "field": "before"}, {**image, "field": "after"}]
        schema = {"type": "struct", "optional": False, "name": f"{where}.Envelope", "version": 1, "fields": fields}
        row = change.new or change.old or {}
        keys = {"type": "struct", "name": f"{where}.Key", "optional": False, "fields": [number]}
        return _json({"payload": {key: row[key]}, "schema": keys}), _json({"payload": payload, "schema": schema})

    def watermark(self, ts: int) -> Message:
        """See `Wire`."""
        payload = {"source": self._source("", ts) | {"db": ""}, "ts_ms": 1, "transaction": None, "op": "m"}
        key = {"payload": {}, "schema": {"type": "struct", "name": "default.watermark.Key", "fields": []}}
        schema = {"type": "struct", "name": "default.watermark.Envelope", "version": 1, "fields": []}
        return _json(key), _json({"payload": payload, "schema": schema})

    def _source(self, table: str, ts: int) -> Row:
        return {
            "version": "2.4.0.Final",
            "connector": "TiCDC",
            "name": "default",
            "ts_ms": ts >> 18,
            "snapshot": "false",
            "db": self.of.database,
            "table": table,
            "server_id": 0,
            "gtid": None,
            "file": "",
            "pos": 0,
            "row": 0,
            "thread": 0,
            "query": None,
            "commit_ts": ts,
            "cluster_id": "default",
        }

    def _described(self, name: str, position: int) -> Row:
        is_key, word = name == self.of.key, self.of.kind(name).upper()
        return {
            "name": name,
            "jdbcType": self.of.codes(name)[1],
            "nativeType": None,
            "comment": None,
            "defaultValueExpression": self._text(self.of.defaults.get(name)),
            "enumValues": None,
            "typeName": word,
            "typeExpression": word,
            "charsetName": "utf8mb4" if word == "VARCHAR" else None,
            "length": 50 if word == "VARCHAR" else None,
            "scale": None,
            "position": position,
            "optional": not is_key,
            "autoIncremented": False,
            "generated": False,
        }

    def _text(self, value: object) -> str | None:
        return None if value is None else str(value)


class Avro(_OfTable):
    """Avro with watermark and DDL messages: rows carry sanitised names alone.

    Args:
        registry: Learns the schemas.
    """

    def __init__(self, registry: Registered) -> None:
        self._registry = registry

    def ddl(self, sql: str, ts: int, kind: str, table: str, columns: Sequence[str]) -> Message:
        """See `Wire`."""
        code = {"CREATE": 3, "ALTER": 5, "RENAME": 14}.get(kind, 0) if table else 1
        return None, b"\x01" + _json(
            {"query": sql, "type": code, "schema": self.of.database, "table": table, "commitTs": ts}
        )

    def row(self, change: Change, ts: int) -> Message:
        """See `Wire`."""
        name = self.of.key
        number, row = {"name": _sanitised(name), "type": self._type(name)}, change.new or change.old or {}
        key = self._framed(change.table, [number], {_sanitised(name): row[name]})
        if change.new is None:
            return key, b"\x03" + struct.pack(">Q", ts)
        fields: list[Row] = [number]
        for name in change.columns:
            default, kind = self.of.defaults.get(name), self._type(name)
            union = ["null", kind] if default is None else [kind, "null"]
            fields.append({"name": _sanitised(name), "type": union, "default": default})
        fields += [
            {"name": "_tidb_op", "type": "string", "default": ""},
            {"name": "_tidb_commit_ts", "type": "long", "default": 0},
            {"name": "_tidb_commit_physical_time", "type": "long", "default": 0},
        ]
        values = {_sanitised(name): value for name, value in change.new.items()}
        values |= {"_tidb_op": "c" if change.old is None else "u"}
        values |= {"_tidb_commit_ts": ts, "_tidb_commit_physical_time": ts >> 18}
        return key, self._framed(change.table, fields, values)

    def watermark(self, ts: int) -> Message:
        """See `Wire`."""
        return None, b"\x02" + struct.pack(">Q", ts)

    def _type(self, name: str) -> Row:
        *_, avro, word = self.of.codes(name)
        return {"type": avro, "connect.parameters": {"tidb_type": word}}

    def _framed(self, table: str, fields: list[Row], values: Row) -> bytes:
        schema: Row = {
            "type": "record",
            "name": _sanitised(table),
            "namespace": f"default.{_sanitised(self.of.database)}",
        }
        schema |= {"fields": fields}
        return framed(self._registry, schema, values)


def framed(registry: Registered, schema: Row, values: Row) -> bytes:
    """A datum in Confluent's framing, its schema registered."""
    body = io.BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(schema), values)
    return b"\0" + struct.pack(">I", registry.register(json.dumps(schema))) + body.getvalue()


def _kind(change: Change) -> str:
    return "INSERT" if change.old is None else "DELETE" if change.new is None else "UPDATE"


def _version(columns: Sequence[str]) -> int:
    return TS + (5 if ADDED in columns else 2)


def _sanitised(name: str, also: str = "") -> str:
    text = "".join(c if re.match(r"[A-Za-z0-9_]", c) or c in also else "_" for c in name)
    return f"_{text}" if text[0].isdigit() else text


def quoted(name: str) -> str:
    """A name in a statement."""
    return "`" + name.replace("`", "``") + "`"
