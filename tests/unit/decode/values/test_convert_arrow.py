"""Wire values that come in Arrow against the same values as Python objects."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from applier.changefeed.table import ColumnType
from applier.changefeed.types import TypeRules
from applier.errors import ValueRefused
from tests.unit.decode.values.test_convert import BIGINT_UNSIGNED, DEFAULT, ENUM, RAW, convert

TYPED: list[tuple[ColumnType, pa.DataType, Sequence[Any]]] = [
    (ColumnType("tinyint"), pa.int64(), [-128, 127, None]),
    (ColumnType("tinyint"), pa.int64(), [-129]),
    (ColumnType("tinyint", length=1), pa.int64(), [1, 0, None]),
    (ColumnType("year"), pa.int64(), [0, 2155]),
    (ColumnType("int", unsigned=True), pa.int64(), [-1, (1 << 32) - 1]),
    (BIGINT_UNSIGNED, pa.int64(), [-1, 5, None, -(1 << 63)]),
    (ColumnType("double"), pa.float64(), [1.5, None]),
    (ColumnType("double"), pa.float64(), [float("nan"), float("inf")]),
    (ColumnType("float"), pa.float64(), [0.1, 1e300]),
    (ColumnType("double"), pa.int64(), [1, None]),
    (ColumnType("decimal", length=10, scale=2), pa.decimal128(38, 2), [Decimal("-99999999.99"), None]),
    (ColumnType("decimal", length=4, scale=2), pa.decimal128(38, 2), [Decimal("100.00")]),
    (ColumnType("decimal", length=40, scale=2), pa.decimal128(38, 2), [Decimal("100.00"), None]),
    (ColumnType("decimal", length=10, scale=2), pa.int64(), [7, None]),
    (ColumnType("decimal", length=10, scale=2), pa.float64(), [0.1, -0.0, 12345678.9, None, 1e-7, 0.125]),
    (ColumnType("decimal", length=20, scale=2), pa.float64(), [655216.93, 1e17, 123456789012345680.0]),
    (ColumnType("decimal", length=4, scale=2), pa.float64(), [99.99, 100.0]),
    (ColumnType("decimal", length=16, scale=0), pa.float64(), [9999999999999999.0]),
    (ColumnType("decimal", length=40, scale=2), pa.float64(), [0.5, None]),
    (ColumnType("date"), pa.int64(), [0, -1, None]),
    (ColumnType("date"), pa.int64(), [1 << 40]),
    (ColumnType("datetime"), pa.int64(), [1, None]),
    (ColumnType("timestamp"), pa.int64(), [1, None]),
    (ColumnType("time"), pa.int64(), [1, None]),
    (ColumnType("bit", length=8), pa.binary(), [b"\x05", None]),
    (ColumnType("blob"), pa.binary(), [b"\xff", None]),
    (ColumnType("text"), pa.binary(), [b"a", None]),
    (ColumnType("text"), pa.int64(), [1]),
    (ENUM, pa.int64(), [1, 0, None]),
    (ColumnType("vector"), pa.string(), ["[1,2]", None]),
    (ColumnType("bit", length=1), pa.bool_(), [True, None]),
]
"""Column, form of the values in Arrow, values; both of such that fit and of such that do not."""


@pytest.mark.parametrize(("column", "kind", "values"), TYPED)
@pytest.mark.parametrize(
    "rules", [DEFAULT, TypeRules(tinyint1="boolean", zero_dates="string")], ids=["default", "bent"]
)
def test_values_in_arrow_are_the_values(
    column: ColumnType, kind: pa.DataType, values: Sequence[Any], rules: TypeRules
) -> None:
    """Numbers and bytes that come in Arrow give what they give as Python objects, or the same refusal."""

    def outcome(wire_values: Any) -> Any:
        try:
            return convert(wire_values, column, RAW, rules)
        except ValueRefused as refusal:
            return str(refusal)

    assert outcome(pa.array(values, kind)) == outcome(values)
