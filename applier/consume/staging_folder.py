"""A folder for the temporary files of one process, which a later one removes if this one is killed."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from applier.errors import TransientError
from applier.runtime.stop_requests import STOPPING

_PREFIX = "applier-staging-"

_LITTLE_BYTES = 16 << 20
"""Free bytes of a full folder: what a poll of messages did not fit into."""


@contextmanager
def staging_folder() -> Iterator[Path]:
    """A new folder until the block ends; those of processes that are gone are removed first.

    Each process locks its folder, and the system lets go of the lock when the process ends, in whatever way.

    Raises:
        OSError: There is no place for temporary files.
    """
    _remove_left_ones(Path(tempfile.gettempdir()))
    folder, lock = _locked_folder()
    STOPPING.remove_when_left(folder)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def full_temporary_folder() -> TransientError | None:
    """The error for messages that have no room on this machine; None while there is some."""
    folder = tempfile.gettempdir()
    if shutil.disk_usage(folder).free > _LITTLE_BYTES:
        return None
    error = TransientError(f"The temporary folder {folder} is full.", "free some of it, or set TMPDIR to another one.")
    error.system = "other"
    return error


def _locked_folder() -> tuple[Path, int]:
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
        # Another start may take a folder without a lock for one that was left, and remove it.
        with suppress(FileNotFoundError):
            lock = os.open(folder, os.O_RDONLY)
            fcntl.flock(lock, fcntl.LOCK_EX)
            if folder.exists():
                return folder, lock
            os.close(lock)


def _remove_left_ones(temporary: Path) -> None:
    for folder in temporary.glob(f"{_PREFIX}*"):
        # Locked ones are in use. Those of other users are theirs, whatever they have put into them.
        with suppress(OSError, RecursionError):
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                if os.fstat(lock).st_uid != os.getuid():
                    continue
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)
