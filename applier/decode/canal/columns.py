"""Makes a reader of many Canal-JSON rows that have the same description."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from operator import attrgetter
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
import pyarrow as pa

from applier.changefeed.event import Op
from applier.decode.columnar.groups import TYPE_MARK
from applier.decode.columnar.json_columns import JsonColumn, JsonRows, old_struct, row_struct
from applier.decode.json_messages import Tso
from applier.decode.row_schemas import Description

_One = msgspec.Meta(min_length=1, max_length=1)
_Parse: TypeAlias = Callable[[bytes], Any]

_TIMES = re.compile(rb'\d{1,18},"ts":\d{1,18},"sql":"",')
"""What differs between messages of a table before their row: when they were committed and sent, in milliseconds."""
_TYPES = ',"mysqlType":'
_MOST_ORDERS = 16
"""Orders of the types beyond which any other is as likely as those that were met."""


class _Extension(msgspec.Struct, gc=False, rename="camel"):
    """The extension of a whole row: what is None here must not be there."""

    commit_ts: Tso
    only_handle_key: None = None
    claim_check_location: None = None


class _WithExtension(msgspec.Struct, gc=False, kw_only=True):
    extension: _Extension = msgspec.field(name="_tidb")


def row_reader(
    sample: bytes,
    op: Op,
    description: Description,
    types: Mapping[str, str],
    names: Sequence[str],
    kept: frozenset[Op],
) -> JsonRows:
    """A reader of rows of the version that their description stands for now.

    The sample is one of them, as bytes. The types of the columns are as the rows say them, the names in their order.
    Old rows are asked for of the `kept` kinds of changes.

    Raises:
        ValueError: They must be read one by one.
    """
    version = description.settled
    old = names if op in kept else version.key
    whole, typeless = _row_message(op.name, [(name, types[name]) for name in names], old)
    return JsonRows(
        version,
        op,
        tuple(JsonColumn(name, pa.string()) for name in names),
        _shortened(sample, op.name, whole, typeless),
        attrgetter("extension.commit_ts"),
        lambda message: message.data[0],
        (lambda message: message.old[0]) if op is Op.UPDATE else None,
        scales=dict(description.scales),
        kept=kept,
    )


def _row_message(kind: str, columns: Sequence[tuple[str, str]], old: Sequence[str]) -> tuple[_Parse, _Parse]:
    """A decoder of messages, and one of messages whose first half is left out."""
    names = [name for name, _ in columns]
    types, row = row_struct(names, [Literal[text] for _, text in columns]), row_struct(names, [str | None] * len(names))
    images: list[Any] = [("data", Annotated[list[row], _One])]  # type: ignore[valid-type]  # made here
    if kind == "UPDATE":
        before = old_struct(old, [str | None | msgspec.UnsetType] * len(old))
        images.append(("old", Annotated[list[before], _One]))  # type: ignore[valid-type]  # too
    described: list[Any] = [("type", Literal[kind]), ("types", types, msgspec.field(name="mysqlType"))]
    absent: list[Any] = [("type", None, None), ("types", None, msgspec.field(name="mysqlType", default=None))]
    return _decoder([*described, *images]), _decoder([*absent, *images])


def _decoder(fields: Sequence[Any]) -> _Parse:
    message = msgspec.defstruct("Message", fields, bases=(_WithExtension,), gc=False, kw_only=True)
    return msgspec.json.Decoder(message).decode


def _shortened(sample: bytes, kind: str, whole: _Parse, typeless: _Parse) -> Callable[[Any, bytes], Any]:
    """Reads messages, and does not parse what describes their table if it was met before: half of each.

    So it is where TiCDC writes it: between the times and the row. Official Canal writes the row first. TiCDC takes the
    types from a map, which Go walks from another place each time: up to eight columns come in as many orders at most,
    more of them in any.
    """
    lead = sample[: sample.find(TYPE_MARK)] + TYPE_MARK + kind.encode() + b'","es":'
    times = _TIMES.match(sample, len(lead))
    if times is None or not sample.startswith(lead):
        return lambda _key, value: whole(value)
    lead_end, times_end, end = len(lead), times.end(), _end(sample, times.end())
    known = {sample[times_end:end]}
    looks = 0

    def decode(_key: Any, value: bytes) -> Any:
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

    with suppress(msgspec.MsgspecError, UnicodeDecodeError):
        whole(sample)
        typeless(b"{" + sample[end:])
        return decode
    return lambda _key, value: whole(value)


def _end(message: bytes, start: int) -> int:
    """Where the types of the columns end, with the comma behind them; the end of the message if they are not shown."""
    text = message[start:].decode(errors="surrogateescape")
    place = text.find(_TYPES)
    try:
        _, size = json.JSONDecoder().raw_decode(text, place + len(_TYPES)) if place >= 0 else (None, len(text))
    except ValueError:
        return len(message)
    return start + len(text[:size].encode(errors="surrogateescape")) + 1
