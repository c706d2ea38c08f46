from __future__ import annotations

import ast
from decimal import Decimal
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

import applier
from applier.runtime.decimals import of_unscaled, rounded, to_bytes, unscaled

PACKAGE = Path(applier.__file__).parent
ROUNDING = {"scaleb", "quantize", "fma", "getcontext", "setcontext", "localcontext"}
"""What goes by Python's context of 28 digits unless another one is given."""


@given(digits=st.integers(1 - 10**65, 10**65 - 1), scale=st.integers(0, 30))
def test_no_digit_is_lost(digits: int, scale: int) -> None:
    """A decimal of TiDB's 65 digits and its unscaled value are two forms of one number."""
    value = of_unscaled(digits, scale)

    assert f"{value:f}" == f"{Decimal(f'{digits}e-{scale}'):f}"
    assert unscaled(value, scale) == digits
    assert int.from_bytes(to_bytes(value, scale), "big", signed=True) == digits


def test_bytes_are_as_few_as_hold_the_value() -> None:
    """Iceberg's bounds and hashes want no leading byte that says nothing."""
    values = [0, 127, 128, -128, -129, 1 - 10**38]
    assert [len(to_bytes(Decimal(value), 0)) for value in values] == [1, 1, 2, 1, 2, 16]


def test_halves_are_rounded_away_from_zero() -> None:
    """As TiDB rounds; all digits before the point stay."""
    long = "9" * 38
    assert rounded(Decimal(f"{long}.25"), 1) == Decimal(f"{long}.3")
    assert rounded(Decimal(f"-{long}.25"), 1) == Decimal(f"-{long}.3")
    assert f"{rounded(Decimal(1), 2)}" == "1.00"


def test_decimals_are_rounded_in_one_place() -> None:
    """Nothing else in the package calls what would round a decimal to 28 digits."""
    calls = [
        f"{file.relative_to(PACKAGE)}:{node.lineno} {node.attr}"
        for file in sorted(PACKAGE.rglob("*.py"))
        if file.relative_to(PACKAGE) != Path("runtime/decimals.py")
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, ast.Attribute) and node.attr in ROUNDING
    ]

    assert calls == []
