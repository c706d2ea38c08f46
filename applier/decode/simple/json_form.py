"""What a message of the Simple protocol holds, and its form in JSON."""

from __future__ import annotations

from operator import attrgetter
from typing import Annotated, Any, Literal

import msgspec
import pyarrow as pa

from applier.changefeed.event import Op
from applier.changefeed.table import TableVersion
from applier.decode.columnar.json_columns import JsonColumn, JsonRows, old_key, row_struct
from applier.decode.json_messages import Tso
from applier.decode.simple.table_schema import SimpleTableSchema
from applier.decode.values.dates import ZONED, ZonedText


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
    commit_ts: Tso = 0
    schema_version: Tso = 0
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


ENVELOPES = msgspec.json.Decoder(SimpleEnvelope)


def row_reader(sample: SimpleEnvelope, op: Op, version: TableVersion) -> JsonRows:
    """A reader of messages like a sample row. Raises ValueError if they must be read one by one."""
    image = (sample.old if op is Op.DELETE else sample.data) or {}
    columns = tuple(JsonColumn(name, ZONED if _is_zoned(name, version) else pa.string()) for name in image)
    kinds = [ZonedText | None if column.kind == ZONED else str | None for column in columns]
    fields: list[Any] = [("type", Literal[sample.type]), ("schema_version", Literal[sample.schema_version])]
    row = row_struct(list(image), kinds)
    if op is Op.UPDATE:
        fields += [("data", row), ("old", old_key(version.key, Any, msgspec.UNSET) | None, None)]
    else:
        fields.append(("old" if op is Op.DELETE else "data", row))
    message = msgspec.defstruct("Message", fields, bases=(_PlainMessage,), gc=False, rename="camel", kw_only=True)
    parse = msgspec.json.Decoder(message).decode
    return JsonRows(
        version,
        op,
        columns,
        lambda _key, value: parse(value),
        attrgetter("commit_ts"),
        attrgetter("old" if op is Op.DELETE else "data"),
        attrgetter("old") if op is Op.UPDATE else None,
    )


def _is_zoned(name: str, version: TableVersion) -> bool:
    column = version.column(name)
    return column is not None and column.type.name == "timestamp"
