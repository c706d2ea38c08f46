"""Parquet files of TiDB Cloud and Dumpling, by the types of https://docs.pingcap.com/tidbcloud/serverless-export."""

from __future__ import annotations

import io
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from applier.changefeed.types import TypeRules
from applier.decode.dump.csv_form import CsvForm
from applier.decode.dump.export import Export
from applier.decode.dump.part_reader import PartReader
from applier.errors import ValueRefused
from tests.unit.decode.dump import dumpling

_MOMENT = datetime(2024, 2, 29, 1, 2, 3, 456789)

_BIG = 2**64 - 1

_HELD: list[tuple[str, pa.DataType, Any, Any]] = [
    ("varchar(20)", pa.string(), "é", "é"),
    ("varchar(20)", pa.binary(), "é".encode(), "é"),
    ("json", pa.string(), '{"a": 1}', '{"a": 1}'),
    ("enum('x','y')", pa.string(), "y", "y"),
    ("set('x','y')", pa.string(), "x,y", "x,y"),
    ("time(3)", pa.string(), "-01:02:03.500", "-01:02:03.500"),
    ("date", pa.string(), "2024-02-29", date(2024, 2, 29)),
    ("date", pa.date32(), date(2024, 2, 29), date(2024, 2, 29)),
    ("datetime(6)", pa.timestamp("us"), _MOMENT, _MOMENT),
    ("datetime(6)", pa.string(), "2024-02-29 01:02:03.456789", _MOMENT),
    ("datetime", pa.timestamp("ms"), datetime(2024, 2, 29), datetime(2024, 2, 29)),
    ("timestamp(6)", pa.timestamp("us"), _MOMENT, _MOMENT.replace(tzinfo=UTC)),
    ("timestamp(6)", pa.timestamp("us", "UTC"), _MOMENT.replace(tzinfo=UTC), _MOMENT.replace(tzinfo=UTC)),
    ("year", pa.int32(), 2024, 2024),
    ("tinyint", pa.int32(), -128, -128),
    ("int", pa.int32(), -(2**31), -(2**31)),
    ("int unsigned", pa.int64(), 2**32 - 1, 2**32 - 1),
    ("int unsigned", pa.decimal128(20, 0), Decimal(2**32 - 1), 2**32 - 1),
    ("bigint", pa.int64(), -(2**63), -(2**63)),
    ("bigint", pa.decimal128(20, 0), Decimal(-(2**63)), -(2**63)),
    ("bigint unsigned", pa.decimal128(20, 0), Decimal(_BIG), Decimal(_BIG)),
    ("bigint unsigned", pa.uint64(), _BIG, Decimal(_BIG)),
    ("bigint unsigned", pa.string(), str(_BIG), Decimal(_BIG)),
    ("decimal(9,2)", pa.decimal128(9, 2), Decimal("0.53"), Decimal("0.53")),
    ("decimal(38,10)", pa.string(), "1.5000000000", Decimal("1.5")),
    ("decimal(65,30)", pa.string(), "1." + "0" * 30, "1." + "0" * 30),
    ("float", pa.float32(), 1.5, 1.5),
    ("float", pa.float64(), 1.5, 1.5),
    ("double", pa.float64(), 0.1, 0.1),
    ("blob", pa.binary(), b"\xff\0", b"\xff\0"),
    ("bit(10)", pa.binary(), b"\x01\x02", 258),
]

_REFUSED: list[tuple[str, pa.DataType, Any]] = [
    ("decimal(9,2)", pa.float64(), 0.53),
    ("int", pa.float64(), 1.0),
    ("int", pa.bool_(), True),
    ("date", pa.timestamp("us"), _MOMENT),
    ("datetime", pa.timestamp("us", "UTC"), _MOMENT.replace(tzinfo=UTC)),
    ("varchar(20)", pa.int32(), 1),
    ("json", pa.list_(pa.int32()), [1]),
    ("blob", pa.int32(), 1),
]


def _read(folder: Path, kind: str, values: Any, rules: TypeRules = TypeRules()) -> list[tuple[Any, int]]:  # noqa: B008
    file = io.BytesIO()
    pq.write_table(pa.table({"ID": pa.array([1, 2], pa.int64()), "v": values}), file, store_schema=False)
    declared = f"CREATE TABLE `t` (`id` bigint PRIMARY KEY, `v` {kind});"
    address = dumpling.write(folder, {"d.t.0000.zstd.parquet": file.getvalue()}, declared=declared)
    export = Export.find(address)
    ((table, files),) = export.files.items()
    reader = PartReader(address, CsvForm(), export.version(table), rules)
    return [(rows, zeros) for rows, zeros in reader.read(files[0])]


@pytest.mark.parametrize(("kind", "arrow", "value", "meant"), _HELD, ids=lambda value: str(value)[:20])
def test_a_value_is_the_one_of_the_column(tmp_path: Path, kind: str, arrow: Any, value: Any, meant: Any) -> None:
    """In each type that the exporters write, and NULL stays NULL."""
    ((rows, zeros),) = _read(tmp_path, kind, pa.array([value, None], arrow))
    assert rows.to_pylist() == [{"id": 1, "v": meant}, {"id": 2, "v": None}]
    assert zeros == 0


@pytest.mark.parametrize(("kind", "arrow", "value"), _REFUSED, ids=lambda value: str(value)[:20])
def test_a_type_that_holds_no_exact_value_is_refused(tmp_path: Path, kind: str, arrow: Any, value: Any) -> None:
    """The message names the column and both types."""
    with pytest.raises(ValueRefused, match="column v is stored as .*, which does not hold its values exactly"):
        _read(tmp_path, kind, pa.array([value, None], arrow))


@pytest.mark.parametrize(
    ("kind", "arrow", "value"),
    [
        ("int", pa.int64(), 2**31),
        ("bigint unsigned", pa.int64(), -1),
        ("decimal(5,2)", pa.decimal128(9, 2), Decimal(1234)),
    ],
)
def test_a_number_out_of_range_is_refused(tmp_path: Path, kind: str, arrow: Any, value: Any) -> None:
    """No value wraps or is cut."""
    with pytest.raises(ValueRefused, match="In file d.t.0000.zstd.parquet of the export: A value of d.t.v"):
        _read(tmp_path, kind, pa.array([value, None], arrow))


def test_null_in_a_column_that_holds_none_was_a_zero_date(tmp_path: Path) -> None:
    """The exporters write zero dates as NULL."""
    ((_, zeros),) = _read(tmp_path, "datetime NOT NULL", pa.array([_MOMENT, None], pa.timestamp("us")))
    assert zeros == 1


@pytest.mark.parametrize("policy", ["string", "stop"])
def test_zero_dates_cannot_be_kept(tmp_path: Path, policy: Literal["string", "stop"]) -> None:
    """Where the configuration wants their text, or a stop."""
    values = pa.array([_MOMENT, None], pa.timestamp("us"))
    with pytest.raises(ValueRefused, match="zero dates|does not hold"):
        _read(tmp_path, "datetime NOT NULL", values, TypeRules(zero_dates=policy))


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    """It has no footer."""
    address = dumpling.write(tmp_path, {"d.t.0000.parquet": b"PAR1 and no more"})
    export = Export.find(address)
    ((table, files),) = export.files.items()
    with pytest.raises(ValueRefused, match="File d.t.0000.parquet of the export cannot be read"):
        list(PartReader(address, CsvForm(), export.version(table), TypeRules()).read(files[0]))
