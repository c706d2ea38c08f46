"""Values of many JSON messages in, column by column the Arrow array of wire values out, if all are of one kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa

from applier.changefeed.event import Op
from applier.changefeed.row_block import ColumnBlock, FixedRow, Ints
from applier.changefeed.table import TableVersion


@dataclass(frozen=True, slots=True)
class JsonColumn:
    """How the values of one column are read.

    Attributes:
        name: The column.
        types: What its values may be, beside None: exactly what is read one by one.
        kind: What they become.
        reader: Turns each value that is not None into one of `kind`; None where they are already.
    """

    name: str
    types: frozenset[type]
    kind: pa.DataType
    reader: Callable[[Any], Any] | None = None

    def array(self, values: Sequence[Any]) -> pa.Array[Any]:
        """All values. Raises one of `grouped.UNFIT` if one of them is not as it must be."""
        if not self.types >= set(map(type, values)) - {type(None)}:
            raise TypeError
        if self.reader is not None:
            read = self.reader
            values = [None if value is None else read(value) for value in values]
        made: pa.Array[Any] = pa.array(values, self.kind)
        return made


@dataclass(frozen=True, slots=True)
class JsonRows:
    """How rows of one table and kind are read; the protocols add what is their own.

    Attributes:
        version: What the rows refer to.
        op: Their kind.
        columns: The columns.
        decode: Reads a message, or of Debezium the part before its schema.
    """

    version: TableVersion
    op: Op
    columns: tuple[JsonColumn, ...]
    decode: Callable[[bytes], Any]

    def block(self, places: Ints, commit_ts: Ints, columns: Mapping[str, pa.Array[Any]]) -> list[ColumnBlock]:
        """The rows of some messages; see `ColumnBlock`."""
        version, form = self.version, tuple(str(column.kind) for column in self.columns)
        return [ColumnBlock(version.name, version.version, self.op, version.key, places, commit_ts, form, columns)]


def row_struct(names: Sequence[str], kinds: Sequence[Any], **default: Any) -> Any:
    """A struct with just these members: fields `c0`, `c1`, … of the given kinds.

    Args:
        names: The members.
        kinds: The type of each.
        default: `default`, where members may be missing: what they are then.

    Raises:
        ValueError: A name is none that msgspec takes.
    """
    fields: list[Any] = [(f"c{number}", kind, *default.values()) for number, kind in enumerate(kinds)]
    renamed = {f"c{number}": name for number, name in enumerate(names)}
    return msgspec.defstruct("Row", fields, bases=(FixedRow,), gc=False, forbid_unknown_fields=True, rename=renamed)
