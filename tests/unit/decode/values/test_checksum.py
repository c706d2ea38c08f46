"""Row checksums: recorded ones match, damage is found, and what proves nothing passes."""

from __future__ import annotations

from typing import Any

import pytest

from applier.changefeed.event import Op, RowChange
from applier.changefeed.table import Column, ColumnType, TableName, TableVersion
from applier.decode.options import DecoderOptions
from applier.decode.simple.decoder import SimpleDecoder
from applier.decode.simple.json_form import Checksum
from applier.decode.values.checksum import RowChecksums
from applier.decode.values.dates import ZonedText
from applier.errors import DecodeError, IncompleteRow
from tests import recordings

NAME = TableName("shop", "t")
ID, V = Column("id", ColumnType("int")), Column("v", ColumnType("varchar"))
AA = 1194275474
"""Of the row (id int = 1, v varchar = 'aa'), from TiDB's own tests."""
ONLY_ID = 2844319735
"""Of the row (id int = 1)."""


def change(after: dict[str, Any] | None = None, before: dict[str, Any] | None = None) -> RowChange:
    """A row change of the table."""
    return RowChange(NAME, 1, 7, Op.UPDATE, before, after)


def checker(*columns: Column) -> RowChecksums:
    """Checksums of a table with these columns."""
    made = RowChecksums()
    made.learn(TableVersion(NAME, 1, columns or (ID, V)))
    return made


def test_the_check_values_of_tidb_match() -> None:
    """A matching row passes, and from then on a row with another value does not."""
    rows = checker()
    rows.verify(change({"id": "1", "v": "aa"}), Checksum(2, corrupted=False, current=AA))
    with pytest.raises(DecodeError, match=r"A row of shop.t differs from its checksum \(checksum, commit ts 7\)"):
        rows.verify(change({"id": "1", "v": "ab"}), Checksum(2, corrupted=False, current=AA))


def test_null_adds_nothing() -> None:
    """A row whose other column is NULL has the checksum of the rest."""
    rows = checker()
    rows.verify(change({"id": "1", "v": None}), Checksum(2, corrupted=False, current=ONLY_ID))
    with pytest.raises(DecodeError):
        rows.verify(change({"id": "2", "v": None}), Checksum(2, corrupted=False, current=ONLY_ID))


def test_an_old_image_is_verified_by_its_own_number() -> None:
    """`previous` covers the old image, save where TiDB stored the number itself, of columns that may be fewer."""
    rows = checker()
    rows.verify(change(None, {"id": "1", "v": "aa"}), Checksum(2, corrupted=False, previous=AA))
    bad = change(None, {"id": "1", "v": "ab"})
    with pytest.raises(DecodeError, match="An old row of shop.t"):
        rows.verify(bad, Checksum(2, corrupted=False, previous=AA))
    rows.verify(bad, Checksum(0, corrupted=False, previous=AA))


def test_a_mismatch_alone_proves_nothing() -> None:
    """The order of column ids is not on the wire: before any match a mismatch may be a matter of FIRST or AFTER."""
    rows = checker(V, ID)
    for _ in range(3):
        rows.verify(change({"id": "1", "v": "aa"}), Checksum(2, corrupted=False, current=AA))


def test_a_row_that_would_match_in_any_order_proves_nothing() -> None:
    """Two equal columns match however they are ordered, so the next mismatch is no damage yet."""
    rows = checker(ID, Column("n", ColumnType("int")))
    equal = 0xECBB4B55  # crc32 of sixteen zero bytes
    rows.verify(change({"id": "0", "n": "0"}), Checksum(2, corrupted=False, current=equal))
    rows.verify(change({"id": "1", "n": "0"}), Checksum(2, corrupted=False, current=equal))


@pytest.mark.parametrize(
    ("image", "checksum"),
    [
        ({"id": "1", "v": "ab"}, Checksum(2, corrupted=False)),
        ({"v": "aa"}, Checksum(2, corrupted=False, current=AA)),
        ({"id": "one", "v": "aa"}, Checksum(2, corrupted=False, current=AA)),
    ],
)
def test_what_cannot_be_verified_passes(image: dict[str, Any], checksum: Checksum) -> None:
    """No number, a column left out, or a value that is none: other rules deal with them."""
    rows = checker()
    rows.verify(change({"id": "1", "v": "aa"}), Checksum(2, corrupted=False, current=AA))
    rows.verify(change(image), checksum)
    RowChecksums().verify(change({"id": "1", "v": "ab"}), Checksum(2, corrupted=False, current=AA))


def test_an_hour_that_passes_twice_cannot_be_verified() -> None:
    """The checksum is of the time in UTC, and the wire does not tell which of two it is."""
    rows = checker(Column("at", ColumnType("timestamp")))
    plain = ZonedText("Asia/Shanghai", "2020-01-01 08:00:00")
    rows.verify(change({"at": plain}), Checksum(2, corrupted=False, current=0x8C9678A8))
    assert rows._proven  # crc32 of the length and the text of 2020-01-01 00:00:00
    twice = ZonedText("America/New_York", "2021-11-07 01:30:00")
    rows.verify(change({"at": twice}), Checksum(2, corrupted=False, current=1))


def test_a_row_that_ticdc_found_corrupted_is_refused() -> None:
    """Whatever the numbers are; the message is as TiCDC wrote it, so its table alone is parked."""
    with pytest.raises(IncompleteRow, match="TiCDC found that a row of shop.t") as refused:
        checker().verify(change({"id": "1", "v": "aa"}), Checksum(2, corrupted=True, current=AA))
    assert refused.value.table == change({}).name


@pytest.mark.parametrize("scenario", ["types", "pk", "txns"])
def test_every_recorded_checksum_matches(scenario: str) -> None:
    """Each row with all its columns has the number that TiDB gave it, whatever its types, in the zone Asia/Shanghai."""
    decoder = SimpleDecoder(DecoderOptions())
    decoder._checksums._proven = _Everything()
    rows = 0
    for record in recordings.records(scenario, "simple-json-checksum-shanghai"):
        decoder.decode(record["key"], record["value"])
        rows += b'"checksum"' in record["value"]
    assert rows > 200


class _Everything(set[Any]):
    """A set that holds everything: no row is excused."""

    def __contains__(self, _: object) -> bool:
        return True


def test_damage_in_a_recorded_row_is_found() -> None:
    """Once a table has matched, changing one character of a value stops the feed."""
    decoder = SimpleDecoder(DecoderOptions())
    found = 0
    for record in recordings.records("txns", "simple-json-checksum-shanghai"):
        value = record["value"]
        decoder.decode(None, value)
        if b'"sku":"s' in value and value.count(b'"sku":"s') == value.count(b'"sku"') and decoder._checksums._proven:
            try:
                decoder.decode(None, value.replace(b'"sku":"s', b'"sku":"z'))
            except DecodeError as error:
                assert "checksum" in error.what  # noqa: PT017 - some rows are read before their table is proven
                found += 1
    assert found > 100
