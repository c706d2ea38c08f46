"""A description of Canal-JSON rows in, a reader of many rows like that out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Annotated, Any, Literal

import msgspec

from applier.changefeed.event import Op
from applier.decode.bulk import RowReader, RowShape, key_columns, row_shape
from applier.decode.described import Description

TYPE_MARK = b',"type":"'
"""What stands before the type of a message. Database, table and key columns come before it."""

_KINDS = {Op.INSERT: "INSERT", Op.UPDATE: "UPDATE", Op.DELETE: "DELETE"}
_One = msgspec.Meta(min_length=1, max_length=1)


class _Extension(msgspec.Struct, gc=False, rename="camel"):
    """The extension of a whole row: what is None here must not be there."""

    commit_ts: Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
    only_handle_key: None = None
    claim_check_location: None = None


class _Plain(msgspec.Struct, gc=False, kw_only=True):
    extension: _Extension = msgspec.field(name="_tidb")


def row_reader(op: Op, description: Description, types: Mapping[str, str], names: Sequence[str]) -> RowReader | None:
    """A reader of rows of the version that the description stands for now; None if nothing can be reduced by a key.

    Args:
        op: Kind of the rows.
        description: What the rows say of their table.
        types: The same as they say it: type of each column.
        names: The columns in the rows' order.
    """
    key, number = description.version.key, description.number
    if not key or number is None:
        return None
    columns = tuple((name, types[name]) for name in names)
    try:
        shape, decode = _row_message(_KINDS[op], columns, key)
    except ValueError:  # a column with a name that msgspec does not take
        return None
    before = _before if op is Op.UPDATE else None
    scales = tuple(description.scales.items())
    return RowReader(description.name, number, op, shape, decode, "extension.commit_ts", _image, before, scales)


@lru_cache(maxsize=1024)
def _row_message(
    kind: str, columns: tuple[tuple[str, str], ...], key: tuple[str, ...]
) -> tuple[RowShape, Callable[[bytes], Any]]:
    shape = row_shape([name for name, _ in columns], key)
    types = msgspec.defstruct(
        "Types",
        [(f"c{number}", Literal[text]) for number, (_, text) in enumerate(columns)],
        gc=False,
        forbid_unknown_fields=True,
        rename={f"c{number}": name for number, (name, _) in enumerate(columns)},
    )
    fields: list[Any] = [
        ("type", Literal[kind]),
        ("types", types, msgspec.field(name="mysqlType")),
        ("data", Annotated[list[shape.row], _One]),  # type: ignore[name-defined]  # a type that is made here
    ]
    if kind == "UPDATE":
        fields.append(("old", Annotated[list[key_columns(key) | None], _One] | None, None))  # type: ignore[misc]  # too
    message = msgspec.defstruct(kind.title(), fields, bases=(_Plain,), gc=False, kw_only=True)
    return shape, msgspec.json.Decoder(message).decode


def _image(message: Any) -> Any:
    return message.data[0]


def _before(message: Any) -> Any:
    return None if message.old is None else message.old[0]
