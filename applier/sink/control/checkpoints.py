"""Checkpoints as they are in the catalog, also where some of their tables are lost. Reads only."""

from __future__ import annotations

from applier.changefeed.checkpoint import Checkpoint
from applier.sink.commit.stamp import EPOCH
from applier.sink.control.append_table import AppendOnlyTable
from applier.sink.control.checkpoint_form import from_json
from applier.sink.iceberg.catalog import Catalog


def is_absent(catalog: Catalog, changefeed: str) -> bool:
    """Whether a changefeed has no control table that could hold a checkpoint: it begins. Writes nothing."""
    return catalog.load((f"applier_{changefeed}", "checkpoints")) is None


def lost_epoch(catalog: Catalog, changefeed: str, namespace: tuple[str, ...] | None = None) -> int:
    """The epoch that the other control tables know, where `checkpoints` is lost or empty; else 0. Writes nothing.

    Raises:
        TableMismatch: `checkpoints` is there, but its metadata is gone.
    """
    where = namespace or (f"applier_{changefeed}",)
    checkpoints = catalog.load((*where, "checkpoints"))
    if checkpoints is not None and checkpoints.snapshot_id is not None:
        return 0
    others = [catalog.load((*where, name)) for name in ("table_versions", "schema_changes", "dead_letters")]
    return max((int(table.setting(EPOCH) or 0) for table in others if table is not None), default=0)


def newest(checkpoints: AppendOnlyTable) -> Checkpoint | None:
    """The newest checkpoint of a table that was just refreshed; None if it has none."""
    rows = checkpoints.newest()
    if rows.num_rows == 0:
        return None
    columns = rows.select(["step", "written_at", "checkpoint"])
    found = max(columns.to_pylist(), key=lambda row: (row["step"], row["written_at"]))
    return from_json(found["checkpoint"])
