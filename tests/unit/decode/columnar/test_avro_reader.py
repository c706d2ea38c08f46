"""Many datums that are read together hold what each holds that is read alone."""

from __future__ import annotations

import random
from decimal import Decimal
from io import BytesIO
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest

from applier.decode.columnar.avro_reader import (
    Datums,
    Numbers,
    Records,
    Texts,
    Unsupported,
    Values,
    Zoned,
    reader,
    taken,
    to_arrow,
)
from tests.fuzz.damage import PLAIN

SCHEMA: Any = fastavro.parse_schema(
    {
        "type": "record",
        "name": "row",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "text", "type": ["null", "string"]},
            {"name": "flag", "type": ["boolean", "null"]},
            {"name": "real", "type": "double"},
            {
                "name": "old",
                "type": [
                    "null",
                    {"type": "record", "name": "old", "fields": [{"name": "raw", "type": ["null", "bytes"]}]},
                ],
            },
            {"name": "new", "type": ["null", "old"]},
            {"name": "small", "type": ["null", "float"]},
        ],
    }
)
HEADER = b"\0head"


def written(datum: dict[str, Any]) -> bytes:
    """A message that holds a datum."""
    stream = BytesIO()
    fastavro.schemaless_writer(stream, SCHEMA, datum)
    return HEADER + stream.getvalue()


def alone(message: bytes) -> Any:
    """The datum of a message; None if it is none."""
    stream = BytesIO(message[len(HEADER) :])
    try:
        datum = fastavro.schemaless_reader(stream, SCHEMA, None)
    except Exception:  # noqa: BLE001  # fastavro raises many types for broken bytes
        return None
    return datum if stream.tell() == len(message) - len(HEADER) else None


def value(values: Values, row: int) -> Any:
    """The value of one datum as fastavro has it. Raises ArrowInvalid for text that is not UTF-8."""
    if values is None or isinstance(values, Zoned):
        return None
    if isinstance(values, Records):
        rows = list(range(row + 1)) if values.rows is None else values.rows.tolist()
        return {name: value(found, rows.index(row)) for name, found in values.fields.items()} if row in rows else None
    one = taken(values, np.array([row]))
    kinds: dict[str, pa.DataType] = {"i": pa.int64(), "f": pa.float64(), "b": pa.bool_()}
    return to_arrow(one, kinds[one.values.dtype.kind] if isinstance(one, Numbers) else pa.binary())[0].as_py()


def random_datum(dice: random.Random) -> dict[str, Any]:
    """A datum of the schema."""

    def maybe(made: Any) -> Any:
        return made if dice.randrange(3) else None

    return {
        "id": dice.choice((0, -1, 63, 64, 1 << 62, -(1 << 63), (1 << 63) - 1, dice.getrandbits(30))),
        "text": maybe(dice.choice(("", "a", "ü", "x" * 200))),
        "flag": maybe(dice.randrange(2) == 1),
        "real": dice.choice((0.0, -1.5, 1e308)),
        "old": maybe({"raw": maybe(dice.randbytes(dice.randrange(5)))}),
        "new": maybe({"raw": maybe(b"\xff" * 70)}),
        "small": maybe(0.5),
    }


def test_datums_are_what_each_is_alone() -> None:
    """Of thousands of datums, half of them damaged, all that are taken are as fastavro reads them."""
    dice, read = random.Random(1), reader(SCHEMA)
    taken_ones = refused = 0
    for _ in range(60):
        messages = [written(random_datum(dice)) for _ in range(50)]
        broken = [dice.choice(PLAIN)(message, dice) if dice.randrange(2) else message for message in messages]
        datums = Datums.of(broken, len(HEADER))
        row, expected = read(datums), [alone(message) for message in broken]
        done = datums.is_done()
        for number, datum in enumerate(expected):
            if done[number]:
                found = value(row, number)
                text = found["text"]
                found["text"] = text if text is None else text.decode("utf-8", "replace")
                # Text that is not UTF-8 is found when it becomes text.
                # As text, in which NaN equals itself.
                assert repr(found) == repr(datum) or (datum is None and "\N{REPLACEMENT CHARACTER}" in found["text"])
                taken_ones += datum is not None
            else:
                refused += 1
                assert datum is None or broken[number] not in messages
    assert taken_ones > 1500
    assert refused > 500


def test_undamaged_datums_are_all_taken() -> None:
    """None of them is left to be read alone."""
    dice = random.Random(2)
    datums = Datums.of([written(random_datum(dice)) for _ in range(300)], len(HEADER))
    reader(SCHEMA)(datums)
    assert datums.is_done().all()


def test_no_datum_is_read_beyond_its_end() -> None:
    """What is missing at the end of one is not taken from the next, nor from behind the last."""
    whole = written({"id": 1, "text": "abc", "flag": None, "real": 1.0, "old": None, "new": None, "small": 2.0})
    cut = [whole[:size] for size in range(len(HEADER), len(whole))]
    datums = Datums.of([whole, *cut, whole, b"", whole[:3]], len(HEADER))
    reader(SCHEMA)(datums)
    assert np.flatnonzero(datums.is_done()).tolist() == [0, len(cut) + 1]


@pytest.mark.parametrize("numbers", [[b"", b"\0", b"\xff", b"\x7f\xff", b"\x80", None, b"\x01\x00\x00\x00"], [b"\xfe"]])
def test_decimals_are_their_bytes(numbers: list[bytes | None]) -> None:
    """Two's complement of any size is the number with its scale."""
    data = np.frombuffer(b"".join(number or b"" for number in numbers) + bytes(16), np.uint8)
    sizes = np.array([len(number or b"") for number in numbers])
    present = np.array([number is not None for number in numbers])
    texts = Texts(data, np.cumsum(sizes) - sizes, sizes, present)
    expected = [
        None if number is None else Decimal(int.from_bytes(number, "big", signed=True)).scaleb(-2) for number in numbers
    ]
    assert to_arrow(texts, pa.decimal128(38, 2)).to_pylist() == expected


@pytest.mark.parametrize(
    "kind",
    [
        {"type": "array", "items": "long"},
        {"type": "map", "values": "long"},
        ["long", "string"],
        {"type": "enum", "name": "e", "symbols": ["a"]},
        {"type": "fixed", "name": "f", "size": 3},
    ],
)
def test_other_types_are_left_to_the_general_reader(kind: Any) -> None:
    """A schema with a type that no column has is not read so."""
    schema = {"type": "record", "name": "r", "fields": [{"name": "a", "type": kind}]}
    with pytest.raises(Unsupported):
        reader(fastavro.parse_schema(schema))
    with pytest.raises(Unsupported):
        reader("long")
