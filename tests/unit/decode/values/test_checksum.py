"""Row checksums: recorded ones match, damage is found, and what proves nothing passes."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import permutations
from typing import Any
from zlib import crc32

import pytest

from applier.changefeed.event import Op, RowChange
from applier.changefeed.table import Column, ColumnType, TableName, TableVersion
from applier.decode.options import DecoderOptions
from applier.decode.simple.decoder import SimpleDecoder
from applier.decode.simple.json_form import Checksum
from applier.decode.values import checksum
from applier.decode.values.checksum import RowChecksums
from applier.decode.values.dates import ZonedText
from applier.errors import DecodeError
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


def test_a_row_proves_the_order_of_ids_itself() -> None:
    """The order is not on the wire: FIRST or AFTER may have changed it, but a damaged row matches in none."""
    with pytest.raises(DecodeError):
        checker(V, ID).verify(change({"id": "1", "v": "ab"}), Checksum(2, corrupted=False, current=AA))
    rows = checker(V, ID)
    for _ in range(3):
        rows.verify(change({"id": "1", "v": "aa"}), Checksum(2, corrupted=False, current=AA))
    with pytest.raises(DecodeError):
        rows.verify(change({"id": "1", "v": "ab"}), Checksum(2, corrupted=False, current=AA))


def test_the_first_row_of_a_pass_is_verified_like_any_other() -> None:
    """Nothing that an earlier step, thread or process has read counts: what was damaged then is damaged now."""
    for _ in range(2):
        with pytest.raises(DecodeError):
            checker().verify(change({"id": "1", "v": "ab"}), Checksum(2, corrupted=False, current=AA))


@pytest.mark.parametrize(
    ("count", "order"),
    [
        (6, (5, 3, 1, 0, 2, 4)),
        (8, (7, 6, 5, 4, 3, 2, 1, 0)),
        (40, (*range(1, 40), 0)),
        (40, (39, *range(39))),
        (40, (*range(10), *range(11, 30), 10, *range(30, 40))),
        (40, (*range(1, 7), *range(8, 20), *range(21, 40), 20, 0, 7)),
    ],
)
def test_an_order_that_ddl_can_have_left_is_found(count: int, order: tuple[int, ...]) -> None:
    """Columns that FIRST and AFTER placed, or that MODIFY made anew, have higher ids than those behind them."""
    image = {f"c{number}": str(number * 7) for number in range(count)}
    whole = crc32(b"".join(struct.pack("<Q", number * 7) for number in order))
    columns = [Column(name, ColumnType("bigint")) for name in image]
    checker(*columns).verify(change(image), Checksum(2, corrupted=False, current=whole))
    for damaged in ({**image, "c3": "22"}, {**image, "c3": None}):
        with pytest.raises(DecodeError):
            checker(*columns).verify(change(damaged), Checksum(2, corrupted=False, current=whole))


def test_columns_of_a_known_order_match_in_that_order_alone() -> None:
    """Avro's fields come in order of the ids, so that two values which changed places are found in any row."""
    rows = RowChecksums(is_ordered=True)
    rows.learn(TableVersion(NAME, 1, (V, ID)))
    with pytest.raises(DecodeError):
        rows.verify(change({"id": "1", "v": "aa"}), Checksum(2, corrupted=False, current=AA))


def test_a_row_that_would_match_in_any_order_proves_nothing() -> None:
    """The number 0 and an empty text match in either order, so the next row may still show another one."""
    rows = checker(V, ID)
    equal = crc32(b"\0\0\0\0" * 3)
    rows.verify(change({"id": "0", "v": ""}), Checksum(2, corrupted=False, current=equal))
    rows.verify(change({"id": "1", "v": "aa"}), Checksum(2, corrupted=False, current=AA))


def test_damaged_rows_do_not_make_the_others_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """After some searches in vain the rows of a version are compared without one."""
    tried = list[int]()

    def orders(count: int) -> Iterator[tuple[int, ...]]:
        tried.append(count)
        yield from permutations(range(count))

    monkeypatch.setattr(checksum, "_orders", orders)
    rows = checker()
    for _ in range(100):
        with pytest.raises(DecodeError):
            rows.verify(change({"id": "1", "v": "ab"}), Checksum(2, corrupted=False, current=AA))
    assert len(tried) < 10
    rows.verify(change({"id": "1", "v": "aa"}), Checksum(2, corrupted=False, current=AA))


@pytest.mark.parametrize(
    ("image", "number"),
    [
        ({"id": "1", "v": "ab"}, Checksum(2, corrupted=False)),
        ({"v": "aa"}, Checksum(2, corrupted=False, current=AA)),
        ({"id": "one", "v": "aa"}, Checksum(2, corrupted=False, current=AA)),
    ],
)
def test_what_cannot_be_verified_passes(image: dict[str, Any], number: Checksum) -> None:
    """No number, a column left out, or a value that is none: other rules deal with them."""
    rows = checker()
    rows.verify(change({"id": "1", "v": "aa"}), Checksum(2, corrupted=False, current=AA))
    rows.verify(change(image), number)
    RowChecksums().verify(change({"id": "1", "v": "ab"}), Checksum(2, corrupted=False, current=AA))


def test_an_hour_that_passes_twice_cannot_be_verified() -> None:
    """The checksum is of the time in UTC, and the wire does not tell which of two it is."""
    rows = checker(Column("at", ColumnType("timestamp")))
    plain = ZonedText("Asia/Shanghai", "2020-01-01 08:00:00")
    rows.verify(change({"at": plain}), Checksum(2, corrupted=False, current=0x8C9678A8))
    with pytest.raises(DecodeError):
        rows.verify(change({"at": plain}), Checksum(2, corrupted=False, current=1))
    twice = ZonedText("America/New_York", "2021-11-07 01:30:00")
    rows.verify(change({"at": twice}), Checksum(2, corrupted=False, current=1))


def test_a_row_that_ticdc_found_corrupted_is_refused() -> None:
    """Whatever the numbers are; the message is as TiCDC wrote it, so its table alone is parked."""
    with pytest.raises(DecodeError, match="TiCDC found that a row of shop.t"):
        checker().verify(change({"id": "1", "v": "aa"}), Checksum(2, corrupted=True, current=AA))


@pytest.mark.parametrize("scenario", ["types", "pk", "txns"])
def test_every_recorded_checksum_matches(scenario: str) -> None:
    """Each row with all its columns has the number that TiDB gave it, whatever its types, in the zone Asia/Shanghai."""
    decoder = SimpleDecoder(DecoderOptions())
    rows = 0
    for record in recordings.records(scenario, "simple-json-checksum-shanghai"):
        decoder.decode(record["key"], record["value"])
        rows += b'"checksum"' in record["value"]
    assert rows > 200


def test_damage_in_a_recorded_row_is_found() -> None:
    """Changing one character of a value is found in the first row as in the last."""
    decoder = SimpleDecoder(DecoderOptions())
    found = 0
    for record in recordings.records("txns", "simple-json-checksum-shanghai"):
        value = record["value"]
        decoder.decode(None, value)
        if b'"sku":"s' in value and value.count(b'"sku":"s') == value.count(b'"sku"'):
            with pytest.raises(DecodeError, match="checksum"):
                decoder.decode(None, value.replace(b'"sku":"s', b'"sku":"z'))
            found += 1
    assert found > 100
