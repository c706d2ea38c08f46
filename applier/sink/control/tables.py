"""The control tables of a changefeed: their names and columns. Nothing else names them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any, TypeVar

import pyarrow as pa

from applier.config import own_namespaces
from applier.errors import TableMismatch
from applier.sink.format.types import TableSchema, iceberg_type
from applier.wording import WAY_FROM_NEWER_FORM, WAY_FROM_OTHER_FORM, several

HOLDER = "applier.holder"
STEP = "applier.step"
"""Properties of `CHECKPOINTS`: token of the holder, and the newest step: a reader can look for that one alone."""

T = TypeVar("T")

_UTC = pa.timestamp("us", tz="UTC")


class ControlTable:
    """A control table, as every changefeed has one, with its name in the namespace of the changefeed and its columns.

    The values of the column `order` only grow, in a table that need not keep all rows; else it is "".
    """

    def __init__(self, name: str, columns: Sequence[pa.Field[Any]], order: str = "") -> None:
        self.name = name
        self.columns: pa.Schema = pa.schema(columns)
        self.order = order

    def rows(self, nouns: Iterable[T], members: Callable[[T], dict[str, Any]]) -> pa.Table:
        """A row for each noun: the members that are given of it, and for the other columns its attributes."""
        found = []
        for noun in nouns:
            row = members(noun)
            found.append(row | {name: getattr(noun, name) for name in self.columns.names if name not in row})
        return pa.Table.from_pylist(found, schema=self.columns)

    def check(self, table: object, schema: TableSchema) -> None:
        """Refuse a table that has the name, but not the columns.

        Raises:
            TableMismatch: Its columns are others.
        """
        wanted = [(column.name, iceberg_type(column.type)) for column in self.columns]
        found = [(column.name, column.type) for column in schema.fields]
        if found != wanted and set(wanted) < set(found):
            raise _newer_columns(f"{table}", [name for name, kind in found if (name, kind) not in wanted])
        if found != wanted:
            raise other_form(f"table {table} has other columns")


def other_form(found: str) -> TableMismatch:
    """The error for control tables that another build wrote, whichever of them shows it."""
    what = f"The control tables of this changefeed do not have the form that this build of applier reads: {found}."
    return TableMismatch(what, WAY_FROM_OTHER_FORM)


def newer_form(found: int, known: int) -> TableMismatch:
    """The error for a checkpoint that a newer release wrote in a format that this one cannot read."""
    what = (
        f"The newest checkpoint of this changefeed was written by a newer release of applier, in format {found}; "
        f"applier {version('applier')} reads up to format {known}."
    )
    return TableMismatch(what, WAY_FROM_NEWER_FORM)


def _newer_columns(table: str, names: Sequence[str]) -> TableMismatch:
    what = (
        f"Control table {table} has {several(names)} beside the columns that applier {version('applier')} knows: a "
        "newer release wrote it."
    )
    return TableMismatch(what, WAY_FROM_NEWER_FORM)


def namespace(changefeed: str) -> str:
    """The namespace of a changefeed's control tables."""
    return own_namespaces.control(changefeed)


def now() -> datetime:
    """The time of a row that is written."""
    return datetime.now(tz=UTC)


def _given(name: str, kind: pa.DataType) -> pa.Field[Any]:
    return pa.field(name, kind, nullable=False)


CHECKPOINTS = ControlTable(
    "checkpoints",
    [
        _given("step", pa.int64()),
        _given("epoch", pa.int64()),
        _given("resolved_ts", pa.int64()),
        pa.field("resolved_at", _UTC),
        _given("written_at", _UTC),
        _given("holder", pa.string()),
        _given("released", pa.bool_()),
        _given("checkpoint", pa.string()),
    ],
    order="step",
)
"""One row a step; `checkpoint` is the whole of it as JSON (`schemas/checkpoint/v2.json`)."""

TABLE_VERSIONS = ControlTable(
    "table_versions",
    [
        _given("database", pa.string()),
        _given("table", pa.string()),
        _given("version", pa.int64()),
        _given("epoch", pa.int64()),
        _given("seen_at", _UTC),
        _given("description", pa.string()),
    ],
)
"""One row for each table version met; `description` is `TableVersion.to_json`."""

SCHEMA_CHANGES = ControlTable(
    "schema_changes",
    [
        _given("commit_ts", pa.int64()),
        pa.field("committed_at", _UTC),
        _given("database", pa.string()),
        _given("table", pa.string()),
        _given("sql", pa.string()),
        _given("kind", pa.string()),
        _given("decision", pa.string()),
        _given("reason", pa.string()),
        pa.field("snapshot_id", pa.int64()),
        pa.field("schema_id", pa.int32()),
        _given("epoch", pa.int64()),
        _given("decided_at", _UTC),
        pa.field("ignored_for", pa.string()),
        pa.field("job", pa.string()),
    ],
)
"""One row for each decision on a DDL; a restart may decide again, then the newest counts."""

DEAD_LETTERS = ControlTable(
    "dead_letters",
    [
        _given("topic", pa.string()),
        _given("partition", pa.int32()),
        _given("offset", pa.int64()),
        pa.field("timestamp", _UTC),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        _given("error", pa.string()),
        _given("step", pa.int64()),
        _given("epoch", pa.int64()),
        _given("buried_at", _UTC),
    ],
)
"""One row for each message that was passed over, whole, so that it can be replayed."""

REQUESTS = ControlTable(
    "requests",
    [
        _given("id", pa.string()),
        _given("kind", pa.string()),
        _given("tables", pa.string()),
        _given("why", pa.string()),
        _given("who", pa.string()),
        pa.field("outcome", pa.string()),
        _given("written_at", _UTC),
    ],
)
"""One row when a command asks, without an outcome, and one when it was carried out or withdrawn, with it."""

CONTROL_TABLES = (CHECKPOINTS, TABLE_VERSIONS, SCHEMA_CHANGES, DEAD_LETTERS, REQUESTS)
"""All control tables. `CHECKPOINTS`, which shows that there is a changefeed, is made first and dropped last."""
