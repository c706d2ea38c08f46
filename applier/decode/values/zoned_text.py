"""A TIMESTAMP with the zone that it was written in."""

from __future__ import annotations

import msgspec
import pyarrow as pa


class ZonedText(msgspec.Struct, frozen=True, gc=False):
    """A TIMESTAMP as Simple writes it.

    Attributes:
        location: IANA name of the zone that the text is in.
        value: Wall clock, `YYYY-MM-DD hh:mm:ss[.ffffff]`.
    """

    location: str
    value: str


ZONED = pa.struct([("location", pa.string()), ("value", pa.string())])
"""`ZonedText` in Arrow."""
