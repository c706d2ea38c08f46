"""Makes the row change, and the table version that it refers to, of the names, schema and values of one row."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from applier.changefeed.event import Op, RowChange
from applier.changefeed.table import TableName, TableVersion, fingerprint
from applier.decode.debezium.fields import ConnectField, Reader, read_values
from applier.errors import DecodeError, IncompleteRow

OWN = 1 << 62
"""Set in the number of a version that a row described, never in that of one that a DDL described."""

UNKNOWN_VERSION = 0
"""What a row refers to whose types nothing has shown yet. No version has this number, so the row waits."""

_OPS = {"c": Op.INSERT, "u": Op.UPDATE, "d": Op.DELETE}


@dataclass(frozen=True, slots=True)
class Layout:
    """How to read rows of one description.

    Attributes:
        version: What they refer to.
        readers: For columns whose values need one.
        text_decimals: Columns of decimals that come as text.
        renamed: Upstream name of each field in Avro; None where all are the same.
    """

    version: TableVersion
    readers: dict[str, Reader]
    text_decimals: tuple[str, ...] = ()
    renamed: dict[str, str] | None = None


def declared_layout(
    name: TableName, fields: Sequence[ConnectField], key: tuple[str, ...], names: Collection[str]
) -> Layout:
    """Layout of rows that hold some of the declared fields; what is declared but not held is not replicated.

    Fields come in the declared order; TiCDC declares virtual generated columns, some builds twice. The key columns are
    those of the Kafka key.

    Raises:
        DecodeError: The row holds a column that is not declared, or TiCDC does not write a type.
    """
    by_name = {field.name: field for field in fields}
    undeclared = [column for column in names if column not in by_name]
    if undeclared:
        raise DecodeError(f"Its schema does not declare column {undeclared[0]} of table {name}.")
    fields = [field for field in by_name.values() if field.name in names]
    held = [msgspec.structs.replace(field, nullable=False) if field.name in key else field for field in fields]
    try:
        columns = tuple(field.column for field in held)
        readers = {field.name: field.reader for field in held}
    except (ValueError, TypeError, KeyError) as error:
        raise DecodeError(f"Its schema declares something that TiCDC does not write: {error}.") from None
    return Layout(
        version=own_version(TableVersion(name, 0, columns, handle_key=key)),
        readers={column: reader for column, reader in readers.items() if reader is not None},
        text_decimals=tuple(field.name for field in held if field.is_text_decimal),
    )


def own_version(version: TableVersion) -> TableVersion:
    """The version with a number made of its content."""
    return replace(version, version=fingerprint(replace(version, version=0).to_json().encode()) | OWN)


def operation(letter: str | None) -> Op:
    """Kind of a row message. Raises DecodeError for anything but `c`, `u` and `d`."""
    op = _OPS.get(letter or "")
    if op is None:
        raise DecodeError(f"Its op is {letter!r:.20}, which is none of c, u, d and m.")
    return op


def held_image(op: Op, before: dict[str, Any] | None, after: dict[str, Any] | None) -> dict[str, Any]:
    """The image that names the row: the new one, of a delete the old one.

    Raises:
        IncompleteRow: The message does not hold it.
    """
    image = before if op is Op.DELETE else after
    if not image:
        kind = "old" if op is Op.DELETE else "new"
        raise IncompleteRow(f"Its {kind} image is missing, so it names no row.")
    return image


def row_change(
    layout: Layout, op: Op, commit_ts: int, before: dict[str, Any] | None, after: dict[str, Any] | None
) -> RowChange:
    """The event of a row message; takes its images over."""
    version, readers = layout.version, layout.readers
    if readers:
        before = before and read_values(before, readers)
        after = after and read_values(after, readers)
    new = None if op is Op.DELETE else after
    return RowChange(version.name, version.version, commit_ts, op, None if op is Op.INSERT else before, new)
