from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from applier.errors import OutsideRefused, TransientError
from applier.runtime.storage_keys import KEYS
from applier.sink.format.storage import (
    LocalStorage,
    RemoteStorage,
    is_local,
    local_path,
    read_ranges,
    reported,
    storage_of,
    write_bytes,
)


@pytest.mark.parametrize(
    ("location", "path"),
    [
        ("/a/b c?d%20", "/a/b c?d%20"),
        ("file:/a/b", "/a/b"),
        ("file:///a/b", "/a/b"),
        ("./lake/t", "./lake/t"),
    ],
)
def test_local_locations_are_paths_not_urls(location: str, path: str) -> None:
    """Hadoop's spellings of a local path mean the same file, and no character of it is special."""
    assert is_local(location)
    assert local_path(location) == path


def test_bytes_come_back_from_where_they_were_written(tmp_path: Path) -> None:
    """Folders are made as needed, and a range is read without the rest."""
    storage = LocalStorage()
    location = f"file:{tmp_path}/a/b/file"

    write_bytes(storage, location, b"0123456789")

    assert read_ranges(storage, location, [(3, 4), (0, 1)]) == [b"3456", b"0"]
    with pytest.raises(TransientError, match="ends before byte 14"):
        read_ranges(storage, location, [(8, 6)])


def test_missing_file_is_an_error_of_ours(tmp_path: Path) -> None:
    """Storage errors name the location and carry no foreign exception type."""
    with pytest.raises(TransientError, match="Cannot read .*nothing: No such file or directory"):
        LocalStorage().open(str(tmp_path / "nothing"))


@pytest.mark.parametrize("code", ["ACCESS_DENIED", "SIGNATURE_DOES_NOT_MATCH"])
def test_a_storage_that_refuses_the_log_in_is_no_outage(code: str) -> None:
    """A file to read may be missing where a user may not list, and others may have removed it."""
    said = OSError(f"When completing multiple part upload for key 'a': AWS Error {code} during PutObject operation: no")
    sentence = rf"^Cannot write s3://b/a: the storage answers {code}\. Hint: check the log"
    with pytest.raises(OutsideRefused, match=sentence), reported("write", "s3://b/a"):
        raise said
    with pytest.raises(TransientError), reported("read", "s3://b/a"):
        raise said


def test_scheme_that_python_does_not_know_goes_through_iceberg(tmp_path: Path) -> None:
    """Where PyIceberg has no way to a storage, the table's own FileIO is used; local paths need neither."""
    fallback = LocalStorage()

    assert storage_of("nfs9://server/table", {}, lambda: fallback) is fallback
    assert isinstance(storage_of(str(tmp_path), {}, lambda: fallback), LocalStorage)


def test_a_storage_that_fails_once_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its files go through the JVM for a minute, not for good, which is logged once; no table asks it meanwhile."""
    answers, now, fallback = [TransientError("503"), TransientError("503")], [1000.0], LocalStorage()
    asked = list[str]()

    def probe(_: RemoteStorage, location: str) -> None:
        asked.append(location)
        if answers:
            raise answers.pop()

    def found(table: str) -> object:
        return storage_of(f"s3://fails-once/{table}", {}, lambda: fallback)

    monkeypatch.setattr(RemoteStorage, "probe", probe)
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    with capture_logs() as logged:
        assert [found(table) is fallback for table in "ab"] == [True, True]
        now[0] += 61
        assert found("b") is fallback
    assert len(logged) == 1
    now[0] += 61
    assert isinstance(found("a"), RemoteStorage)
    assert found("b") is found("a")
    assert [location[-1] for location in asked] == ["a", "b", "a"]


def test_remote_storage_reads_what_it_wrote(tmp_path: Path) -> None:
    """PyIceberg's FileIO serves as storage; a missing file is an error of ours."""
    storage = RemoteStorage({}, f"file://{tmp_path}")
    write_bytes(storage, f"file://{tmp_path}/x/y", b"abc")

    assert read_ranges(storage, f"file://{tmp_path}/x/y", [(1, 2)]) == [b"bc"]
    with storage.open(f"file://{tmp_path}/x/y", 3) as file:
        assert file.read() == b"abc"
    storage.probe(f"file://{tmp_path}")
    with pytest.raises(TransientError, match="Cannot read"):
        storage.open(f"file://{tmp_path}/none")


def test_a_remote_storage_is_good_in_another_process() -> None:
    """A task of Spark gets it with the properties that the table's own FileIO has."""
    storage = RemoteStorage({"s3.endpoint": "http://127.0.0.1:9"}, "s3://lake/t")

    copy = pickle.loads(pickle.dumps(storage))  # noqa: S301 - it was written here

    assert copy._io.properties == storage._io.properties
    assert copy._io.new_input("s3://lake/t/a").location == "s3://lake/t/a"


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        ("AWS Error UNKNOWN (HTTP status 400) during HeadObject operation: No response body.", "refused"),
        ("AWS Error INVALID_ACCESS_KEY_ID during PutObject operation:  None", "refused"),
        ("AWS Error ACCESS_DENIED during HeadObject operation: No response body.", "perhaps"),
        ("AWS Error INTERNAL_FAILURE during UploadPart operation:  None", ""),
    ],
)
@pytest.mark.parametrize("given", [(), ("s3.access-key-id", "s3.secret-access-key")])
def test_keys_that_a_storage_refuses(
    said: str, answer: str, given: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of the configuration end the run, and those of the environment may be renewed; clients begin anew."""
    monkeypatch.setattr(KEYS, "given", given)
    before = KEYS.refusals
    kind = OutsideRefused if given and answer == "refused" else TransientError

    with pytest.raises(kind) as raised, reported("read", "s3://bucket/file"):
        raise OSError(said)

    assert raised.value.what.startswith("Cannot read s3://bucket/file: the storage answers ")
    assert ("renew s3.access-key-id, s3.secret-access-key of [catalog]" in raised.value.hint) == bool(given and answer)
    assert KEYS.refusals == before + bool(answer)
