"""Broken bytes against the Simple decoder: a named error or an event, nothing else, and soon."""

from __future__ import annotations

import contextlib
import json
import random
from collections.abc import Callable
from typing import Any

import cramjam
import lz4.frame
import pytest

from applier.changefeed.event import Bootstrap, Resolved, RowChange, SchemaChange
from applier.changefeed.types import TypeRules
from applier.decode.options import DecoderOptions
from applier.decode.simple.decoder import SimpleDecoder
from applier.decode.values.convert import to_array
from applier.errors import DecodeError, ValueRefused
from tests import recordings

ROUNDS = 4000
INTERESTING = bytes([0, 1, 2, 0x22, 0x2C, 0x3A, 0x5B, 0x5D, 0x7B, 0x7D, 0x7F, 0x80, 0x81, 0xFE, 0xFF])


def _samples(variant: str) -> list[bytes]:
    """One recorded message for each length and first bytes, so that every kind is among them."""
    found = {
        (record["value"][:60], len(record["value"]) // 100): record["value"]
        for record in recordings.records("types", variant)
    }
    return [value for value in found.values() if len(value) < 20_000]


def _flip(data: bytearray, dice: random.Random) -> None:
    for _ in range(dice.choice((1, 1, 2, 8))):
        data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)


def _overwrite(data: bytearray, dice: random.Random) -> None:
    data[dice.randrange(len(data))] = dice.choice(INTERESTING)


def _truncate(data: bytearray, dice: random.Random) -> None:
    del data[dice.randrange(len(data)) :]


def _remove(data: bytearray, dice: random.Random) -> None:
    start = dice.randrange(len(data))
    del data[start : start + dice.randrange(1, 9)]


def _insert(data: bytearray, dice: random.Random) -> None:
    start = dice.randrange(len(data))
    data[start:start] = dice.choice(
        (b"\xff" * 9 + b"\x01", b"\x80" * 40, b"[" * 3000, b'{"a":' * 3000, b"9" * 400, b"\xc3\x28", b"null")
    )


MUTATIONS: tuple[Callable[[bytearray, random.Random], None], ...] = (
    _flip,
    _flip,
    _overwrite,
    _truncate,
    _remove,
    _insert,
)


def _survives(decoder: SimpleDecoder, value: bytes) -> int:
    """Decode, and turn the values of a row into arrays as the row pass would; 1 where there was no error."""
    try:
        events = decoder.decode(None, value)
    except DecodeError:
        return 0
    for event in events:
        assert isinstance(event, RowChange | SchemaChange | Resolved | Bootstrap)
        if isinstance(event, RowChange):
            _convert(decoder, event)
    return 1


def _convert(decoder: SimpleDecoder, change: RowChange) -> None:
    for name, value in {**(change.before or {}), **(change.after or {})}.items():
        for version in VERSIONS.get(change.name, ()):
            column = version.column(name)
            if column is None:
                continue
            with contextlib.suppress(ValueRefused):
                to_array([value], column, decoder.wire, TypeRules(), f"{change.name}.{name}")


def _versions() -> dict[Any, list[Any]]:
    decoder = SimpleDecoder(DecoderOptions())
    known: dict[Any, list[Any]] = {}
    for record in recordings.records("types", "simple-json"):
        for event in decoder.decode(None, record["value"]):
            if isinstance(event, Bootstrap):
                known[event.version.name] = [event.version]
    return known


VERSIONS = _versions()


@pytest.mark.soak
@pytest.mark.parametrize("variant", ["simple-json", "simple-avro", "simple-json-checksum-shanghai"])
@pytest.mark.timeout(120)
def test_mutated_messages_give_events_or_decode_errors(variant: str) -> None:
    """Thousands of bit flips, cuts, insertions and forged lengths raise nothing but DecodeError."""
    dice = random.Random(variant)
    samples = _samples(variant)
    decoder = SimpleDecoder(DecoderOptions())
    survivors = 0
    for _ in range(ROUNDS):
        data = bytearray(dice.choice(samples))
        for _ in range(dice.choice((1, 1, 1, 3))):
            if data:
                dice.choice(MUTATIONS)(data, dice)
        survivors += _survives(decoder, bytes(data))
    assert 0 < survivors < ROUNDS


@pytest.mark.parametrize("compress", [lz4.frame.compress, lambda data: bytes(cramjam.snappy.compress_raw(data))])
@pytest.mark.timeout(120)
def test_mutated_compressed_messages_give_events_or_decode_errors(compress: Callable[[bytes], bytes]) -> None:
    """The same for what lies under a compression, with and without the configured word."""
    dice = random.Random(7)
    samples = [compress(sample) for sample in _samples("simple-json")]
    decoders = [SimpleDecoder(DecoderOptions(compression=word)) for word in (None, "lz4", "snappy", "none")]
    for _ in range(ROUNDS // 4):
        data = bytearray(dice.choice(samples))
        dice.choice(MUTATIONS[:5])(data, dice)
        for decoder in decoders:
            _survives(decoder, bytes(data))


@pytest.mark.timeout(60)
def test_random_bytes_give_decode_errors() -> None:
    """Bytes that never were a message, behind every first byte and every start that the decoder knows."""
    dice = random.Random(3)
    decoder = SimpleDecoder(DecoderOptions())
    starts = [bytes([first]) for first in range(256)]
    starts += [
        b'{"',
        b'{"version":1,',
        b"\x16\x00\x00",
        b"\x16\x02\x02",
        b"\x16\x04\x04",
        b"\x16\x06\x06\x02",
        b"\x04\x22\x4d\x18",
    ]
    for start in starts:
        for size in (0, 1, 3, 30, 300):
            _survives(decoder, start + dice.randbytes(size))


@pytest.mark.parametrize(
    "value",
    [
        b"[" * 200_000,
        b'{"version":1,"type":"INSERT","data":' + b'{"a":' * 100_000,
        b'{"version":1,"type":"QUERY","junk":' + b"[" * 1_000_000 + b"]" * 1_000_000 + b"}",
        b'{"version":' + b"9" * 100_000 + b"}",
        b'{"version":1e999,"type":"WATERMARK"}',
        b'{"version":1,"type":"WATERMARK","commitTs":18446744073709551615}',
        b'{"version":1,"type":"WATERMARK","commitTs":-1}',
        b'{"version":1,"type":"WATERMARK","commitTs":1.5}',
        b'{"version":1,"type":"INSERT","database":"d","table":"t","commitTs":1,"schemaVersion":1,"data":{"a":1}}',
        b"\x16\x06\x06" + b"\xff" * 100,
        b"\x16\x06\x06\x02\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        b"\x16\x02\x02\x02\x02" + b"\x00" * 4 + b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01" * 3,
        b"\xff\xff\xff\xff\x0f" + b"\x00" * 100,
    ],
)
@pytest.mark.timeout(20)
def test_forged_messages_are_refused(value: bytes) -> None:
    """Depth, numbers and lengths made to exhaust a reader end in a DecodeError."""
    with pytest.raises(DecodeError):
        SimpleDecoder(DecoderOptions()).decode(None, value)


def test_a_bomb_is_refused_before_it_unfolds() -> None:
    """A small lz4 frame that holds more than the limit is refused by its size, whatever it holds."""
    bomb = lz4.frame.compress(bytes(300 << 20))
    with pytest.raises(DecodeError, match="more than 67,108,864 bytes"):
        SimpleDecoder(DecoderOptions()).decode(None, bomb)


@pytest.mark.parametrize("value", [None, b""])
def test_an_empty_message_is_refused(value: bytes | None) -> None:
    """Simple has no tombstones: a record without a value is not of this protocol."""
    with pytest.raises(DecodeError, match="no value"):
        SimpleDecoder(DecoderOptions()).decode(None, value)


def test_no_part_of_a_row_reaches_an_error() -> None:
    """What a broken row holds stays out of the message and of what it was raised from."""
    row = {"version": 1, "type": "INSERT", "database": "d", "table": "t", "commitTs": 1, "schemaVersion": 1}
    text = json.dumps(row | {"data": {"a": ["4111-1111-1111-1111"]}}).encode()
    with pytest.raises(DecodeError) as caught:
        SimpleDecoder(DecoderOptions()).decode(None, text)
    assert "4111" not in str(caught.value) + str(caught.value.__cause__)
