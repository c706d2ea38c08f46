"""An archive gives the same messages, in order, from JSON lines, compressed ones and Parquet."""

from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from applier.changefeed.message import MESSAGE_SCHEMA, TopicPartition, rows_of
from applier.changefeed.window import OffsetRange, Window
from applier.consume.archive import Archive
from applier.errors import OutsideRefused, SourceLost

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


def line(partition: int, offset: int, value: bytes | None = b"v") -> str:
    """One record as a line."""
    body = None if value is None else base64.b64encode(value).decode()
    record = {"topic": "t", "partition": partition, "offset": offset, "timestamp": 1000, "key": None, "value": body}
    return json.dumps(record | {"headers": []}) + "\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two files, one of them compressed, records out of order."""
    (tmp_path / "a.jsonl").write_text(line(0, 1, b"\x00\xff") + line(1, 0, None))
    with gzip.open(tmp_path / "b.jsonl.gz", "wt") as file:
        file.write(line(0, 0))
    return tmp_path


def test_bounds_over_all_files(folder: Path, tmp_path: Path) -> None:
    """Every partition has its first offset and its end."""
    archive = Archive(folder, tmp_path / "staging")

    assert archive.bounds() == {P0: OffsetRange(0, 2), P1: OffsetRange(0, 1)}


def test_window_in_order(folder: Path, tmp_path: Path) -> None:
    """Messages come by partition and offset; bytes and null values are kept."""
    archive = Archive(folder, tmp_path / "staging")

    found = archive.collect(Window({P0: OffsetRange(0, 2), P1: OffsetRange(0, 1)}))

    assert {messages.schema for messages in found.values()} == {MESSAGE_SCHEMA}
    assert [(row["partition"], row["offset"], row["value"]) for row in rows_of(found)] == [
        (0, 0, b"v"),
        (0, 1, b"\x00\xff"),
        (1, 0, None),
    ]


def test_parquet_archive_is_read_as_it_is(folder: Path, tmp_path: Path) -> None:
    """Parquet has the columns of Spark's Kafka source and needs no staging."""
    window = Window({P0: OffsetRange(1, 2)})
    lines = Archive(folder, tmp_path / "staging")
    copy = tmp_path / "copy"
    copy.mkdir()
    pq.write_table(lines.collect(Window({P0: OffsetRange(0, 2)}))[P0], copy / "x.parquet")

    assert Archive(copy, tmp_path / "unused").collect(window) == lines.collect(window)
    assert not (tmp_path / "unused").exists()


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("bad.jsonl", "{}\n", "Line 1 of bad.jsonl is not a recorded message"),
        ("other.txt", "", "holds no recorded messages"),
        ("bad.jsonl.gz", "{}", "Cannot read .*/bad.jsonl.gz of the archive: it is damaged"),
        ("bad.parquet", "no", "Cannot read .* of the archive: ArrowInvalid"),
    ],
)
def test_what_is_no_archive_is_named(tmp_path: Path, name: str, text: str, sentence: str) -> None:
    """The file, the line and the expected form are in the sentence."""
    (tmp_path / name).write_text(text)
    with pytest.raises(SourceLost, match=sentence):
        Archive(tmp_path, tmp_path / "staging")


def test_a_file_whose_rows_are_damaged_is_named(tmp_path: Path) -> None:
    """Its end can be read, and so it was opened; the others are whole."""
    for number in range(2):
        rows = [{"topic": "t", "partition": number, "offset": at, "value": bytes([at]) * 5_000} for at in range(200)]
        pq.write_table(pa.Table.from_pylist(rows, MESSAGE_SCHEMA), tmp_path / f"{number}.parquet", compression="zstd")
    damaged = tmp_path / "1.parquet"
    held = bytearray(damaged.read_bytes())
    held[len(held) // 8 : len(held) // 2] = bytes(len(held) // 2 - len(held) // 8)
    damaged.write_bytes(held)
    archive = Archive(tmp_path, tmp_path / "staging")
    window = Window({TopicPartition("t", number): OffsetRange(0, 200) for number in range(2)})

    for read in (lambda: archive.collect(window), lambda: list(archive.chunks(window))):
        with pytest.raises(SourceLost, match=r"Cannot read .*/1\.parquet of the archive: it is damaged"):
            read()


def test_a_place_that_takes_no_copy_is_named(folder: Path, tmp_path: Path) -> None:
    """The sentence says why, and what moves the temporary files elsewhere."""
    (tmp_path / "staging").mkdir()
    (tmp_path / "staging" / "messages.parquet").symlink_to("/dev/full")
    with pytest.raises(OutsideRefused, match=r"Cannot write .*messages.parquet: No space left on device. .*TMPDIR"):
        Archive(folder, tmp_path / "staging")


def test_missing_folder_is_named(tmp_path: Path) -> None:
    """The path is in the sentence."""
    with pytest.raises(SourceLost, match="nowhere does not exist"):
        Archive(tmp_path / "nowhere", tmp_path / "staging")


def test_offsets_by_time(tmp_path: Path) -> None:
    """The first record of that time or later; one without a time counts, and past the newest there is only the end."""
    rows = [{"topic": "t", "partition": p, "offset": o, "timestamp": t} for p, o, t in ((0, 5, 1000), (0, 6, 2000))]
    rows += [{"topic": "t", "partition": 1, "offset": 0, "timestamp": None}]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    archive = Archive(tmp_path, tmp_path / "staging")

    assert archive.offsets_at(1000) == {P0: 5, P1: 0}
    assert archive.offsets_at(1001) == {P0: 6, P1: 0}
    assert archive.offsets_at(2001) == {P0: 7, P1: 0}
