"""Appends rows to a control table with PyIceberg, without Spark and without the lease of the changefeed."""

from __future__ import annotations

import pyarrow as pa
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import CommitFailedException, NoSuchNamespaceError, NoSuchTableError

from applier.commands.catalog_reader import catalog_properties, reported
from applier.config.settings import CatalogSection
from applier.sink.commit.committer import retrying


def append(section: CatalogSection, identifier: tuple[str, ...], rows: pa.Table) -> bool:
    """Append rows to a table of a catalog; False if there is no such table.

    Raises:
        TransientError: The catalog or its storage does not answer.
        ConfigError: A library or a property is missing that reaching them needs.
    """
    with reported(f"append to table {'.'.join(identifier)} of catalog {section.name}", section.type):
        catalog = load_catalog(section.name, **catalog_properties(section, is_read_only=False))
        try:
            for attempt in retrying(CommitFailedException, attempts=10):
                with attempt:
                    table = catalog.load_table(identifier)
                    table.append(rows.cast(table.schema().as_arrow()))
        except (NoSuchTableError, NoSuchNamespaceError):
            return False
        finally:
            catalog.close()
    return True
