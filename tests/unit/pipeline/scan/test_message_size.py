"""Messages that are larger than the configuration allows."""

from __future__ import annotations

import base64
import json
import tracemalloc
from pathlib import Path

import cramjam
import lz4.frame
import pyarrow as pa
import pytest

from applier.changefeed.message import MESSAGE_SCHEMA, UNREADABLE, TopicPartition, by_place
from applier.changefeed.types import TypeRules
from applier.decode.options import DecoderOptions
from applier.decode.protocols import build
from applier.errors import DecodeError
from applier.pipeline.scan.decode_task import DecodeTask
from applier.pipeline.scan.task_result import TaskResult

LIMIT = 1 << 20
PLACE = TopicPartition("shop", 3)
WATERMARK = b'{"version":1,"type":"WATERMARK","commitTs":470606913410433024}'
PROTOCOLS = ("simple", "open", "canal-json", "debezium")


def found(values: list[bytes], skip: frozenset[int] = frozenset(), protocol: str = "simple") -> TaskResult:
    """What a task finds in messages at offsets from 40 on."""
    job = DecodeTask(
        protocol,
        DecoderOptions(max_bytes=LIMIT),
        TypeRules(),
        ("*.*",),
        (),
        upto=(1 << 63) - 1,
        skip={PLACE: dict.fromkeys(skip, frozenset())} if skip else {},
    )
    rows = [{"topic": "shop", "partition": 3, "offset": 40 + at, "value": value} for at, value in enumerate(values)]
    return job(by_place(pa.Table.from_pylist(rows, MESSAGE_SCHEMA)))


def padded(size: int) -> bytes:
    """A watermark of so many bytes."""
    return WATERMARK[:-1] + b" " * (size - len(WATERMARK)) + b"}"


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_message_above_the_limit_is_a_bad_message_and_the_others_are_read(protocol: str) -> None:
    """Place, size, limit and the key to raise stand in one sentence; no decoder looks into the value."""
    (bad,) = found([padded(LIMIT + 1)], protocol=protocol).bad

    assert bad.offset == 40
    assert str(bad.error) == (
        f"Cannot decode {protocol} message at shop/3:40: It holds 1,048,577 bytes; source.max_message_bytes "
        "is 1,048,576. Hint: Raise source.max_message_bytes, if the memory is there."
    )


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_message_that_did_not_fit_into_memory_is_a_bad_message_however_short_its_stand_in_is(protocol: str) -> None:
    """No decoder sees the text that stands for its value, and the messages beside it are read."""
    result = found([padded(200), UNREADABLE, padded(200)] if protocol == "simple" else [UNREADABLE], protocol=protocol)

    (bad,) = result.bad
    assert "It does not fit into the memory of the driver once it is decompressed." in str(bad.error)
    assert sum(result.read.values()) == (3 if protocol == "simple" else 1)


def test_messages_beside_one_above_the_limit_are_read() -> None:
    """A message of just the limit, and those around the large one, count."""
    result = found([padded(LIMIT), padded(LIMIT + 1), WATERMARK])

    assert [bad.offset for bad in result.bad] == [41]
    assert result.read == {PLACE: 3}
    assert result.resolved == {PLACE: 470606913410433024}


def test_a_dead_letter_above_the_limit_is_passed() -> None:
    """What was set aside is not reported again."""
    assert not found([padded(LIMIT + 1), WATERMARK], skip=frozenset({40})).bad


@pytest.mark.parametrize("protocol", ["simple", "canal-json", "debezium"])
@pytest.mark.parametrize("compress", [lz4.frame.compress, cramjam.snappy.compress_raw])
def test_a_bomb_is_refused_before_more_than_the_limit_is_unpacked(protocol: str, compress: object) -> None:
    """A compressed value that holds sixty times the limit takes no more memory than one of the limit."""
    bomb = bytes(compress(padded(60 * LIMIT)))  # type: ignore[operator]
    decoder = build(protocol, DecoderOptions(max_bytes=4 * LIMIT))
    tracemalloc.start()
    try:
        with pytest.raises(DecodeError, match=r"bytes once it is decompressed; source\.max_message_bytes is 4,194,304"):
            decoder.decode(None, bomb)
        assert tracemalloc.get_traced_memory()[1] < 20 * LIMIT
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("size", [LIMIT + 1, 4 * LIMIT])
def test_a_claim_check_above_the_limit_is_refused(tmp_path: Path, size: int) -> None:
    """A file whose message is larger than the limit is a bad message, by a byte or by far."""
    content = json.dumps({"key": None, "value": base64.b64encode(padded(size)).decode()})
    (tmp_path / "0f3a.json").write_text(content, encoding="utf-8")
    claim = (
        b'{"version":1,"database":"shop","table":"big","type":"INSERT","commitTs":470606913410433024,"schemaVersion":1,'
        b'"claimCheckLocation":"s3://tidb/0f3a.json"}'
    )
    decoder = build("simple", DecoderOptions(claim_check=str(tmp_path), max_bytes=LIMIT))

    with pytest.raises(DecodeError) as refusal:
        decoder.decode(None, claim)

    assert str(refusal.value) == (
        "The message in the claim-check file 0f3a.json is too large: source.max_message_bytes is 1,048,576. "
        "Hint: Raise source.max_message_bytes, if the memory is there."
    )
