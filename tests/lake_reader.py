"""PyIceberg, with which tables are read by what shares no code with the applier, reads no manifest twice.

A recording is compared after each of its steps, and each step adds a manifest or two to a table: reading all of them
again, at each step, was a quarter of what those tests cost. Manifests never change.
"""

from __future__ import annotations

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestEntry, ManifestFile
from pyiceberg.table import StaticTable, Table

_entries: dict[tuple[str, bool], list[ManifestEntry]] = {}
_read = ManifestFile.fetch_manifest_entry


def table_at(location: str) -> Table:
    """A table by the place of its metadata."""
    return StaticTable.from_metadata(location)


def _known(manifest: ManifestFile, io: FileIO, discard_deleted: bool = True) -> list[ManifestEntry]:  # noqa: FBT002 - as PyIceberg calls it
    key = manifest.manifest_path, discard_deleted
    if key not in _entries:
        _entries[key] = _read(manifest, io, discard_deleted)
    return _entries[key]


setattr(ManifestFile, "fetch_manifest_entry", _known)  # noqa: B010 - mypy takes the method for unbound
