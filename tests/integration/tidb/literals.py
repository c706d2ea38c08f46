"""Types, literals and conversions: those that people write, and those that a seed draws."""

from __future__ import annotations

import random
from collections.abc import Mapping

PLAIN: Mapping[str, str] = {
    "YEAR": "0, 1, 24, 69, 70, 99, 1901, 2024, 2155, '0', '00', '24', '99', '2024', '0000', ' 24 ', 1.5",
    "INT": (
        "0, 7, -7, +7, 007, 1.5, 2.5, -1.5, 1.4, 1e2, '5', '0.0', ' 7 ', '2.5', '-2.5', '1e2', x'10', TRUE, -0, "
        "0.5e0, 25e-1, 35e-1"
    ),
    "INT UNSIGNED": "0, 4294967295, '7', -0.4, 1.5",
    "INT(5) ZEROFILL": "5, '5'",
    "TINYINT(1)": "TRUE, FALSE, 1, '0', 2",
    "BIGINT": "9223372036854775807, -9223372036854775808, 1e18, '12'",
    "BIGINT UNSIGNED": "18446744073709551615, 1e19, '18446744073709551615'",
    "DECIMAL(6,2)": "0, 1.5, 1.005, -1.005, 1.004, 1e2, '1e2', ' 7.5 ', '1.005', -0.001, -0.0, 9999.99, TRUE, '3'",
    "DECIMAL(40,2)": "1.005, 12345678901234567890123456789012345678.125, -0.001, '7'",
    "DECIMAL(6,2) UNSIGNED": "-0.001, 1.5",
    "FLOAT": "1.1, '1.1', ' 1.5 ', 16777217, -0.0, 1e3, TRUE",
    "FLOAT(7,2)": "1.005, 1.235, 1.245, '1.235', 99999.99, -1.005, 1.115, 5",
    "DOUBLE": "1.1, 1e308, '1e3', ' 1.5 ', 0x10, -2.5",
    "DOUBLE(7,2)": "1.005, 1.235, 1.245, 2.675, 0.125, 0.135, -0.125, '1.115'",
    "BIT(8)": "b'101', 5, '5', 'A', x'41', 0x41, TRUE, 255",
    "CHAR(5)": "'ab', 'ab  ', '  ab', '', 1e3, 1.50, 007, -0, -5, x'4120', TRUE, 1e-3, .5, 5.",
    "VARCHAR(30)": "'ab  ', '', 1e3, 1.50, 007, -0.0, 1e-3, .5, 1e20, 1.0e0, 1E5, -1e3, 0x4142, 99999999999999999999",
    "VARCHAR(9) CHARACTER SET latin1": "'ab  ', 1e3",
    "BINARY(4)": "'ab', 1, 1.50, 1e2, x'4142'",
    "VARBINARY(4)": "'ab  ', x'4142', 1e3",
    "ENUM('a','B','c d','')": "'a', 'a ', 1, 2, 'c d', '', x'61'",
    "SET('a','B','c d')": "'a', 'a,B', 'B,a', 'a,a', '', 3, 'c d', 'a '",
    "TIME": (
        "'0', 0, '12', 12, '1:2', '1:02', '2 10:00:00', '10:00:00', '-10:00:00', '10:00:00.5', '-10:00:00.5', 101112, "
        "'101112', '1112', -1112, '838:59:59', '1 2', '1 2:3', '10:0:0', '-00:00:00.4', '10:59:59.95', "
        "'12:30.5', '1 12:30.5', '1 12.5'"
    ),
    "TIME(2)": "'10:00:00', '10:00:00.125', '-10:00:00.125', 10101.5, '1112.5', '0'",
    **dict.fromkeys(
        ("DATE", "DATETIME", "DATETIME(3)", "DATETIME(6)", "TIMESTAMP", "TIMESTAMP(2)"),
        "'2024-01-01', '2024-1-1', 20240101, '20240101', '24-1-2', 240101, '2024/1/2', '2024-01-01T10:20:30', "
        "'2024-1-1 1:2:3', 20240101101112, '20240101101112', '2024-01-01 10:20', '  2024-01-01  ', 0, '0000-00-00', "
        "'2024-01-01 10:11:12.123456789', '2024-01-01 10:11:12.9999995', '2024-01-01 23:59:59.5', "
        "'2024-12-31 23:59:59.999999', 101, 1231, 10101, 101101112, '4-1-2', '0-01-02 3:4:5', '00-00-00', "
        "'0-0-0 0:0:0', '24-01-00', '00-00-01', '240100'",
    ),
}
"""By type, defaults that must be known, separated by `, `."""

CONVERTED: Mapping[str, tuple[str, str]] = {
    "INT": (
        "0, 1, 24, 69, 70, 99, 100, 2024, -7",
        "YEAR; VARCHAR(9); DECIMAL(6,2); TINYINT; FLOAT(6,2); BINARY(8); BIGINT",
    ),
    "YEAR": ("0, 1901, 2024", "VARCHAR(9); CHAR(4); INT; DECIMAL(6,1); BINARY(6)"),
    "VARCHAR(60)": (
        (
            "'0', '24', '0000', '2024', '1e2', ' 7 ', '2.5', '-2.5', '1.005', '12abc', '', 'ab  ', '2024-1-1', "
            "'20240101', '2024-01-01', '2024-01-01 23:59:59.5', '2024-01-01T10:11:12', '0000-00-00', "
            "'1:2', '2 10:00:00', '-10:11:12.5', '101112', '4-1-2', '12:30.5'"
        ),
        "YEAR; INT; DECIMAL(6,2); FLOAT(6,2); DATE; DATETIME; DATETIME(3); TIME; TIME(2); CHAR(60); VARCHAR(3)",
    ),
    "DATETIME(3)": (
        "'2024-01-01 23:59:59.5', '2024-12-31 23:59:59.999', '1969-12-31 23:59:59.999', '1960-01-01 00:00:00.0005'",
        "DATE; DATETIME; DATETIME(1); VARCHAR(30)",
    ),
    "TIME(3)": (
        "'-10:00:00.5', '-10:00:00.499', '-00:00:00.5', '-00:00:00.4', '10:00:00.5', '-00:00:01.55', '838:59:58.5'",
        "TIME; TIME(1); VARCHAR(20)",
    ),
    "DOUBLE": ("0.125, 1.005, 1.235, 2.5, -2.5, 24, 1e20", "FLOAT(7,2); DOUBLE(8,1); INT; DECIMAL(6,2); VARCHAR(30)"),
    "DECIMAL(10,3)": (
        "1.005, 2.5, -2.5, 24, -0.001",
        "INT; DECIMAL(6,2); FLOAT(7,2); DECIMAL(6,1) UNSIGNED; VARCHAR(30)",
    ),
}
"""By type, its values and the types that it is changed to."""

_TEXT_TYPES = ("CHAR(%)", "VARCHAR(3%)", "BINARY(%)", "VARBINARY(3%)")
_TYPES = (
    *("YEAR", "INT", "TINYINT", "BIGINT UNSIGNED", "SMALLINT UNSIGNED", "DECIMAL(1%,%)", "DECIMAL(4%,%) UNSIGNED"),
    *("FLOAT", "DOUBLE", "FLOAT(1%,%)", "DOUBLE(1%,%)", "DOUBLE UNSIGNED", "BIT(2%)", *_TEXT_TYPES),
    *("DATE", "DATETIME(#)", "TIMESTAMP(#)", "TIME(#)", "ENUM('a','B','1','')", "SET('a','B','1')"),
)


def kind(chance: random.Random) -> str:
    """A type with numbers of its own."""
    text = chance.choice(_TYPES)
    for sign, most in (("%", 9), ("#", 6)):
        while sign in text:
            text = text.replace(sign, str(chance.randint(sign == "%", most)), 1)
    return text


def literal(chance: random.Random) -> str:
    """A number, or a string that may be a number, a date or a time in any of many forms."""
    return _number(chance) if chance.random() < 0.4 else f"'{_text(chance)}'"


def _number(chance: random.Random) -> str:
    sign = chance.choice(["", "", "-", "+"])
    whole = chance.choice(["0", "00", str(chance.randint(0, 10 ** chance.randint(1, 20)))])
    fraction = chance.choice(["", "", ".", f".{chance.randint(0, 9999)}", ".5", ".05", ".005", ".125"])
    exponent = chance.choice(["", "", "", f"e{chance.randint(-4, 9)}"])
    return sign + whole + fraction + exponent


def _text(chance: random.Random) -> str:
    made = chance.choice([_number, _date, _date, _time, _time, _word])(chance)
    return chance.choice(["", "", "", " "]) + made + chance.choice(["", "", "", " ", "  "])


def _word(chance: random.Random) -> str:
    return chance.choice(["", "a", "A", "B", "a,B", "B,a", "1", "x", "0x1", "null", "1a", "0000", "00"])


def _part(chance: random.Random, most: int) -> str:
    return f"{chance.randint(0, most):0{chance.choice([1, 2])}d}"


def _date(chance: random.Random) -> str:
    separator = chance.choice(["-", "-", "-", "/", ".", ""])
    year = chance.choice(["2024", "1999", "24", "70", "69", "0000", "9999", "00"])
    parts = [year, *(_part(chance, most).zfill(0 if separator else 2) for most in (12, 31))]
    if chance.random() < 0.4:
        return separator.join(parts)
    clock = (":" if separator else "").join(_part(chance, most).zfill(0 if separator else 2) for most in (24, 60, 60))
    return (
        separator.join(parts) + (chance.choice([" ", " ", "T", "  "]) if separator else "") + clock + _fraction(chance)
    )


def _time(chance: random.Random) -> str:
    separator = chance.choice([":", ":", ":", ""])
    parts = [_part(chance, most) for most in (99, 60, 60)][: chance.randint(1, 3)]
    days = chance.choice(["", "", "", f"{chance.randint(0, 36)} "])
    return chance.choice(["", "-"]) + days + separator.join(parts) + _fraction(chance)


def _fraction(chance: random.Random) -> str:
    digits = "".join(chance.choices("0459", k=chance.randint(1, 8)))
    return chance.choice(["", "", f".{digits}", f".{digits}", "."])
