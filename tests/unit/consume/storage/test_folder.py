"""A folder of TiCDC's storage sink as messages: what counts, where each is, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from applier.changefeed.message import TopicPartition
from applier.changefeed.schema_key import SCHEMA_KEY
from applier.changefeed.window import OffsetRange, Window
from applier.consume.storage.folder import StorageFolder
from applier.consume.storage.layout import StoredFile
from applier.consume.storage.messages import StoredMessages, in_files
from applier.consume.window_size import WindowTooLargeError
from applier.errors import OutsideRefused, SourceLost, TransientError
from tests.services.s3 import ObjectStore

MARK, META = TopicPartition("metadata", 0), TopicPartition("shop/a/meta", 0)
ROWS, DAY = TopicPartition("shop/a/5", 0), TopicPartition("shop/a/5/77/2024-02-29", 0)
LATER = TopicPartition("shop/b/7/CDC_4711-ab", 0)

FILES = {
    "metadata": b'{"checkpoint-ts": 9}',
    "shop/a/meta/schema_5_0000000001.json": b"{}",
    "shop/a/meta/schema_10_0000000001.json": b"{ }",
    "shop/a/5/CDC000001.json": b"one",
    "shop/a/5/CDC000002.json": b"two!",
    "shop/a/5/meta/CDC.index": b"CDC000002.json\n",
    "shop/a/5/77/2024-02-29/CDC000001.json": b"three",
    "shop/b/7/CDC_4711-ab_000001.json": b"four",
    "shop/b/7/meta/CDC_4711-ab.index": b"CDC_4711-ab_000001.json\n",
}


def put(folder: Path, files: dict[str, bytes]) -> None:
    """Write some files."""
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


def opened(folder: Path, most_bytes: int = 1 << 20) -> StoredMessages:
    """The messages of a folder."""
    return StoredMessages(StorageFolder(str(folder)), most_bytes)


def values(source: StoredMessages, window: Window) -> list[tuple[str, int, bytes | None, bytes]]:
    """Topic, offset, key and value of each message."""
    found = [row for table in source.collect(window).values() for row in table.to_pylist()]
    return [(row["topic"], row["offset"], row["key"], row["value"]) for row in found]


def test_each_file_is_a_message_at_its_number(tmp_path: Path) -> None:
    """Folders and their writers are partitions; schema files come by their version, whatever their text sorts like."""
    put(tmp_path, FILES)
    source = opened(tmp_path)
    bounds = source.bounds()
    ends = {place: span.end for place, span in bounds.items()}
    assert ends == {MARK: 0, META: 2, ROWS: 2, DAY: 1, LATER: 1}

    expected = [
        ("shop/a/5", 0, None, b"one"),
        ("shop/a/5", 1, None, b"two!"),
        ("shop/a/5/77/2024-02-29", 0, None, b"three"),
        ("shop/a/meta", 0, SCHEMA_KEY, b"{}"),
        ("shop/a/meta", 1, SCHEMA_KEY, b"{ }"),
        ("shop/b/7/CDC_4711-ab", 0, None, b"four"),
    ]
    assert values(source, Window(bounds)) == expected
    in_parts = [row["value"] for part in source.chunks(Window(bounds)) for t in part.values() for row in t.to_pylist()]
    assert in_parts == [value for *_, value in expected]
    in_task = [t.to_pylist()[0]["value"] for _, t in in_files(source.folder, source.groups(Window(bounds)))]
    assert in_task == in_parts
    assert source.topic_ids() == {"shop/a/meta": "schema_5_0000000001.json"}


def test_an_object_store_is_read_likewise(s3: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the variables of AWS."""
    for variable, value in s3.variables.items():
        monkeypatch.setenv(variable, value)
    s3.create_bucket("sink")
    for name, content in FILES.items():
        s3.client().put_object(Bucket="sink", Key=f"feed/{name}", Body=content)
    source = StoredMessages(StorageFolder("s3://sink/feed"), 1 << 20)
    assert [value for *_, value in values(source, Window(source.bounds()))][:3] == [b"one", b"two!", b"three"]
    assert source.resolved({ROWS: 2}, 9) == {ROWS: 9}
    with pytest.raises(SourceLost, match="s3://sink/none has no file metadata"):
        StorageFolder("s3://sink/none").look()


def test_a_partition_is_complete_up_to_the_look_that_showed_no_more_of_it(tmp_path: Path) -> None:
    """A later checkpoint-ts does not count where the later look shows files that were not read."""
    put(tmp_path, FILES)
    source = opened(tmp_path)
    source.bounds()
    put(tmp_path, {"shop/a/5/CDC000003.json": b"5", "shop/c/8/CDC000001.json": b"6"})
    put(tmp_path, {"metadata": b'{"checkpoint-ts":12}'})
    source.bounds()
    new = TopicPartition("shop/c/8", 0)
    read = {MARK: 0, META: 2, ROWS: 2, DAY: 0, LATER: 1, new: 0}
    assert source.resolved(read, 9) == {MARK: 12, META: 12, ROWS: 9, LATER: 12, new: 9}
    assert source.resolved({ROWS: 3, new: 1}, 9) == {ROWS: 12, new: 12}


def test_the_checkpoint_ts_does_not_cover_a_partition_that_its_reader_does_not_know(tmp_path: Path) -> None:
    """A reader with ends of before passes it by: nothing above the look that did not show it yet is complete."""
    put(tmp_path, FILES)
    source = opened(tmp_path)
    before = {place: span.end for place, span in source.bounds().items()}
    put(tmp_path, {"metadata": b'{"checkpoint-ts":12}'})
    source.bounds()
    assert source.resolved(before, 9)[MARK] == 12
    put(tmp_path, {"shop/c/8/CDC000001.json": b"6", "metadata": b'{"checkpoint-ts":15}'})
    for _ in range(9):
        source.bounds()
    assert source.resolved(before, 9)[MARK] == 12
    assert source.resolved({**before, TopicPartition("shop/c/8", 0): 0}, 9)[MARK] == 15


def test_rows_written_before_a_moment_are_not_looked_for(tmp_path: Path) -> None:
    """A file is written after its rows were committed; DDL are read from the first on."""
    put(tmp_path, FILES)
    source = opened(tmp_path)
    written = int((tmp_path / "shop/a/5/CDC000002.json").stat().st_mtime * 1000)
    assert source.offsets_at(0)[ROWS] == 0
    late = source.offsets_at(written + 60_000)
    assert (late[ROWS], late[META]) == (2, 0)


def test_a_window_that_is_too_large_is_not_read_at_once(tmp_path: Path) -> None:
    """Its bytes show how short it must be; a single file is read all the same."""
    put(tmp_path, FILES)
    source = opened(tmp_path, most_bytes=6)
    with pytest.raises(WindowTooLargeError) as found:
        source.read(Window({ROWS: OffsetRange(0, 2)}))
    assert (found.value.size, found.value.messages) == (7, 2)
    assert values(opened(tmp_path, most_bytes=1), Window({ROWS: OffsetRange(1, 2)}))[0][-1] == b"two!"


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("shop/a/5/CDC000004.json", "File 3 of shop/a/5 is gone from the folder of the storage sink"),
        ("shop/a/5/CDC000003.csv", "File shop/a/5/CDC000003.csv is not one of protocol canal-json"),
        ("shop/a/5/schema.json", "File shop/a/5/schema.json is of the layout that TiCDC before v7.0 wrote"),
    ],
)
def test_a_file_that_is_missing_or_odd_is_named(tmp_path: Path, name: str, reason: str) -> None:
    """Passed over, it would lose rows."""
    put(tmp_path, {**FILES, name: b"x"})
    with pytest.raises(SourceLost, match=reason):
        opened(tmp_path).bounds()


def test_files_that_come_while_the_folder_is_listed_are_no_gap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A listing may show the later one alone; the next one shows both."""
    put(tmp_path, FILES)
    found, looks = StorageFolder._files, list[int]()

    def racing(folder: StorageFolder) -> list[StoredFile]:
        looks.append(1)
        return [file for file in found(folder) if len(looks) > 1 or file.path != "shop/a/5/CDC000003.json"]

    monkeypatch.setattr(StorageFolder, "_files", racing)
    put(tmp_path, {"shop/a/5/CDC000003.json": b"5", "shop/a/5/CDC000004.json": b"6"})
    assert opened(tmp_path).bounds()[ROWS] == OffsetRange(0, 4)
    assert len(looks) == 2


def test_a_file_that_expired_before_it_was_read_is_named(tmp_path: Path) -> None:
    """One that was read may go, while a later one shows that."""
    put(tmp_path, FILES)
    (tmp_path / "shop/a/5/CDC000001.json").unlink()
    source = opened(tmp_path)
    assert source.bounds()[ROWS] == OffsetRange(0, 2)
    assert values(source, Window({ROWS: OffsetRange(1, 2)}))[0][-1] == b"two!"
    with pytest.raises(SourceLost, match="File 1 of shop/a/5 is gone") as lost:
        source.collect(Window({ROWS: OffsetRange(0, 2)}))
    assert "copy it again" in lost.value.hint


def test_files_that_ticdc_has_not_finished_do_not_count(tmp_path: Path) -> None:
    """It writes beside the name on a file system, and gives the number of a file that it left empty to the next one."""
    put(tmp_path, FILES)
    unfinished = "tmp.0b3f86a2-54fd-4a4b-9c57-3a4a51d8ad5b"
    names = ("shop/a/5/CDC000003.json", "shop/a/5/meta/CDC.index", "metadata", "shop/a/meta/schema_12_0000000001.json")
    put(tmp_path, {f"{name}.{unfinished}": b"x" for name in names} | {"shop/a/5/CDC000003.json": b""})
    bounds = opened(tmp_path).bounds()
    assert (bounds[ROWS], bounds[META]) == (OffsetRange(0, 2), OffsetRange(0, 2))
    put(tmp_path, {"shop/a/5/CDC000004.json": b"x"})
    with pytest.raises(SourceLost, match="File 3 of shop/a/5 is gone"):
        opened(tmp_path).bounds()


def test_a_file_that_changed_is_read_anew_until_the_changefeed_is_beyond_it(tmp_path: Path) -> None:
    """A TiCDC that ended before its index counted it writes it again. Behind the changefeed, rows would be lost."""
    put(tmp_path, FILES)
    source = opened(tmp_path)
    source.bounds()
    put(tmp_path, {"shop/a/5/CDC000001.json": b"o"})
    with pytest.raises(TransientError, match="File shop/a/5/CDC000001.json of the storage sink had 3 bytes, and has 1"):
        source.collect(Window({ROWS: OffsetRange(0, 1)}))
    source.bounds()
    assert values(source, Window({ROWS: OffsetRange(0, 1)}))[0][-1] == b"o"
    put(tmp_path, {"shop/a/5/CDC000001.json": b"one"})
    source.bounds()
    source.show_offsets({ROWS: 1})
    with pytest.raises(SourceLost, match="000001.json of the storage sink has changed: it had 1 bytes, and has 3"):
        source.bounds()


def test_a_checkpoint_ts_that_went_back_is_refused(tmp_path: Path) -> None:
    """While a run looks, or since the tables were written."""
    put(tmp_path, FILES)
    source = opened(tmp_path)
    source.bounds()
    with pytest.raises(SourceLost, match="metadata holds 9, and 10 was read"):
        source.resolved({}, 10)
    put(tmp_path, {"metadata": json.dumps({"checkpoint-ts": 8}).encode()})
    with pytest.raises(SourceLost, match="went back: file metadata holds 8, and 9 was read"):
        source.bounds()


@pytest.mark.parametrize("content", [b"{", b"{}", b'{"checkpoint-ts": -1}', b'{"checkpoint-ts": "secret"}'])
def test_metadata_that_is_not_of_ticdc_is_refused(tmp_path: Path, content: bytes) -> None:
    """Without its values."""
    put(tmp_path, {"metadata": content})
    with pytest.raises(SourceLost, match="holds no checkpoint-ts of TiCDC") as lost:
        opened(tmp_path).bounds()
    assert "secret" not in str(lost.value)


def test_a_folder_that_is_none_is_refused(tmp_path: Path) -> None:
    """It is not there, holds something else, or has an address of another kind."""
    with pytest.raises(SourceLost, match="has no file metadata"):
        opened(tmp_path / "none").bounds()
    with pytest.raises(OutsideRefused, match="is no address that Arrow knows: ftp://x/y"):
        StorageFolder("ftp://x/y").look()


def test_a_schema_file_that_goes_while_a_run_reads_the_folder_is_named(tmp_path: Path) -> None:
    """Also where another one came meanwhile, so that there are as many as before."""
    put(tmp_path, FILES)
    source = opened(tmp_path)
    source.bounds()
    (tmp_path / "shop/a/meta/schema_5_0000000001.json").unlink()
    put(tmp_path, {"shop/a/meta/schema_11_0000000001.json": b"{}"})
    with pytest.raises(SourceLost, match="Schema file shop/a/meta/schema_5_0000000001.json is gone from the folder"):
        source.bounds()


CSV = {
    "metadata": b'{"checkpoint-ts": 9}',
    "shop/a/meta/schema_5_0000000001.json": b"{}",
    "shop/a/meta/schema_10_0000000001.json": b"{ }",
    "shop/a/5/77/2024-02-29/CDC000001.csv": b"one",
    "shop/a/10/CDC_4711-ab_00000000000000000001.csv": b"two",
    "shop/a/10/meta/CDC_4711-ab.index": b"CDC_4711-ab_00000000000000000001.csv\n",
}


def test_rows_of_csv_come_with_the_schema_file_of_their_version(tmp_path: Path) -> None:
    """Whatever folders of partitions, dates and writers are between; in tasks as in the driver."""
    put(tmp_path, CSV)
    source = StoredMessages(StorageFolder(str(tmp_path), "csv"), 1 << 20)
    window = Window(source.bounds())
    expected = [
        ("shop/a/10/CDC_4711-ab", 0, b"{ }", b"two"),
        ("shop/a/5/77/2024-02-29", 0, b"{}", b"one"),
        ("shop/a/meta", 0, SCHEMA_KEY, b"{}"),
        ("shop/a/meta", 1, SCHEMA_KEY, b"{ }"),
    ]
    assert values(source, window) == expected
    in_task = [t.to_pylist()[0]["key"] for _, t in in_files(source.folder, source.groups(window))]
    assert in_task == [key for _, _, key, _ in expected]


def test_rows_of_csv_without_their_schema_file_are_refused(tmp_path: Path) -> None:
    """Also where it was removed in the middle of its folder, so that no number shows it."""
    put(tmp_path, CSV)
    (tmp_path / "shop/a/meta/schema_5_0000000001.json").unlink()
    with pytest.raises(SourceLost, match="Folder shop/a/5/77/2024-02-29 of the storage sink has rows, and no schema"):
        StorageFolder(str(tmp_path), "csv").look()


def test_a_folder_of_the_other_protocol_is_refused(tmp_path: Path) -> None:
    """In both directions, with the key to set."""
    put(tmp_path, CSV)
    with pytest.raises(SourceLost, match=r"CDC\w+.csv is not one of protocol canal-json") as refused:
        StorageFolder(str(tmp_path)).look()
    assert refused.value.hint.startswith("set changefeed.protocol to that of the sink-uri")
    put(tmp_path, {"shop/a/5/77/2024-02-29/CDC000002.json": b"{}"})
    with pytest.raises(SourceLost, match="CDC000002.json is not one of protocol csv"):
        StorageFolder(str(tmp_path), "csv").look()
