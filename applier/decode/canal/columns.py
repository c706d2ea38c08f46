"""A description of Canal-JSON rows in, a reader of many rows like that out."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Annotated, Any, Literal, TypeAlias

import msgspec

from applier.changefeed.event import Op
from applier.changefeed.row_block import RowShape, row_shape
from applier.decode.columnar.structs import RowReader, key_columns
from applier.decode.row_schemas import Description

TYPE_MARK = b',"type":"'
"""What stands before the type of a message. Database, table and key columns come before it."""

_KINDS = {Op.INSERT: "INSERT", Op.UPDATE: "UPDATE", Op.DELETE: "DELETE"}
_One = msgspec.Meta(min_length=1, max_length=1)
_Decode: TypeAlias = Callable[[bytes], Any]

_TIMES = re.compile(rb'\d{1,18},"ts":\d{1,18},"sql":"",')
"""What differs between messages of a table before their row: when they were committed and sent, in milliseconds."""
_TYPES = ',"mysqlType":'
_MOST_ORDERS = 16
"""Orders of the types beyond which any other is as likely as those that were met."""


class _Extension(msgspec.Struct, gc=False, rename="camel"):
    """The extension of a whole row: what is None here must not be there."""

    commit_ts: Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
    only_handle_key: None = None
    claim_check_location: None = None


class _WithExtension(msgspec.Struct, gc=False, kw_only=True):
    extension: _Extension = msgspec.field(name="_tidb")


def row_reader(
    sample: bytes, op: Op, description: Description, types: Mapping[str, str], names: Sequence[str]
) -> RowReader | None:
    """A reader of rows of the version that the description stands for now; None if nothing can be reduced by a key.

    Args:
        sample: One of them.
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
        shape, whole, typeless = _row_message(_KINDS[op], columns, key)
    except ValueError:  # a column with a name that msgspec does not take
        return None
    decode = _shortened(sample, _KINDS[op], whole, typeless)
    before = _before if op is Op.UPDATE else None
    scales = tuple(description.scales.items())
    return RowReader(description.name, number, op, shape, decode, "extension.commit_ts", _image, before, scales)


@lru_cache(maxsize=1024)
def _row_message(
    kind: str, columns: tuple[tuple[str, str], ...], key: tuple[str, ...]
) -> tuple[RowShape, _Decode, _Decode]:
    """The shape of the rows, a decoder of messages, and one of messages whose first half is left out."""
    shape = row_shape([name for name, _ in columns], key)
    types = msgspec.defstruct(
        "Types",
        [(f"c{number}", Literal[text]) for number, (_, text) in enumerate(columns)],
        gc=False,
        forbid_unknown_fields=True,
        rename={f"c{number}": name for number, (name, _) in enumerate(columns)},
    )
    images: list[Any] = [("data", Annotated[list[shape.row], _One])]  # type: ignore[name-defined]  # made here
    if kind == "UPDATE":
        images.append(("old", Annotated[list[key_columns(key)], _One]))  # type: ignore[misc]  # too
    described: list[Any] = [("type", Literal[kind]), ("types", types, msgspec.field(name="mysqlType"))]
    absent: list[Any] = [("type", None, None), ("types", None, msgspec.field(name="mysqlType", default=None))]
    return shape, _decoder([*described, *images]), _decoder([*absent, *images])


def _decoder(fields: Sequence[Any]) -> _Decode:
    message = msgspec.defstruct("Message", fields, bases=(_WithExtension,), gc=False, kw_only=True)
    return msgspec.json.Decoder(message).decode


def _shortened(sample: bytes, kind: str, whole: _Decode, typeless: _Decode) -> _Decode:
    """Reads messages, and does not parse what describes their table if it was met before: half of each.

    So it is where TiCDC writes it: between the times and the row. Official Canal writes the row first. TiCDC takes the
    types from a map, which Go walks from another place each time: up to eight columns come in as many orders at most,
    more of them in any.
    """
    lead = sample[: sample.find(TYPE_MARK)] + TYPE_MARK + kind.encode() + b'","es":'
    times = _TIMES.match(sample, len(lead))
    if times is None or not sample.startswith(lead):
        return whole
    lead_end, times_end, end = len(lead), times.end(), _end(sample, times.end())
    known = {sample[times_end:end]}
    looks = 0

    def decode(value: bytes) -> Any:
        nonlocal looks
        if len(known) > _MOST_ORDERS or not value.startswith(lead):
            return whole(value)
        times = _TIMES.match(value, lead_end)
        if times is None or times.end() != times_end:
            return whole(value)
        types = value[times_end:end]
        if types in known:
            return typeless(b"{" + value[end:])
        message = whole(value)
        if looks < _MOST_ORDERS:
            # Not for ever: an unsigned number makes its `sqlType` longer or shorter, and a look is slower than parsing.
            looks += 1
            if _end(value, times_end) == end:
                known.add(types)
        return message

    try:
        return decode if whole(sample) is not None and typeless(b"{" + sample[end:]) is not None else whole
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return whole


def _end(message: bytes, start: int) -> int:
    """Where the types of the columns end, with the comma behind them; the end of the message if they are not shown."""
    text = message[start:].decode(errors="surrogateescape")
    place = text.find(_TYPES)
    try:
        _, size = json.JSONDecoder().raw_decode(text, place + len(_TYPES)) if place >= 0 else (None, len(text))
    except ValueError:
        return len(message)
    return start + len(text[:size].encode(errors="surrogateescape")) + 1


def _image(message: Any) -> Any:
    return message.data[0]


def _before(message: Any) -> Any:
    return message.old[0]
