"""A folder of TiCDC's cloud storage sink, on this machine or in an object store: listings and bytes out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any

import fsspec
import msgspec

from applier.consume.storage.layout import METADATA, WHOLE_HINT, Listing, StoredFile, arrange
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
        uri: Its address: a path, or what fsspec knows.
        kind: `json` or `csv`, as the files with rows end.
    """

    uri: str
    kind: str

    def list(self) -> Listing:
        """Look at what it holds."""
        # First: all that it covers is in files that are there already.
        checkpoint_ts = self._checkpoint_ts()
        with self._asking("listed"):
            system, root = _opened(self.uri)
            found = system.find(root, detail=True)
            files = [_file(item, name, root) for name, item in found.items()]
        return arrange(checkpoint_ts, files, self.kind)

    def read(self, file: StoredFile) -> bytes:
        """The bytes of a file, which must be as many as when it was listed."""
        with self._asking(f"asked for {file.path}"):
            system, root = _opened(self.uri)
            content: bytes = system.cat_file(f"{root}/{file.path}")
        if len(content) != file.size:
            raise changed(file.path, file.size, len(content))
        return content

    def _checkpoint_ts(self) -> int:
        with self._asking(f"asked for {METADATA}"):
            system, root = _opened(self.uri)
            system.invalidate_cache()
            content = system.cat_file(f"{root}/{METADATA}")
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
        except ImportError as error:
            what = f"Python has no package for the address {self.uri}."
            raise OutsideRefused(what, "run `pip install 'applier[s3]'`, or [gcs] or [azure].") from error
        except Exception as error:  # Every fsspec backend raises errors of its own.
            what = f"{self.uri} could not be {verb}: {reason_of(error)}."
            if isinstance(error, PermissionError) or is_denied(error):
                raise OutsideRefused(what, "give this machine the right to list and read it.") from error
            raise TransientError(what, _REACH) from error


def changed(path: str, before: int, now: int) -> SourceLost:
    """The refusal of a file that is not as it was: TiCDC writes none twice."""
    what = f"File {path} of the storage sink has changed: it had {before} bytes, and has {now}."
    return SourceLost(what, WHOLE_HINT)


def _opened(uri: str) -> tuple[Any, str]:
    system, root = fsspec.core.url_to_fs(uri)
    return system, root.rstrip("/")


def _file(item: Any, name: str, root: str) -> StoredFile:
    written = item.get("LastModified", item.get("mtime"))
    seconds = written.timestamp() if isinstance(written, datetime) else written
    milliseconds = int(seconds * 1000) if isinstance(seconds, int | float) else None
    return StoredFile(name[len(root) :].lstrip("/"), int(item["size"] or 0), milliseconds)
