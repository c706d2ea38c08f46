"""Verifies the checksum of a row of the Avro protocol.

TiDB's checksum is of numbers where Avro carries text or bytes: the index of an enum's member, the mask of a set, the
number of a bit. They are put back before the comparison. TiCDC sorts the fields by column id, the checksum's own order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from applier.changefeed.event import Image, Op, RowChange
from applier.changefeed.table import ColumnType, TableVersion
from applier.decode.avro.schema import CHECKSUM, CHECKSUM_VERSION, CORRUPTED
from applier.decode.simple.json_form import Checksum
from applier.decode.values.checksum import RowChecksums
from applier.decode.values.dates import ZonedText
from applier.errors import DecodeError

_Number = Callable[[Any], Any]


class AvroChecksums:
    """Verifies rows whose TIMESTAMP text is written in an IANA zone."""

    def __init__(self, zone: str) -> None:
        self._zone = zone
        self._checksums = RowChecksums(is_ordered=True)
        self._numbers: dict[tuple[str, str, int], dict[str, _Number]] = {}

    def learn(self, version: TableVersion) -> None:
        """Make the columns of a version known; rows of others pass."""
        self._checksums.learn(version)
        numbers = {column.name: self._number(column.type) for column in version.columns}
        place = (*version.name, version.version)
        self._numbers[place] = {name: number for name, number in numbers.items() if number is not None}

    def verify(self, version: TableVersion, commit_ts: int, image: Image, extension: Mapping[str, Any]) -> None:
        """Compare the new image of a row with the checksum in its extension fields, if there is one.

        `_tidb_row_level_checksum` is a decimal number of 32 bits, empty for none. `_tidb_corrupted` means that TiCDC
        itself saw that the row differs.

        Raises:
            DecodeError: The row is damaged.
        """
        text, is_corrupted = extension.get(CHECKSUM, ""), extension.get(CORRUPTED, False)
        if not text and not is_corrupted:
            return
        if text and not (text.isascii() and text.isdigit()):
            raise DecodeError("Its _tidb_row_level_checksum is no number.")
        numbers = self._numbers.get((*version.name, version.version), {})
        bare = dict(image)
        for name, number in numbers.items():
            if bare.get(name) is not None:
                bare[name] = number(bare[name])
        change = RowChange(version.name, version.version, commit_ts, Op.UPDATE, None, bare)
        self._checksums.verify(change, Checksum(extension.get(CHECKSUM_VERSION, 0), is_corrupted, int(text or 0)))

    def _number(self, column: ColumnType) -> _Number | None:
        if column.name == "enum":
            return {label: number for number, label in enumerate(column.elements, 1)}.get
        if column.name == "set":
            bits = {label: 1 << bit for bit, label in enumerate(column.elements)}
            return lambda labels: _mask(labels, bits)
        if column.name == "bit":
            return lambda data: int.from_bytes(data, "big")
        return partial(ZonedText, self._zone) if column.name == "timestamp" else None


def _mask(labels: str, bits: dict[str, int]) -> int | None:
    """Mask of a set; None for a label that it does not have, which no checksum can be compared with."""
    members = [bits.get(label) for label in labels.split(",")] if labels else []
    return None if None in members else sum(member for member in members if member is not None)
