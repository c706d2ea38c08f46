"""Whether a changefeed has checkpoints, also where some of its control tables are lost; and how it loses them all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from applier.sink.commit.stamp import EPOCH
from applier.sink.control.tables import (
    CHECKPOINTS,
    CONTROL_TABLES,
    DEAD_LETTERS,
    SCHEMA_CHANGES,
    TABLE_VERSIONS,
    namespace,
)
from applier.sink.iceberg.catalog import Catalog


class Loaded(Protocol):
    """What is asked of a table, whichever way it was loaded."""

    @property
    def properties(self) -> Mapping[str, str]:
        """Table properties."""

    @property
    def snapshot_id(self) -> int | None:
        """Its head; None where nothing was ever written."""


Load = Callable[[tuple[str, ...]], Loaded | None]
"""Loads the table of an identifier; None where there is none."""


def is_absent(load: Load, changefeed: str) -> bool:
    """Whether a changefeed has no control table that could hold a checkpoint: it begins."""
    return load((namespace(changefeed), CHECKPOINTS.name)) is None


def is_unwritten(load: Load, changefeed: str) -> bool:
    """Whether a changefeed has no checkpoint: it begins, or its first process died before it wrote one."""
    table = load((namespace(changefeed), CHECKPOINTS.name))
    return table is None or table.snapshot_id is None


def lost_epoch(load: Load, changefeed: str) -> int:
    """The epoch that the other control tables know, where `CHECKPOINTS` is lost or empty; else 0.

    Raises:
        TableMismatch: `CHECKPOINTS` is there, but its metadata is gone.
    """
    where = namespace(changefeed)
    checkpoints = load((where, CHECKPOINTS.name))
    if checkpoints is not None and checkpoints.snapshot_id is not None:
        return 0
    others = [load((where, table.name)) for table in (TABLE_VERSIONS, SCHEMA_CHANGES, DEAD_LETTERS)]
    return max((int(table.properties.get(EPOCH, 0)) for table in others if table is not None), default=0)


def drop_all(catalog: Catalog, where: tuple[str, ...]) -> None:
    """Drop all control tables of a namespace; their files stay.

    What shows that there is a changefeed goes last: after a crash on the way the rest is dropped by the next attempt.
    """
    for table in reversed(CONTROL_TABLES):
        catalog.drop((*where, table.name))
