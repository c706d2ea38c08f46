"""Exact arithmetic of decimals: Python's own context would round them to 28 digits, and TiDB's have up to 65."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Context, Decimal

EXACT = Context(prec=400)
"""Wide enough for every DOUBLE (309 digits before the point) and DECIMAL. What rounds a decimal, or moves its point,
is here: `abs`, `-` and the other operators of `Decimal` go by Python's context, comparisons and `copy_abs` do not."""


def unscaled(value: Decimal, scale: int) -> int:
    """The digits of a decimal of that scale as a whole number, as Iceberg, Parquet and Avro keep them."""
    return int(value.scaleb(scale, EXACT))


def of_unscaled(digits: int, scale: int) -> Decimal:
    """The decimal that a whole number stands for at that scale."""
    return Decimal(digits).scaleb(-scale, EXACT)


def to_bytes(value: Decimal, scale: int) -> bytes:
    """The unscaled value in as few bytes as hold it: two's complement, the highest one first."""
    digits = unscaled(value, scale)
    size = (digits if digits >= 0 else ~digits).bit_length() // 8 + 1
    return digits.to_bytes(size, "big", signed=True)


def rounded(value: Decimal, scale: int) -> Decimal:
    """The value with so many digits behind the point, rounded half away from zero."""
    return value.quantize(of_unscaled(1, scale), ROUND_HALF_UP, EXACT)
