"""Checksums of Avro rows with members of enums and sets, whose numbers TiDB sums up and whose labels come."""

from __future__ import annotations

import struct
from typing import Any
from zlib import crc32

import pytest

from applier.changefeed.table import Column, ColumnType, TableName, TableVersion
from applier.decode.avro.checksum import AvroChecksums
from applier.errors import DecodeError

NAME = TableName("shop", "t")


def verify(kind: str, elements: tuple[str, ...], value: str | None, sent: int, **extension: Any) -> None:
    """Verify a row of the id 1 and of a value, which TiDB summed up as these two numbers."""
    version = TableVersion(NAME, 1, (Column("id", ColumnType("int")), Column("v", ColumnType(kind, elements=elements))))
    checksums = AvroChecksums("UTC")
    checksums.learn(version)
    number = str(crc32(struct.pack("<QQ", 1, sent)))
    checksums.verify(version, 7, {"id": 1, "v": value}, {"_tidb_row_level_checksum": number, **extension})


@pytest.mark.parametrize(
    ("kind", "elements", "value", "sent"),
    [
        ("enum", ("a", "b"), "b", 2),
        ("enum", ("a", "b"), "", 0),
        ("enum", ("a,b", "c"), "a,b", 1),
        ("set", ("a", "b", "c"), "a,c", 0b101),
        ("set", ("a", "b"), "", 0),
    ],
)
def test_a_label_that_shows_its_number_is_compared(kind: str, elements: tuple[str, ...], value: str, sent: int) -> None:
    """The row passes, the index 0 of an empty label included, and one with another number or NULL does not."""
    verify(kind, elements, value, sent)
    with pytest.raises(DecodeError, match="differs from its checksum"):
        verify(kind, elements, value, sent + 1)
    with pytest.raises(DecodeError, match="differs from its checksum"):
        verify(kind, elements, None, sent)


@pytest.mark.parametrize(
    ("kind", "elements", "value"),
    [
        ("enum", ("a", "b"), "gone"),
        ("enum", ("", "a"), ""),
        ("enum", ("a,b", "c"), "c"),
        ("set", ("a", "b"), "a,gone"),
        ("set", ("", "a"), ""),
        ("set", ("", "a"), ",a"),
    ],
)
def test_a_label_that_does_not_show_its_number_proves_nothing(kind: str, elements: tuple[str, ...], value: str) -> None:
    """No number is known that TiDB can have summed up: the row passes, unless TiCDC itself found that it differs."""
    for sent in range(4):
        verify(kind, elements, value, sent)
    with pytest.raises(DecodeError, match="TiCDC found that a row"):
        verify(kind, elements, value, 1, _tidb_corrupted=True)
