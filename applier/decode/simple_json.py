"""JSON text of one Simple message in, an `Envelope` out."""

from __future__ import annotations

from typing import Annotated

import msgspec

from applier.decode.dates import ZonedText
from applier.decode.simple_schema import TableSchema, Version
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


class Envelope(msgspec.Struct, gc=False, rename="camel"):
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
    table_schema: TableSchema | None = None
    pre_table_schema: TableSchema | None = None


_ENVELOPES = msgspec.json.Decoder(Envelope)


def read(value: bytes) -> Envelope:
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
