"""JSON text of one Simple message in, an `SimpleEnvelope` out."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from operator import attrgetter
from typing import Annotated, Any, Literal

import msgspec

from applier.changefeed.event import Op
from applier.changefeed.row_block import RowShape, row_shape
from applier.changefeed.table import TableVersion
from applier.changefeed.zoned_text import ZonedText
from applier.decode.columnar.structs import RowReader, key_columns
from applier.decode.simple.table_schema import SimpleTableSchema, Version
from applier.errors import DecodeError

Value = str | int | float | bytes | ZonedText | None
"""A value in a row: JSON has text, null and timestamps only; Avro has numbers and bytes as well."""


class Checksum(msgspec.Struct):
    """Checksums of a row's images; 0 where there is none.

    Attributes:
        version: What TiDB stored: 0 the number itself, 1 and 2 a checksum of bytes from which TiCDC made the number.
        corrupted: TiCDC found that the row differs from what TiDB stored.
        current: Of the new image.
        previous: Of the old image.
    """

    version: int = 0
    corrupted: bool = False
    current: Annotated[int, msgspec.Meta(ge=0, lt=1 << 32)] = 0
    previous: Annotated[int, msgspec.Meta(ge=0, lt=1 << 32)] = 0


class SimpleEnvelope(msgspec.Struct, gc=False, rename="camel"):
    """The members of a message of any type; those that a type does not have keep their defaults."""

    version: int
    type: str
    database: str = ""
    table: str = ""
    commit_ts: Version = 0
    schema_version: Version = 0
    data: dict[str, str | ZonedText | None] | None = None
    old: dict[str, str | ZonedText | None] | None = None
    handle_key_only: bool = False
    claim_check_location: str | None = None
    checksum: Checksum | None = None
    sql: str = ""
    table_schema: SimpleTableSchema | None = None
    pre_table_schema: SimpleTableSchema | None = None


class _PlainMessage(msgspec.Struct, gc=False, rename="camel", kw_only=True):
    """What a row's message has if there is nothing special about it: what is None here must not be there."""

    version: Literal[1]
    commit_ts: Annotated[int, msgspec.Meta(ge=1, le=(1 << 63) - 1)]
    handle_key_only: None = None
    claim_check_location: None = None
    checksum: None = None


TYPE_MARK = b',"type":"'
"""What stands before the type of a message."""

_ENVELOPES = msgspec.json.Decoder(SimpleEnvelope)


def read(value: bytes) -> SimpleEnvelope:
    """Read a message.

    Raises:
        DecodeError: It is no JSON, or not of this protocol.
    """
    try:
        return _ENVELOPES.decode(value)
    except UnicodeDecodeError as error:
        raise DecodeError("The message holds bytes that are not UTF-8.") from error
    except (msgspec.MsgspecError, RecursionError) as error:
        hint = "Check that changefeed.protocol names the protocol of the sink."
        raise DecodeError(f"The message is not of the Simple protocol: {error}.", hint) from error


def row_reader(sample: SimpleEnvelope, op: Op, version: TableVersion) -> RowReader | None:
    """A reader of messages like a sample; None for one that has no such like.

    Args:
        sample: A row.
        op: Its kind.
        version: What it refers to.
    """
    image = sample.old if op is Op.DELETE else sample.data
    if not image or not version.key or not image.keys() >= set(version.key):
        return None
    columns = tuple((name, _is_zoned(name, version)) for name in image)
    try:
        shape, decode = _row_message(sample.type, sample.schema_version, columns, version.key)
    except ValueError:  # a column with a name that msgspec does not take
        return None
    image_of = attrgetter("old" if op is Op.DELETE else "data")
    before = attrgetter("old") if op is Op.UPDATE else None
    return RowReader(version.name, version.version, op, shape, decode, "commit_ts", image_of, before)


@lru_cache(maxsize=1024)
def _row_message(
    kind: str, schema_version: int, columns: tuple[tuple[str, bool], ...], key: tuple[str, ...]
) -> tuple[RowShape, Callable[[bytes], Any]]:
    shape = row_shape([name for name, _ in columns], key, [name for name, is_zoned in columns if is_zoned])
    fields: list[Any] = [("type", Literal[kind]), ("schema_version", Literal[schema_version])]
    if kind == "DELETE":
        fields.append(("old", shape.row))
    else:
        fields.append(("data", shape.row))
    if kind == "UPDATE":
        fields.append(("old", key_columns(key) | None, None))
    message = msgspec.defstruct(kind.title(), fields, bases=(_PlainMessage,), gc=False, rename="camel", kw_only=True)
    return shape, msgspec.json.Decoder(message).decode


def _is_zoned(name: str, version: TableVersion) -> bool:
    column = version.column(name)
    return column is not None and column.type.name == "timestamp"
