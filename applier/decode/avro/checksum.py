"""Verifies the checksum of a row of the Avro protocol.

TiDB's checksum is of numbers where Avro carries text or bytes: the index of an enum's member, the mask of a set, the
number of a bit (TiDB `pkg/util/rowcodec/common.go`). They are put back before the comparison; a row is not compared if
its text does not show one. TiCDC sorts the fields by column id, the checksum's own order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
            if bare.get(name) is not None and (found := number(bare.pop(name))) is not None:
                # One without its number lacks the column now. NULL in its place would be another row.
                bare[name] = found
        change = RowChange(version.name, version.version, commit_ts, Op.UPDATE, None, bare)
        self._checksums.verify(change, Checksum(extension.get(CHECKSUM_VERSION, 0), is_corrupted, int(text or 0)))

    def _number(self, column: ColumnType) -> _Number | None:
        if column.name == "enum":
            return _places(column.elements).get
        if column.name == "set":
            return partial(_mask, places=_places(column.elements))
        if column.name == "bit":
            return lambda data: int.from_bytes(data, "big")
        return partial(ZonedText, self._zone) if column.name == "timestamp" else None


def _places(elements: Sequence[str]) -> dict[str, int]:
    """Place of each member by its label, from 1 on; 0 for the empty text by which TiDB shows that there is none.

    What a label does not show is left out: the place of the empty text where a member has it as its label, and those
    of members behind one with a comma, which may be two (see `members`).
    """
    sure = next((place for place, label in enumerate(elements, 1) if "," in label), len(elements))
    return {label: place for place, label in enumerate(("", *elements[:sure])) if label or "" not in elements}


def _mask(labels: str, places: Mapping[str, int]) -> int | None:
    """Mask of a set; None where a label does not show its member."""
    members = [places.get(label) for label in labels.split(",")]
    return None if None in members else sum(1 << place - 1 for place in members if place)
