"""A folder of TiCDC's cloud storage sink, on this machine or in an object store: listings and bytes out."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any

import msgspec
import pyarrow as pa
from pyarrow.fs import FileInfo, FileSelector, FileSystem, FileType

from applier.consume.storage.layout import METADATA, WHOLE_HINT, Ending, Listing, StoredFile, arrange
from applier.errors import OutsideRefused, SourceLost, TransientError, is_denied, reason_of

_REACH = "check source.storage.uri and the log-in of this machine to it; the read is tried again."


class _Metadata(msgspec.Struct):
    checkpoint_ts: Annotated[int, msgspec.Meta(gt=0, le=(1 << 63) - 1)] = msgspec.field(name="checkpoint-ts")


@dataclass(frozen=True, slots=True)
class StorageFolder:
    """A folder of the storage sink; picklable.

    Every method raises SourceLost for what is gone or not as TiCDC writes it, OutsideRefused without the right to read,
    and TransientError if the storage does not answer.

    Attributes:
        uri: Its address: a path, or what Arrow's file systems know; AWS_* variables say how S3 is reached.
        ending: How the names of its files with rows end.
    """

    uri: str
    ending: Ending = "json"

    def look(self) -> Listing:
        """Look at what it holds."""
        # First: all that it covers is in files that are there already.
        checkpoint_ts = self._checkpoint_ts()
        try:
            return arrange(checkpoint_ts, self._files(), self.ending)
        except SourceLost:
            # A file that came behind the place where the listing was, and the next one before it, look like a gap.
            return arrange(checkpoint_ts, self._files(), self.ending)

    def _files(self) -> list[StoredFile]:
        with self._asking("listed"):
            system, root = _opened(self.uri)
            found: list[FileInfo] = system.get_file_info(FileSelector(root, recursive=True))
        return [_file(item, root) for item in found if item.type == FileType.File]

    def read(self, file: StoredFile) -> bytes:
        """The bytes of a file; raises TransientError if they are not as many as when it was listed."""
        with self._asking(f"asked for {file.path}"):
            content = _content(self.uri, file.path)
        if len(content) != file.size:
            what = f"File {file.path} of the storage sink had {file.size} bytes, and has {len(content)} now."
            raise TransientError(what, "TiCDC writes it again; the folder is listed anew.")
        return content

    def _checkpoint_ts(self) -> int:
        with self._asking(f"asked for {METADATA}"):
            content = _content(self.uri, METADATA)
        try:
            return msgspec.json.decode(content, type=_Metadata).checkpoint_ts
        except msgspec.MsgspecError:
            hint = "give source.storage.uri the address of TiCDC's sink-uri, without its parameters."
            raise SourceLost(f"File {METADATA} of {self.uri} holds no checkpoint-ts of TiCDC.", hint) from None

    @contextmanager
    def _asking(self, verb: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as error:
            if verb.endswith(METADATA):
                hint = (
                    "give source.storage.uri the address of TiCDC's sink-uri, without its parameters; TiCDC writes the "
                    "file when the changefeed starts."
                )
                raise SourceLost(f"{self.uri} has no file {METADATA}.", hint) from error
            raise SourceLost(f"{self.uri} could not be {verb}: it is gone.", WHOLE_HINT) from error
        except pa.ArrowInvalid as error:
            what = f"source.storage.uri is no address that Arrow knows: {self.uri}."
            raise OutsideRefused(what, "write s3://bucket/prefix, gs://bucket/prefix or file:///folder.") from error
        except OSError as error:
            what = f"{self.uri} could not be {verb}: {reason_of(error)}."
            if isinstance(error, PermissionError) or is_denied(error):
                raise OutsideRefused(what, "give this machine the right to list and read it.") from error
            raise TransientError(what, _REACH) from error


def changed(path: str, before: int, now: int) -> SourceLost:
    """The refusal of a file that is not as it was: TiCDC writes none again that its checkpoint-ts has passed."""
    what = f"File {path} of the storage sink has changed: it had {before} bytes, and has {now}."
    return SourceLost(what, WHOLE_HINT)


@lru_cache(maxsize=4)
def _opened(uri: str) -> tuple[Any, str]:
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    system, root = FileSystem.from_uri(f"{uri}?region={region}" if region and uri.startswith("s3://") else uri)
    return system, root.rstrip("/")


def _content(uri: str, path: str) -> bytes:
    system, root = _opened(uri)
    with system.open_input_stream(f"{root}/{path}") as stream:
        content: bytes = stream.read()
        return content


def _file(item: FileInfo, root: str) -> StoredFile:
    written = item.mtime_ns
    return StoredFile(item.path[len(root) :].lstrip("/"), item.size, None if written is None else written // 1_000_000)
