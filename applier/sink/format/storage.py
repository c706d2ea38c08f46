"""Opens a table's files for Python in the storage that Iceberg writes to."""

from __future__ import annotations

import errno
import tempfile
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast

import pyarrow as pa
from pyarrow.fs import FileSelector, S3FileSystem
from pyiceberg.io import SCHEMA_TO_FILE_IO, FileIO, load_file_io
from pyiceberg.io.pyarrow import PyArrowFileIO

from applier.errors import OutsideRefused, TransientError, is_denied, reason_of
from applier.runtime.jvm.executors import SHARED
from applier.runtime.logs import logger
from applier.runtime.permanent_errors import expired
from applier.runtime.storage_keys import KEYS

_T = TypeVar("_T")
_R = TypeVar("_R")

_LASTING = frozenset(
    {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP}
)
"""Errors of a file system that come again. A full disk or a lost mount is not among them: both may be mended."""

_WHOLE_BYTES = 2 << 20
"""Files up to so many bytes are read whole: a second request takes longer than the rest of such a file."""

READERS = 16
"""Files of a storage elsewhere that are read at the same time for one table."""

_RIGHTS = "check catalog.warehouse and the rights of the user that applier, or its executors, run as."

_LOGIN = "check the log-in that [catalog] gives for the storage, and its rights below catalog.warehouse."


class Storage(Protocol):
    """Files by location. Threads may share one; every call may block on the network and may be repeated."""

    def open(self, location: str, size: int | None = None) -> Any:
        """A seekable binary file to read; the caller closes it. `size` are its bytes, where they are known.

        Raises:
            TransientError: The storage does not answer, or there is no such file.
        """

    def create(self, location: str) -> Any:
        """A new binary file to write; it is there once it is closed.

        Raises:
            TransientError: The storage does not answer.
        """


class LocalStorage:
    """Files of this machine: plain paths, and `file:` locations as Hadoop spells them.

    Locations are taken as they are, not as URLs: a `?` or `%` in a table's name belongs to the path.
    """

    def open(self, location: str, size: int | None = None) -> Any:
        """See `Storage.open`."""
        del size
        with reported("read", location):
            return Path(local_path(location)).open("rb")

    def create(self, location: str) -> Any:
        """See `Storage.create`."""
        path = Path(local_path(location))
        with reported("write", location):
            path.parent.mkdir(parents=True, exist_ok=True)
            return path.open("wb")


class RemoteStorage:
    """What PyIceberg's FileIO reaches by the scheme of a location: S3, GCS, Azure, HDFS.

    The properties are those of the table's own FileIO (`s3.endpoint`, `client.region`, …). Clients remember the keys
    that they found in the environment, so that others take their place once a storage has refused any.
    """

    def __init__(self, properties: Mapping[str, str], location: str) -> None:
        self._properties, self._location = dict(properties), location
        self._begin()

    def _begin(self) -> None:
        self._refusals = KEYS.refusals
        self._known: FileIO = load_file_io(self._properties, self._location)
        self._writing: dict[str, S3FileSystem] = {}

    @property
    def _io(self) -> FileIO:
        if self._refusals != KEYS.refusals:
            self._begin()
        return self._known

    def probe(self, location: str) -> None:
        """Ask once whether there is an answer at all.

        Raises:
            TransientError: There is none, for want of a library, a credential or a network.
        """
        with reported("reach", location):
            self._io.new_input(location.rstrip("/") + "/metadata/applier-probe").exists()

    def remove(self, location: str) -> None:
        """Remove a file.

        Raises:
            TransientError: The storage does not answer, or does not do so.
        """
        with reported("remove", location):
            self._io.delete(location)

    def open(self, location: str, size: int | None = None) -> Any:
        """See `Storage.open`. A small file is read in one request."""
        with reported("read", location):
            file = self._io.new_input(location).open()
            if size is None or size > _WHOLE_BYTES:
                return file
            with file:
                return pa.BufferReader(file.read(size))

    def create(self, location: str) -> Any:
        """See `Storage.create`."""
        with reported("write", location):
            io = self._io
            if isinstance(io, PyArrowFileIO):
                scheme, host, path = io.parse_location(location, io.properties)
                reading = io.fs_by_scheme(scheme, host)
                if isinstance(reading, S3FileSystem):
                    # Another thread may begin anew, with no clients.
                    if (writing := self._writing.get(host)) is None:
                        self._writing[host] = writing = _in_one_request(reading)
                    return writing.open_output_stream(path)
            return io.new_output(location).create(overwrite=True)


def _in_one_request(system: S3FileSystem) -> S3FileSystem:
    """A client with the same settings that sends a file below 5 MB whole at its end, not as a multipart upload."""
    build, (settings,) = cast("tuple[Any, tuple[Mapping[str, Any]]]", system.__reduce__())
    late: S3FileSystem = build({**settings, "allow_delayed_open": True})
    return late


def storage_of(location: str, properties: Mapping[str, str], otherwise: Callable[[], Storage]) -> Storage:
    """The storage that a table's location is in, by the properties of its FileIO.

    Where Python has no way to it, `otherwise` gives the storage: for good where it knows no such scheme, and for a
    minute where it got no answer, which may come the next time.
    """
    if is_local(location):
        return LocalStorage()
    if location.partition("://")[0] not in SCHEMA_TO_FILE_IO:
        return otherwise()
    try:
        return _reached(location, properties)
    except (TransientError, ImportError, ValueError) as error:
        bucket = _bucket(location)
        until = _UNREACHED.get(bucket)
        if until is None or until < time.monotonic():
            _UNREACHED[bucket] = time.monotonic() + _ASKED_AGAIN_SECONDS
        if until is None:
            # Once: some storages are never reached from Python, and all is well.
            logger().warning(
                "Python cannot reach the storage, so files go through the JVM", location=location, error=str(error)
            )
        return otherwise()


_UNREACHED: dict[str, float] = {}
"""Buckets that did not answer, and until when they are not asked again, by `time.monotonic`."""

_ASKED_AGAIN_SECONDS = 60.0


_REACHED: OrderedDict[tuple[str, frozenset[tuple[str, str]]], RemoteStorage] = OrderedDict()
"""Storages that have answered, by the bucket and the properties, in which credentials are: the latest `_MOST`."""

_MOST = 64


def _reached(location: str, properties: Mapping[str, str]) -> RemoteStorage:
    """A storage that has answered once; its connections serve all tables of a bucket that share credentials."""
    key = _bucket(location), frozenset(properties.items())
    storage = _REACHED.get(key)
    if storage is None:
        if _UNREACHED.get(key[0], 0.0) >= time.monotonic():
            raise TransientError(f"{key[0]} did not answer, and is asked again later.")
        storage = RemoteStorage(properties, location)
        storage.probe(location)
        _UNREACHED.pop(key[0], None)
        _REACHED[key] = storage
        if len(_REACHED) > _MOST:
            _REACHED.popitem(last=False)
    return storage


def _bucket(location: str) -> str:
    return "/".join(location.split("/", 3)[:3])


def is_local(location: str) -> bool:
    """Whether a location is a path of this machine."""
    return location.startswith("file:") or "://" not in location


def local_path(location: str) -> str:
    """The path of a local location: `file:/a`, `file:///a` and `/a` are the same."""
    if not location.startswith("file:"):
        return location
    path = location.removeprefix("file:")
    return "/" + path.lstrip("/") if path.startswith("//") else path


def read_ranges(
    storage: Storage, location: str, ranges: Sequence[tuple[int, int]], size: int | None = None
) -> list[bytes]:
    """Bytes of a file, by offset and length; `size` as of `Storage.open`.

    Raises:
        TransientError: The file is missing or shorter.
    """
    found = []
    with reported("read", location), storage.open(location, size) as file:
        for offset, length in ranges:
            file.seek(offset)
            found.append(bytes(file.read(length)))
            if len(found[-1]) != length:
                raise TransientError(f"File {location} ends before byte {offset + length}")
    return found


def read_each(storage: Storage, read: Callable[[_T], _R], items: Sequence[_T]) -> list[_R]:
    """What is read for each item, in their order: at the same time where each waits for an answer from elsewhere."""
    if not isinstance(storage, RemoteStorage) or len(items) < 2:
        return list(map(read, items))
    with ThreadPoolExecutor(min(READERS, len(items)), thread_name_prefix="read") as pool:
        return list(pool.map(read, items))


def write_bytes(storage: Storage, location: str, body: bytes) -> None:
    """Make a file of these bytes."""
    with reported("write", location), storage.create(location) as file:
        file.write(body)


def refuse_unwritable(folder: Path) -> None:
    """Try to make a file in a folder of this machine, and the folder if it is missing; the file is gone at once.

    Raises:
        OutsideRefused: That is not possible, and would not be possible later.
        TransientError: It may be later.
    """
    with reported("write", str(folder)):
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass


def try_out(location: str, properties: Mapping[str, str]) -> None:
    """Write a file below a location, and remove it again with the folders that were made for it.

    Raises:
        OutsideRefused: That is not possible, and would not be possible later.
        TransientError: It may be later; or Python has no way to such a storage.
    """
    if is_local(location):
        folder = Path(local_path(location))
        made = [each for each in (folder, *folder.parents) if not each.exists()]
        try:
            refuse_unwritable(folder)
        finally:
            for each in made:
                with suppress(OSError):
                    each.rmdir()
        return
    file = f"{location.rstrip('/')}/applier-check-{uuid.uuid4().hex}"
    with reported("reach", location):
        storage = RemoteStorage(properties, location)
    write_bytes(storage, file, b"applier check wrote this, and removes it at once.")
    storage.remove(file)


def refuse_elsewhere(locations: Iterable[str]) -> None:
    """Refuse files of this machine that are not here: executors made them in a folder of their own with that path.

    Raises:
        OutsideRefused: There is such a file.
    """
    for location in locations:
        if is_local(location) and not Path(local_path(location)).exists():
            what = f"Data file {location} is not on this machine: the task that wrote it has another disk."
            raise OutsideRefused(what, SHARED)


def is_empty(location: str, properties: Mapping[str, str]) -> bool:
    """Whether no file is known below a location; True as well where Python cannot list it."""
    if is_local(location):
        return not any(Path(local_path(location)).glob("*"))
    with suppress(Exception):  # It is a look for a warning: whatever is wrong, a step finds it.
        io = load_file_io(dict(properties), location)
        if isinstance(io, PyArrowFileIO):
            scheme, host, path = io.parse_location(location, dict(properties))
            return not io.fs_by_scheme(scheme, host).get_file_info(FileSelector(path, allow_not_found=True))
    return True


@contextmanager
def reported(verb: str, location: str) -> Iterator[None]:
    """Turn whatever a storage raises inside into an error that says whether a retry can help."""
    try:
        yield
    except (TransientError, OutsideRefused):
        raise
    except Exception as error:  # every storage library has exceptions of its own
        raise failure(verb, location, error) from error


def failure(verb: str, location: str, error: Exception) -> OutsideRefused | TransientError:
    """What a storage raised, as an error that says whether a retry can help."""
    what = f"Cannot {verb} {location}: {reason_of(error)}."
    if isinstance(error, OSError) and error.errno in _LASTING:
        return OutsideRefused(what, _RIGHTS)
    answer = KEYS.note(error)
    if answer == "refused" and (refused := expired(what)) is not None:
        return refused
    # Where a user may not list, S3 says the same of a file to read that is not there.
    if verb in ("write", "remove") and is_denied(error):
        return OutsideRefused(what, _LOGIN)
    return TransientError(what, f"give the keys their rights, or {KEYS.way_out}" if answer and KEYS.given else "")
