"""Claim-check storage: what its files hold, and what happens when they are not there."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from typing import Any

import fsspec
import pytest

from applier.decode.large_messages import ClaimCheck, ClaimedMessage
from applier.errors import DecodeError, TransientError

LOCATION = "s3://tidb/claims/0f3a.json"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"key":null,"value":"AAH/"}', ClaimedMessage(None, b"\x00\x01\xff")),
        (b'{"key":"a2V5","value":""}', ClaimedMessage(b"key", b"")),
        (b'{"value":"AAH/","key":null}', ClaimedMessage(None, b"\x00\x01\xff")),
        (b'{"version":1}', ClaimedMessage(None, b'{"version":1}')),
        (b"\x04\x22\x4d\x18", ClaimedMessage(None, b"\x04\x22\x4d\x18")),
    ],
)
def test_wrapped_and_bare_values_are_told_apart(tmp_path: Path, content: bytes, message: ClaimedMessage) -> None:
    """`claim-check-raw-value` is seen from the file, which may be of any protocol and compressed."""
    (tmp_path / "0f3a.json").write_bytes(content)
    assert ClaimCheck(str(tmp_path)).fetch(LOCATION) == message
    assert ClaimCheck(f"file://{tmp_path}/").fetch(LOCATION) == message


@pytest.mark.parametrize("content", [b'{"key":null,"value":"A"}', b'{"key":null}', b'{"key":', b'{"value":"\xff"}'])
def test_a_broken_wrapper_is_named(tmp_path: Path, content: bytes) -> None:
    """The error names the file."""
    (tmp_path / "0f3a.json").write_bytes(content)
    with pytest.raises(DecodeError, match=r"The claim-check file 0f3a.json is broken\."):
        ClaimCheck(str(tmp_path)).fetch(LOCATION)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    """A file that is gone does not come back by trying again."""
    with pytest.raises(
        DecodeError, match=r"0f3a.json is not in the configured storage. Hint: Check changefeed.claim_check"
    ):
        ClaimCheck(str(tmp_path)).fetch(LOCATION)


@pytest.mark.parametrize("location", ["", "/", "a/..", "a/.hidden", "a/b c", "a/b\x00", "a/b?versionId=1"])
def test_names_that_ticdc_does_not_give_are_refused(tmp_path: Path, location: str) -> None:
    """A message must not choose a path."""
    with pytest.raises(DecodeError, match="not one that TiCDC gives"):
        ClaimCheck(str(tmp_path)).fetch(location)


def test_only_the_base_name_of_a_location_counts(tmp_path: Path) -> None:
    """The storage may be seen under another address than TiCDC's."""
    (tmp_path / "x.json").write_bytes(b"value")
    assert ClaimCheck(str(tmp_path)).fetch("file:///etc/../x.json").value == b"value"


def test_a_storage_that_does_not_answer_may_be_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a backend raises is a TransientError without its text, which may hold credentials."""

    class Down:
        def open(self, *_: Any) -> Any:
            raise ConnectionError("https://user:secret@storage")

    monkeypatch.setattr(fsspec.core, "url_to_fs", lambda _: (Down(), "claims"))
    with pytest.raises(
        TransientError, match="Cannot read 0f3a.json from the claim-check storage: ConnectionError"
    ) as caught:
        ClaimCheck("s3://user:secret@tidb").fetch(LOCATION)
    assert "secret" not in str(caught.value)


def test_a_storage_that_does_not_open_may_be_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection is made with the first file, and made again after it failed."""

    def down(_: str) -> Any:
        raise OSError("secret")

    monkeypatch.setattr(fsspec.core, "url_to_fs", down)
    with pytest.raises(TransientError, match="Cannot open the claim-check storage: OSError"):
        ClaimCheck("s3://tidb").fetch(LOCATION)


def test_a_kind_of_storage_that_is_not_installed_is_named() -> None:
    """The hint says what to install."""
    with pytest.raises(DecodeError, match="Hint: Install the fsspec package"):
        ClaimCheck("nowhere://tidb").fetch(LOCATION)


@pytest.mark.parametrize(
    ("scheme", "package", "extra"), [("s3", "s3fs", "s3"), ("gs", "gcsfs", "gcs"), ("abfs", "adlfs", "azure")]
)
def test_a_missing_package_is_named_by_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch, scheme: str, package: str, extra: str
) -> None:
    """The extra is one of pyproject.toml, and holds the package."""
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    monkeypatch.setitem(sys.modules, package, None)

    with pytest.raises(DecodeError) as refusal:
        ClaimCheck(f"{scheme}://tidb").fetch(LOCATION)

    assert refusal.value.hint == f"Run `pip install 'applier[{extra}]'`."
    assert project["optional-dependencies"][extra][0].startswith(package)


def test_a_file_beyond_the_limit_is_refused(tmp_path: Path) -> None:
    """A bare value of one byte more than the limit is refused, one of the limit is not."""
    (tmp_path / "0f3a.json").write_bytes(b"1234")
    assert ClaimCheck(str(tmp_path), 4).fetch(LOCATION).value == b"1234"
    with pytest.raises(DecodeError, match=r"0f3a.json is too large: source\.max_message_bytes is 3\."):
        ClaimCheck(str(tmp_path), 3).fetch(LOCATION)
