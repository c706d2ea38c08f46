from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from applier.commands.verify import difference, spark
from applier.commands.verify.difference import Differences
from applier.commands.verify.digest import Digest
from applier.commands.verify.row_hash import RowHash
from applier.commands.verify.sides import Side
from applier.commands.verify.spark import Comparison, DigestTask, RowsTask, compare

FIELDS: list[pa.Field[Any]] = [pa.field("id", pa.int64()), pa.field("name", pa.string()), pa.field("n", pa.int32())]
SCHEMA = pa.schema(FIELDS)

Row = tuple[Any, ...]


class Held:
    """A side whose parts are tables."""

    def read(self, part: Sequence[pa.Table]) -> Any:
        """Its tables."""
        return iter(part)


def side(rows: Sequence[Row], parts: int = 3) -> Side:
    """Rows in some parts."""
    tables = [
        pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows[n::parts]], SCHEMA)
        for n in range(parts)
    ]
    return Side(Held(), [[table] for table in tables])


@pytest.fixture(autouse=True)
def _without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts are worked on here."""
    monkeypatch.setattr(spark, "map_in_tasks", lambda _session, _action, work, parts: list(map(work, parts)))


def compared(upstream: Sequence[Row], iceberg: Sequence[Row], key: Sequence[str] = ("id",)) -> Comparison:
    """What is found."""
    session: Any = None
    return compare(session, "t", (side(upstream), side(iceberg, 2)), key, SCHEMA.names, 5)


def found(upstream: Sequence[Row], iceberg: Sequence[Row], key: Sequence[str] = ("id",)) -> Differences:
    """The differences, of which there must be some."""
    of = compared(upstream, iceberg, key)
    assert of.found is not None
    assert of.is_whole
    return of.found


ROWS: list[Row] = [(n, f"name {n}", None if n % 5 == 0 else n) for n in range(5000)]


def test_rows_are_equal_in_any_order_and_any_parts() -> None:
    """With their counts."""
    of = compared(ROWS, ROWS[::-1])

    assert (of.found, of.upstream_rows, of.rows) == (None, 5000, 5000)


def test_each_difference_is_named_and_no_other() -> None:
    """By its kind, its key, and the columns."""
    rows = list(ROWS)
    rows[7] = (7, "other", 7)
    rows[10] = (10, "name 10", 0)
    rows[11] = (11, "NAME 11", None)
    rows[4000] = (9000, "name 4000", None)

    shown = found(ROWS, rows)

    assert [(it.kind, dict(it.key), it.columns, it.times) for it in shown.listed] == [
        ("different", {"id": 7}, ("name",), 1),
        ("different", {"id": 10}, ("n",), 1),
        ("different", {"id": 11}, ("name", "n"), 1),
        ("extra", {"id": 9000}, (), 1),
        ("missing", {"id": 4000}, (), 1),
    ]
    assert shown.counts == {"missing": 1, "extra": 1, "different": 3}
    first = shown.listed[1]
    assert (first.upstream, first.iceberg) == (
        {"id": 10, "name": "name 10", "n": None},
        {"id": 10, "name": "name 10", "n": 0},
    )


def test_a_row_that_is_there_twice_is_one_too_many() -> None:
    """Also where a digest of exclusive ors would be the same."""
    shown = found(ROWS, [*ROWS, ROWS[3], ROWS[3]])

    assert [(it.kind, dict(it.key), it.times) for it in shown.listed] == [("extra", {"id": 3}, 2)]


def test_values_that_changed_places_are_found() -> None:
    """Though the two columns hold the same values as before."""
    rows = [*ROWS[:1], (1, "name 2", 1), (2, "name 1", 2), *ROWS[3:]]

    assert found(ROWS, rows).counts == {"missing": 0, "extra": 0, "different": 2}


def test_rows_without_a_key_are_counted() -> None:
    """A row that comes 50 times on one side and 48 on the other is missing twice."""
    same: Row = (1, "same", None)
    upstream, iceberg = [same] * 50 + [(2, "x", 1)], [same] * 48 + [(2, "x", 2), (2, "x", 2)]

    shown = found(upstream, iceberg, ())

    listed = {(it.kind, it.times, (it.upstream or it.iceberg or {})["n"]) for it in shown.listed}
    assert listed == {("extra", 2, 2), ("missing", 2, None), ("missing", 1, 1)}
    assert [dict(it.key) for it in shown.listed] == [{}, {}, {}]
    assert shown.counts == {"missing": 3, "extra": 2, "different": 0}


@pytest.mark.parametrize(("upstream", "iceberg"), [(ROWS, []), ([], ROWS), (ROWS[:2500], ROWS[2500:])])
def test_no_more_are_listed_than_people_read(upstream: list[Row], iceberg: list[Row]) -> None:
    """All of them are counted."""
    shown = found(upstream, iceberg)

    assert len(shown.listed) == difference.SHOWN
    assert shown.counts == {"missing": len(upstream), "extra": len(iceberg), "different": 0}


def test_nothing_is_equal_to_nothing() -> None:
    """Two sides without a row."""
    assert compared([], []).found is None


def test_what_does_not_fit_into_memory_is_left_uncounted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The smallest chunks are looked through, and it is said that there are more."""
    monkeypatch.setattr(spark, "_MOST_BYTES", 1)

    of = compared(ROWS, [(n, "other", v) for n, _, v in ROWS])

    assert of.found is not None
    assert not of.is_whole
    assert 0 < of.found.counts["different"] < 5000


def test_rows_that_one_side_alone_has_fit_into_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many: those of some chunks are looked at, and a chunk is small on both sides."""
    monkeypatch.setattr(spark, "_MOST_BYTES", 1)

    of = compared([(n, "x", n) for n in range(50_000)], [])

    assert of.found is not None
    assert (of.upstream_rows, of.rows, of.is_whole) == (50_000, 0, False)
    assert 0 < of.found.counts["missing"] < 50


def test_digests_of_parts_add_up() -> None:
    """In any order."""
    hashing = RowHash((0,), 9)
    whole, parts = Digest(), Digest()
    work = DigestTask((Held(), Held()), hashing)
    for part in side(ROWS, 1).parts:
        whole.add(work((0, part))[1])
    for part in reversed(side(ROWS, 7).parts):
        parts.add(work((1, part))[1])

    assert whole.rows == parts.rows == 5000
    assert not len(whole.differing(parts))
    assert np.count_nonzero(whole.counts) > 20
    assert RowsTask((Held(), Held()), hashing, np.array([], np.int64))((0, side(ROWS).parts[0]))[1] is None


@pytest.mark.parametrize(
    ("kind", "upstream", "iceberg", "shown"),
    [
        (pa.date32(), 19000, 3000000, (date(2022, 1, 8), "10183-09-21")),
        (pa.date32(), 19000, -900000, (date(2022, 1, 8), "-0495-11-20")),
        (pa.timestamp("us"), 0, 400000000000000000, (datetime(1970, 1, 1), "14645-06-30 15:06:40.000000")),
        (
            pa.timestamp("us", "UTC"),
            0,
            400000000000000000,
            (datetime(1970, 1, 1, tzinfo=UTC), "14645-06-30 15:06:40.000000Z"),
        ),
    ],
    ids=str,
)
def test_a_date_beyond_those_of_python_is_shown_as_text(
    kind: pa.DataType, upstream: int, iceberg: int, shown: tuple[Any, ...]
) -> None:
    """No TiDB has one, but another writer may: as a cell, as a key, and beside keys that are dates."""
    schema = pa.schema({"id": pa.int64(), "d": kind})
    number = pa.int32() if kind.bit_width == 32 else pa.int64()

    def held(*rows: tuple[int, int]) -> Side:
        ids, days = zip(*rows, strict=True)
        return Side(Held(), [[pa.table([pa.array(ids, pa.int64()), pa.array(days, number).cast(kind)], schema=schema)]])

    session: Any = None
    sides = held((1, upstream), (2, 0)), held((1, iceberg), (2, 0))
    by_id = compare(session, "t", sides, ("id",), schema.names, 5).found
    by_date = compare(session, "t", sides, ("d",), schema.names, 5).found

    assert by_id is not None
    assert by_date is not None
    (cell,) = by_id.listed
    assert (cell.kind, cell.key, cell.columns) == ("different", {"id": 1}, ("d",))
    assert (cell.upstream, cell.iceberg) == ({"id": 1, "d": shown[0]}, {"id": 1, "d": shown[1]})
    assert {(row.kind, row.key["d"]) for row in by_date.listed} >= {("extra", shown[1])}
