"""Reads the names of the key columns from the Kafka key of a Debezium row."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from applier.changefeed.table import TableName
from applier.decode.debezium.ddl import Described
from applier.errors import DecodeError, IncompleteRow


class _DeclaredField(msgspec.Struct, gc=False):
    field: str


class _Schema(msgspec.Struct, gc=False):
    fields: list[_DeclaredField] | None = None


class _Key(msgspec.Struct, gc=False):
    payload: dict[str, Any]
    schema: _Schema | None = None


_KEY = msgspec.json.Decoder(_Key)


def key_names(key: bytes) -> tuple[str, ...]:
    """Names of the key columns; () of a table without any key, whose Kafka key has an empty payload."""
    try:
        found = _KEY.decode(key)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        reason = str(error) if isinstance(error, msgspec.MsgspecError) else type(error).__name__
        msg = f"Its key is not a Debezium key of TiCDC in JSON ({reason})."
        raise DecodeError(msg) from error
    declared = None if found.schema is None or found.schema.fields is None else found.schema.fields
    if declared is not None and {column.field for column in declared} != found.payload.keys():
        raise DecodeError("Its key does not hold the columns that its schema declares.")
    return tuple(found.payload)


@dataclass(frozen=True, slots=True)
class KeyColumns:
    """Key columns of rows.

    TiCDC v8.0 to v8.4 writes no Kafka key, also for a table with a primary key: without one the key is unknown.

    Args:
        configured: Key columns by `database.table`.
        described: What DDL messages described.
    """

    configured: Mapping[str, tuple[str, ...]]
    described: Described

    def of(self, name: TableName, key: bytes, commit_ts: int, held: Collection[str]) -> tuple[str, ...]:
        """Names of the key columns of a row.

        Args:
            name: Its table.
            key: Its Kafka key, not compressed; b"" without one.
            commit_ts: Its commit ts.
            held: Columns that it holds.

        Raises:
            IncompleteRow: Nothing shows the key, or the row lacks a column of it.
        """
        if key:
            return key_names(key)
        names = self.configured.get(str(name))
        if names is None:
            version = self.described.in_force(name, commit_ts)
            if version is None:
                raise _unknown(name)
            return version.key
        lost = [column for column in names if column not in held]
        if lost:
            what = f"A row of table {name} has no column {lost[0]}, which its configured key names."
            raise IncompleteRow(what, f"Name the columns of its primary key under [tables.keys]: {name}.", name)
        return names


def _unknown(name: TableName) -> IncompleteRow:
    what = f"A row of table {name} has no Kafka key, so its primary key is unknown: TiCDC v8.0 to v8.4 writes none."
    way_out = (
        f'Set "{name}" = ["COLUMN"] under [tables.keys], with [] for a table without any key; or name a folder '
        "with its CREATE TABLE as upstream.schemas; or upgrade TiCDC."
    )
    return IncompleteRow(what, way_out, name)
