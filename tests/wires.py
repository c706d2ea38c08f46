"""What happens in a database in, messages of each protocol out, as `tests/handmade.py` writes them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from applier.decode.registry.client import RegistrySchema
from applier.errors import SchemaUnknown, TransientError
from tests import handmade
from tests.handmade import Columns, Registered, framed
from tests.ticdc import Message, Messages, SimpleMessages
from tests.upstream import Change, Ddl, Rows, Schema

PROTOCOLS = ("simple", "open", "canal-json", "debezium", "avro", "debezium-avro")


@dataclass(slots=True)
class Registry:
    """A schema registry that knows some ids late, is away at times, and can be built anew.

    Attributes:
        texts: Schemas by id.
        late: So many questions for an id are answered with "unknown" before it is there.
        away: So many of the next questions get no answer.
        asked: Questions that were asked.
    """

    texts: dict[int, str] = field(default_factory=dict)
    late: Counter[int] = field(default_factory=Counter)
    away: int = 0
    asked: int = 0
    delay: Callable[[], int] = field(default=lambda: 0)
    _ids: dict[str, int] = field(default_factory=dict)
    _first: int = 1

    def register(self, text: str) -> int:
        """See `Registered`."""
        if text not in self._ids:
            number = self._ids[text] = self._first + len(self._ids)
            self.texts[number] = text
            self.late[number] = self.delay()
        return self._ids[text]

    def rebuild(self, first: int) -> None:
        """Begin anew: schemas get ids again, from a first one on."""
        self.texts, self._ids, self._first = {}, {}, first

    def schema(self, schema_id: int) -> RegistrySchema:
        """See `SchemaSource`."""
        self.asked += 1
        if self.away:
            self.away -= 1
            raise TransientError("The registry is away.")
        if schema_id not in self.texts or self.late[schema_id] > 0:
            self.late[schema_id] -= 1
            raise SchemaUnknown("It is unknown.", schema_id=schema_id)
        return RegistrySchema(self.texts[schema_id])


@dataclass(slots=True)
class ByHand:
    """Messages of one protocol.

    Args:
        wire: Writes them.
        has_ddl: The feed shows DDL and watermarks.
    """

    wire: Any
    has_ddl: bool = True

    def row(self, item: Rows, change: Change) -> Message:
        """See `Messages`."""
        self._of(item.schema)
        message: Message = self.wire.row(
            handmade.Change(item.schema.name.table, _others(item.schema), *change), item.ts
        )
        is_undated = change.new is None and isinstance(self.wire, handmade.Avro) and not self.has_ddl
        # Without `avro-enable-watermark` a DELETE is its key alone, without a commit ts.
        return (message[0], None) if is_undated else message

    def ddl(self, item: Ddl) -> Message | None:
        """See `Messages`."""
        if not self.has_ddl:
            return None
        if item.named is None:
            self.wire.of = Columns(database=item.database)
            return self._ddl(item, "", ())
        self._of(item.named, item.before)
        return self._ddl(item, item.named.name.table, _others(item.named))

    def _ddl(self, item: Ddl, table: str, columns: tuple[str, ...]) -> Message:
        message: Message = self.wire.ddl(item.sql, item.ts, item.kind, table, columns)
        return message

    def bootstrap(self, schema: Schema) -> None:
        """See `Messages`."""

    def watermark(self, ts: int) -> Message | None:
        """See `Messages`."""
        message: Message | None = self.wire.watermark(ts) if self.has_ddl else None
        return message

    def _of(self, schema: Schema, before: Schema | None = None) -> None:
        kinds = {column.name: column.type.partition("(")[0] for column in schema.columns}
        defaults = {column.name: column.default for column in schema.columns}
        former = (before or schema).name
        self.wire.of = Columns(
            schema.name.database, schema.key[0], kinds, defaults, former.table, before_in=former.database
        )


def _others(schema: Schema) -> tuple[str, ...]:
    return tuple(column.name for column in schema.columns if column.name not in schema.key)


def messages(protocol: str, registry: Registered, *, has_ddl: bool = True) -> Messages:
    """What writes the messages of a protocol."""
    wires: Mapping[str, Callable[[], object]] = {
        "open": handmade.Open,
        "canal-json": handmade.Canal,
        "debezium": handmade.Debezium,
        "avro": lambda: handmade.Avro(registry),
        "debezium-avro": lambda: _DebeziumAvro(registry),
    }
    return SimpleMessages() if protocol == "simple" else ByHand(wires[protocol](), has_ddl=has_ddl)


_TEXTS = ("db", "table")
_SOURCE = {
    "type": "record",
    "name": "Source",
    "fields": [*({"name": name, "type": "string"} for name in _TEXTS), {"name": "commit_ts", "type": "long"}],
}
_NULLABLE = {"typeName": "string", "length": "int", "scale": "int", "defaultValueExpression": "string"}


class _DebeziumAvro:
    """Debezium in Avro: names are whole, and no schema shows a default."""

    of: Columns

    def __init__(self, registry: Registered) -> None:
        self._registry = registry

    def ddl(self, sql: str, ts: int, kind: str, table: str, columns: tuple[str, ...]) -> Message:
        """See `handmade.Wire`."""
        where = f'"{self.of.database}"."{table}"'
        described = [self._described(name) for name in (self.of.key, *columns)]
        whole = {"columns": described, "primaryKeyColumnNames": [self.of.key]}
        former = f"{self.of.former}," if kind == "RENAME" else ""
        changes = [{"id": former + where, "table": None if kind == "ERASE" else whole}]
        values = {
            "source": self._source(table, ts),
            "ddl": sql,
            "databaseName": self.of.database,
            "tableChanges": changes if table and kind != "TRUNCATE" else [],
        }
        key = {"type": "record", "name": "SchemaChangeKey", "fields": [{"name": "databaseName", "type": "string"}]}
        return framed(self._registry, key, {"databaseName": self.of.database}), framed(self._registry, _CHANGE, values)

    def row(self, change: handmade.Change, ts: int) -> Message:
        """See `handmade.Wire`."""
        names = (self.of.key, *change.columns)
        place = {"namespace": f"default.{self.of.database}".replace("-", "_")}
        table = change.table.replace("-", "_")
        image = {"type": "record", "name": "Value", "fields": [self._field(name) for name in names]} | place
        fields = [
            {"name": "source", "type": _SOURCE},
            {"name": "op", "type": "string"},
            {"name": "before", "type": ["null", image]},
            {"name": "after", "type": ["null", f"{place['namespace']}.Value"]},
        ]
        schema = {"type": "record", "name": f"{table}Envelope", "fields": fields} | place
        letter = "c" if change.old is None else "d" if change.new is None else "u"
        values = {"source": self._source(change.table, ts), "op": letter, "before": change.old, "after": change.new}
        row = change.new or change.old or {}
        keys = {"type": "record", "name": f"{table}Key", "fields": [self._field(self.of.key)]} | place
        key = framed(self._registry, keys, {self.of.key: row[self.of.key]})
        return key, framed(self._registry, schema, values)

    def watermark(self, ts: int) -> Message:
        """See `handmade.Wire`."""
        fields = [{"name": "source", "type": _SOURCE}, {"name": "op", "type": "string"}]
        schema = {"type": "record", "name": "watermarkEnvelope", "namespace": "default", "fields": fields}
        source = {"db": "", "table": "", "commit_ts": ts}
        return None, framed(self._registry, schema, {"source": source, "op": "m"})

    def _source(self, table: str, ts: int) -> dict[str, Any]:
        return {"db": self.of.database, "table": table, "commit_ts": ts}

    def _field(self, name: str) -> dict[str, Any]:
        avro = self.of.codes(name)[3]
        declared = {"name": name, "tidb_type": self.of.kind(name)}
        return declared | ({"type": avro} if name == self.of.key else {"type": ["null", avro], "default": None})

    def _described(self, name: str) -> dict[str, Any]:
        default, kind = self.of.defaults.get(name), self.of.kind(name)
        return {
            "name": name,
            "typeName": kind.upper(),
            "length": 50 if kind == "varchar" else None,
            "scale": None,
            "optional": name != self.of.key,
            "defaultValueExpression": None if default is None else str(default),
            "enumValues": None,
            "comment": None,
        }


_COLUMN = {
    "type": "record",
    "name": "ColumnChange",
    "fields": [
        {"name": "name", "type": "string"},
        *({"name": name, "type": ["null", kind]} for name, kind in _NULLABLE.items()),
        {"name": "optional", "type": "boolean"},
        {"name": "enumValues", "type": ["null", {"type": "array", "items": "string"}]},
        {"name": "comment", "type": ["null", "string"]},
    ],
}
_TABLE = {
    "type": "record",
    "name": "TableDescription",
    "fields": [
        {"name": "columns", "type": {"type": "array", "items": _COLUMN}},
        {"name": "primaryKeyColumnNames", "type": {"type": "array", "items": "string"}},
    ],
}
_CHANGE = {
    "type": "record",
    "name": "SchemaChangeValue",
    "fields": [
        {"name": "source", "type": _SOURCE},
        {"name": "ddl", "type": "string"},
        {"name": "databaseName", "type": ["null", "string"]},
        {
            "name": "tableChanges",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "TableChange",
                    "fields": [{"name": "id", "type": "string"}, {"name": "table", "type": ["null", _TABLE]}],
                },
            },
        },
    ],
}
