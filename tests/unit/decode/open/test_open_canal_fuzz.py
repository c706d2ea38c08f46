"""Broken bytes against the decoders of the Open protocol and Canal-JSON: a named error or events, nothing else."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache

import cramjam
import lz4.frame
import pytest

from applier.changefeed.event import Bootstrap, Resolved, RowChange, SchemaChange
from applier.changefeed.table import TableName, TableVersion
from applier.changefeed.types import TypeRules
from applier.decode.decoder import Decoder
from applier.decode.options import DecoderOptions
from applier.decode.protocols import build
from applier.decode.values.convert import to_array
from applier.errors import DecodeError, ValueRefused
from tests import recordings

ROUNDS = 3000
FEEDS = [
    ("open", "open"),
    ("open", "open-updated-columns"),
    ("canal-json", "canal-json-ext"),
    ("canal-json", "canal-json-content-compatible"),
]
JUNK = (
    b"\xff" * 9,
    b"[" * 3000,
    b'{"a":' * 3000,
    b"9" * 400,
    b"\xc3\x28",
    b"null",
    b"\\u0000",
    b"\\",
    b'"',
    b"-0",
    b"1e999",
)

Messages = list[tuple[bytes, bytes]]


@lru_cache(maxsize=8)
def _samples(variant: str) -> Messages:
    """One recorded message for each start and length, so that every table and kind of event is among them."""
    found = {}
    for record in recordings.records("types", variant):
        key, value = record["key"] or b"", record["value"]
        found[key[:70], value[:60], len(value) // 100] = (key, value)
    return [pair for pair in found.values() if len(pair[1]) < 20_000]


def _mutate(data: bytes, dice: random.Random) -> bytes:
    broken = bytearray(data)
    at = dice.randrange(len(broken) + 1)
    match dice.randrange(6):
        case 0 | 1:
            for _ in range(dice.choice((1, 1, 2, 8))):
                if broken:
                    broken[dice.randrange(len(broken))] ^= 1 << dice.randrange(8)
        case 2:
            del broken[at:]
        case 3:
            del broken[at : at + dice.randrange(1, 9)]
        case 4:
            broken[at:at] = dice.choice(JUNK)
        case _:
            broken[at:at] = broken[dice.randrange(len(broken) + 1) :][:20]
    return bytes(broken)


def _survives(decoder: Decoder, key: bytes | None, value: bytes | None) -> bool:
    """Decode, and turn what comes out into arrays as the row pass would."""
    try:
        found = decoder.decode(key, value)
    except DecodeError:
        return False
    versions: dict[tuple[TableName, int], TableVersion] = {}
    for event in found:
        assert isinstance(event, RowChange | SchemaChange | Resolved | Bootstrap)
        if isinstance(event, Bootstrap):
            versions[event.version.name, event.version.version] = event.version
        elif isinstance(event, RowChange) and (event.name, event.version) in versions:
            _convert(decoder, versions[event.name, event.version], event)
    return True


def _convert(decoder: Decoder, version: TableVersion, change: RowChange) -> None:
    for image in (change.before, change.after):
        for column in version.columns:
            if image is not None and column.name in image:
                with suppress(ValueRefused):
                    to_array([image[column.name]], column, decoder.wire, TypeRules(), column.name)


@pytest.mark.soak
@pytest.mark.parametrize(("protocol", "variant"), FEEDS)
def test_mutated_messages_give_events_or_decode_errors(protocol: str, variant: str) -> None:
    """Thousands of flips, cuts, insertions and repetitions raise nothing but DecodeError."""
    dice = random.Random(variant)
    samples = _samples(variant)
    survivors = 0
    for _ in range(ROUNDS):
        decoder = build(protocol, DecoderOptions())
        key, value = dice.choice(samples)
        if protocol == "open" and dice.random() < 0.5:
            key = _mutate(key, dice)
        else:
            value = _mutate(value, dice)
        survivors += _survives(decoder, key, value)
    assert 0 < survivors < ROUNDS


@pytest.mark.parametrize("protocol", ["open", "canal-json"])
@pytest.mark.parametrize("compress", [lz4.frame.compress, lambda data: bytes(cramjam.snappy.compress_raw(data))])
def test_mutated_compressed_messages_give_events_or_decode_errors(
    protocol: str, compress: Callable[[bytes], bytes]
) -> None:
    """The same for what lies under a compression."""
    dice = random.Random(protocol)
    decoder = build(protocol, DecoderOptions())
    samples = _samples("open" if protocol == "open" else "canal-json-ext")
    for _ in range(ROUNDS // 3):
        key, value = dice.choice(samples)
        if protocol == "canal-json":
            _survives(decoder, key, _mutate(compress(value), dice))
        else:
            body = _mutate(compress(value[8 : 8 + struct.unpack(">Q", value[:8])[0]]), dice)
            first = key[: 16 + struct.unpack(">Q", key[8:16])[0]]
            _survives(decoder, first, struct.pack(">Q", len(body)) + body)


@pytest.mark.parametrize("protocol", ["open", "canal-json"])
def test_random_bytes_give_decode_errors(protocol: str) -> None:
    """Bytes that never were a message, behind starts that the decoder knows."""
    dice = random.Random(5)
    decoder = build(protocol, DecoderOptions())
    for start in (b"", b"{", b'{"', b'{"u":{"', b"\x04\x22\x4d\x18", struct.pack(">Q", 1), bytes(16)):
        for size in (0, 1, 7, 8, 30, 300):
            data = start + dice.randbytes(size)
            assert not _survives(decoder, data, data)
            assert not _survives(decoder, None, data)


@pytest.mark.parametrize("protocol", ["open", "canal-json"])
def test_no_part_of_a_row_reaches_an_error(protocol: str) -> None:
    """What a broken row holds stays out of the error and of what it was raised from."""
    decoder = build(protocol, DecoderOptions())
    body = b'{"u":{"id":["4111-1111"]},"type":"INSERT","data":[{"id":["4111-1111"]}]}'
    key = b'{"ts":1,"scm":"a","tbl":"b","t":1}'
    framed = struct.pack(">QQ", 1, len(key)) + key
    value = struct.pack(">Q", len(body)) + body if protocol == "open" else body
    with pytest.raises(DecodeError) as caught:
        decoder.decode(framed, value)
    assert "4111" not in f"{caught.value}{caught.value.__cause__}"
