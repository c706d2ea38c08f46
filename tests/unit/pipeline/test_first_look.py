"""What is looked at before a changefeed writes anything."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from applier.changefeed.message import Messages, TopicPartition
from applier.changefeed.window import OffsetRange, Window
from applier.config.settings import CatalogSection
from applier.consume.window_size import WindowTooLargeError
from applier.decode.decoder import Decoder
from applier.decode.options import DecoderOptions
from applier.decode.protocols import build
from applier.errors import DecodeError, OutsideRefused, SourceLost, TransientError
from applier.pipeline.first_look import look_first
from tests.lab import Memory

WATERMARK = b'{"version":1,"type":"WATERMARK","commitTs":400,"buildTs":1}'
"""A resolved ts as the Simple protocol writes it."""


def catalog(warehouse: Path | str) -> CatalogSection:
    """A JDBC catalog."""
    return CatalogSection.model_validate({"name": "lake", "type": "jdbc", "uri": "jdbc:x", "warehouse": str(warehouse)})


def decoder(protocol: str = "simple") -> Decoder:
    """A new decoder."""
    return build(protocol, DecoderOptions())


def topic(*values: bytes) -> Memory:
    """A topic of one partition."""
    return Memory(
        [
            {"topic": "t", "partition": 0, "offset": offset, "timestamp": None, "key": None, "value": value}
            for offset, value in enumerate(values)
        ]
    )


def test_messages_of_another_protocol_are_refused(tmp_path: Path) -> None:
    """The sentence names the place of the first one and what to check, and the warehouse is not touched."""
    with pytest.raises(DecodeError) as raised:
        look_first(topic(b"not simple", b"nor this"), decoder(), "simple", catalog(tmp_path / "lake"))

    assert raised.value.what.startswith("Cannot decode simple message at t/0:0: ")
    assert raised.value.hint.endswith("check changefeed.protocol and the topics under [source]; nothing was written.")
    assert not (tmp_path / "lake").exists()


@pytest.mark.parametrize("values", [(), (WATERMARK,), (b"broken", WATERMARK)])
def test_an_empty_topic_or_one_broken_message_is_none_of_it(values: tuple[bytes, ...], tmp_path: Path) -> None:
    """TiCDC may not have written yet, and a broken message is decided about in its turn."""
    look_first(topic(*values), decoder(), "simple", catalog(tmp_path / "lake"))

    assert list((tmp_path / "lake").iterdir()) == []


def test_a_topic_that_cannot_be_read_is_refused_first(tmp_path: Path) -> None:
    """The errors of the source itself come through."""

    class Missing(Memory):
        def bounds(self) -> Mapping[TopicPartition, OffsetRange]:
            raise SourceLost("Kafka has no topic t.")

    class Closed(Memory):
        def collect(self, window: Window) -> Messages:
            raise OutsideRefused("no right to read t")

    with pytest.raises(SourceLost):
        look_first(Missing([]), decoder(), "simple", catalog(tmp_path))
    with pytest.raises(OutsideRefused):
        look_first(Closed(topic(WATERMARK).records), decoder(), "simple", catalog(tmp_path))


def test_a_warehouse_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    """A file where the folder should be stays there, so asking again is no help."""
    (tmp_path / "file").touch()

    with pytest.raises(OutsideRefused) as raised:
        look_first(topic(), decoder(), "simple", catalog(tmp_path / "file" / "lake"))

    assert raised.value.what == f"Cannot write {tmp_path}/file/lake: Not a directory."
    assert raised.value.hint.startswith("check catalog.warehouse and the rights")


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.EACCES, OutsideRefused),
        (errno.EPERM, OutsideRefused),
        (errno.EROFS, OutsideRefused),
        (errno.ENOTDIR, OutsideRefused),
        (errno.EISDIR, OutsideRefused),
        (errno.ENAMETOOLONG, OutsideRefused),
        (errno.ELOOP, OutsideRefused),
        (errno.ENOSPC, TransientError),
        (errno.EIO, TransientError),
        (errno.ESTALE, TransientError),
        (errno.EDQUOT, TransientError),
    ],
)
def test_an_error_of_the_file_system_comes_again_or_passes(
    number: int, kind: type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rights and names stay as they are; room and mounts may come back."""

    def fail(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(Path, "mkdir", fail)

    with pytest.raises(kind, match="Cannot write "):
        look_first(topic(), decoder(), "simple", catalog(tmp_path))


@pytest.mark.parametrize("warehouse", ["s3://bucket/lake", "prod"])
def test_a_warehouse_elsewhere_is_left_to_the_catalog(warehouse: str) -> None:
    """Only a folder of this machine is tried; a REST catalog may call its warehouse by a name."""
    section = catalog(warehouse)
    if "://" not in warehouse:
        section = section.model_copy(update={"type": "rest"})

    look_first(topic(), decoder(), "simple", section)

    assert not Path(warehouse).exists()


def test_first_messages_that_are_too_large_together_are_left_to_the_first_step(tmp_path: Path) -> None:
    """The look is a courtesy: the step reads shorter windows, and refuses one of nothing but bad messages, too."""

    class Large(Memory):
        def collect(self, window: Window) -> Messages:
            raise WindowTooLargeError(size=1 << 30, messages=window.messages)

    large = Large([{"topic": "t", "partition": 0, "offset": 0, "timestamp": None, "key": None, "value": b"large"}])

    look_first(large, decoder(), "simple", catalog(tmp_path / "lake"))
