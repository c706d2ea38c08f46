"""Locations of tables: a folder for each new one that no other table ever uses, and what two locations share."""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote

OWN_LOCATION = "applier-maintenance.own-location"
"""Table property: the location that applier chose for this table alone. It counts while the table still lies there."""

_PLAIN = re.compile(r"[^\W.][\w. -]*", re.ASCII)

_PART_BYTES = 120
"""Longest folder name before the suffix: file systems take 255 bytes, and some leave room for suffixes of theirs."""

_UUID = re.compile(r"[0-9a-f]{8}(-?)[0-9a-f]{4}\1[0-9a-f]{4}\1[0-9a-f]{4}\1[0-9a-f]{12}", re.IGNORECASE)

_WRITES = ("write.data.path", "write.metadata.path", "write.object-storage.path", "write.folder-storage.path")
"""Table properties that lead files elsewhere than below the location."""


def own(location: str) -> str:
    """A location beside `location` that no other table has: its name ends in a random UUID.

    Iceberg's catalogs derive a location from the name. A renamed table keeps its location, so the next table of the
    old name would get the same one.
    """
    return f"{location.rstrip('/')}-{uuid.uuid4().hex}"


def has_uuid(location: str, name: str) -> bool:
    """True if the last folder of a location holds a UUID that is no part of the table's name: the catalog chose it."""
    return _UUID.search(location.rstrip("/").rpartition("/")[2].removeprefix(name)) is not None


def is_plain(identifier: Sequence[str]) -> bool:
    """True if every part of an identifier may be a folder name as it is."""
    return all(_PLAIN.fullmatch(part) and len(part) <= _PART_BYTES for part in identifier)


def folder_name(part: str) -> str:
    """A folder name for one part of an identifier, whose characters may mean something in a path.

    A catalog would put `a/b` below `a`, `..` above the warehouse, and Hadoop's paths refuse a `:`. A long name is cut,
    and a hash of the whole name distinguishes it from others that begin alike.
    """
    text = quote(part, safe=" ").replace(".", "%2E").replace("%", "_")
    if len(text) <= _PART_BYTES:
        return text
    digest = hashlib.blake2b(part.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    return f"{text[: _PART_BYTES - len(digest) - 1]}_{digest}"


@dataclass(frozen=True, slots=True)
class FileExtent:
    """Where a table keeps files: its location, and the folders that its files are written to, all normalised."""

    location: str
    writes: tuple[str, ...]

    @staticmethod
    def of(location: str, properties: Mapping[str, str]) -> FileExtent:
        """The extent of a table with this location and these properties."""
        base = normalised(location)
        paths = [normalised(properties[key]) for key in _WRITES if properties.get(key)]
        return FileExtent(base, (f"{base}/data", f"{base}/metadata", *paths))

    def reaches(self, folder: str) -> bool:
        """True if the table may keep a file in a folder of another one."""
        place = normalised(folder)
        return _within(self.location, place) or any(_within(own, place) or _within(place, own) for own in self.writes)


def normalised(path: str) -> str:
    """A path in one spelling: `s3a` and `s3n` are `s3`, a local path has no scheme, and no slash ends it."""
    text = re.sub(r"^s3[an]://", "s3://", path)
    return re.sub(r"^file:/+", "/", text).rstrip("/")


def _within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder}/")
