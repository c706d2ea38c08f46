"""Refuses a lake that was copied: its catalog names files of the original, which every commit would change."""

from __future__ import annotations

import os
from pathlib import Path

from applier.config.settings import CatalogSection
from applier.errors import ConfigError
from applier.sink.format.storage import is_local, local_path

CATALOG_FILE = "applier.catalog-file"
"""Property of the control table `checkpoints`: the SQLite file of its catalog."""

_OF_PATHS = ("jdbc", "sql", "hadoop")
"""Types of catalogs whose warehouse is a path, below which they put every control table."""

_WAY_OUT = "docs/backup.md says how a lake is copied and moved; nothing was written."


class ForeignLake(ConfigError):
    """A catalog is not that of its files, or its files are not those of its warehouse."""


def refuse_outside(section: CatalogSection, table: str, location: str) -> None:
    """Refuse a lake whose control table lies outside of its warehouse; the table need not be there.

    Arguments and error are those of `refuse_foreign`.
    """
    warehouse = section.properties.get("warehouse", "")
    if section.type in _OF_PATHS and "/" in warehouse and not _is_below(_plain(location), _plain(warehouse)):
        what = (
            f"Catalog {section.name} names table {table} at {location}, which is not below catalog.warehouse, "
            f"{warehouse}: it is a copy of the catalog of another lake, whose files it would change."
        )
        way_out = "To go on with that lake, set catalog.uri and catalog.warehouse to those of it."
        raise ForeignLake([f"{what} {way_out} {_WAY_OUT}"])


def refuse_foreign(section: CatalogSection, table: str, location: str, metadata: str, catalog_file: str | None) -> None:
    """Refuse a lake by its control table `checkpoints`, before anything is written.

    Args:
        section: The catalog.
        table: The control table, for people.
        location: The root of its files.
        metadata: Its newest metadata file.
        catalog_file: What its property `CATALOG_FILE` says; None for one that has none yet.

    Raises:
        ForeignLake: The table lies outside of the warehouse, or its metadata outside of it; or another catalog that is
            still there names it as well.
    """
    refuse_outside(section, table, location)
    if not _is_below(_plain(metadata), _plain(location)):
        what = (
            f"Catalog {section.name} names table {table} by {metadata}, a copy of a file of {location}: applier would "
            "change the files of that lake."
        )
        raise ForeignLake([f"{what} {_WAY_OUT}"])
    own = section.sqlite_file
    if own is not None and catalog_file is not None and is_other(own, Path(catalog_file)):
        what = (
            f"Catalog {own.absolute()} is a copy of {catalog_file}, which is still there, and both name the tables "
            f"of {section.properties.get('warehouse', '')}."
        )
        way_out = "Set catalog.uri to the one that is in use, or remove the other one."
        raise ForeignLake([f"{what} {way_out} {_WAY_OUT}"])


def is_other(own: Path, recorded: Path) -> bool:
    """Whether a SQLite file that a table names is there, and is not this one."""
    return recorded.exists() and not (own.exists() and own.samefile(recorded))


def _is_below(path: str, root: str) -> bool:
    return path.startswith(f"{root.rstrip('/')}/")


def _plain(location: str) -> str:
    """A location in one form: the path that links lead to, or an address by one name of its scheme."""
    if is_local(location):
        return os.path.realpath(local_path(location))
    scheme, _, rest = location.partition("://")
    return f"{'s3' if scheme in ('s3a', 's3n') else scheme}://{rest.rstrip('/')}"
