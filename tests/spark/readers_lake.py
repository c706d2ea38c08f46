"""Tables that other engines are to read: with deletes in several data files, after DDL, and after a compaction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from applier.changefeed.table import Column
from applier.changefeed.table import ColumnType as T
from applier.ddl import actions as ddl
from applier.sink.upkeep import Thresholds, Upkeep
from applier.sink.write.table_writer import TableWriter
from tests.spark.upstream_table import ID, NAME, Row, Upstream, version

_COLUMNS = (
    Column("owner", T("varchar", length=20)),
    Column("bal", T("decimal", length=16, scale=4)),
    Column("upd", T("timestamp", scale=6)),
    Column("day", T("date")),
    Column("raw", T("varbinary", length=20)),
    Column("gone", T("int")),
)
_EAGER = Thresholds(small_files=2, deleted_rows=1, manifests=1)
_NEW = Column("grade", T("int"), nullable=False, default="7")


@dataclass(frozen=True, slots=True)
class Shown:
    """What a table must show: its rows now, and those of an older snapshot with the columns of then."""

    table: str
    rows: tuple[Row, ...]
    cut: int
    rows_at_cut: tuple[Row, ...]


def build(upstream: Upstream, format_version: int, *, evolved: bool, compacted: bool) -> Shown:
    """Make a table, with vectors of two data files in one Puffin file or two files of position deletes."""
    upstream.create(*_COLUMNS, format_version=format_version)
    rows = {number: _row(number) for number in range(20)}
    upstream.write(*(rows[number] for number in range(10)))
    upstream.write(*(rows[number] for number in range(10, 20)))
    rows[3] = {**rows[3], "owner": "changed"}
    _change(upstream, rows, 3, gone=(1, 11, 12))
    # The vector of the first file moves to a Puffin file of its own; that of the second stays where it is.
    upstream.write(delete=[4])
    del rows[4]
    cut, then = upstream.head, _sorted(rows)
    assert cut is not None
    if evolved:
        owner, *others = _COLUMNS
        name, gone = replace(owner, name="name"), Column("gone", T("varchar", length=5))
        upstream.alter(version(ID, name, *others), ddl.RenameColumn(NAME, "owner", "name"))
        upstream.alter(version(ID, name, *others[:-1]), ddl.DropColumn(NAME, "gone"))
        upstream.add(_NEW, gone)
        for row in rows.values():
            row["name"] = row.pop("owner")
            row |= {"gone": None, "grade": 7}
        rows[14] = {**rows[14], "grade": 1, "gone": "back"}
        _change(upstream, rows, 14, gone=(15,))
    if compacted:
        writer = TableWriter(upstream.table, "shop", 1)
        assert Upkeep(writer, _EAGER).compact()["compacted"] > 1
    return Shown(".".join(upstream.identifier), _sorted(rows), cut, then)


def _change(upstream: Upstream, rows: dict[int, Row], number: int, gone: tuple[int, ...]) -> None:
    upstream.write(rows[number], delete=[number, *gone])
    for each in gone:
        del rows[each]


def _row(number: int) -> Row:
    moment = datetime(2026, 11, 25, 12, 0, number, 123456, UTC)
    values: Mapping[str, Any] = {
        "owner": f"owner {number}",
        "bal": Decimal(number) / 4,
        "upd": moment,
        "day": date(2026, 1, 1 + number),
        "raw": bytes([0, number]),
        "gone": number,
    }
    return {"id": number, **(values if number % 7 else dict.fromkeys(values))}


def _sorted(rows: Mapping[int, Row]) -> tuple[Row, ...]:
    return tuple(dict(rows[number]) for number in sorted(rows))
