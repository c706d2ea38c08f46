"""One state of an Iceberg table, and the figures of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

MAIN = "main"
"""The branch that readers see."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One snapshot; its operation is `append`, `delete`, `overwrite` or `replace`.

    The parent, on which it was made, may have expired; None for the first.
    """

    id: int
    operation: str
    summary: Mapping[str, str]
    parent_id: int | None = None


@dataclass(frozen=True, slots=True)
class Figures:
    """What the summary of a table's head counts.

    Attributes:
        snapshot_id: The head.
        rows: Living rows.
        files: Data files and delete files.
        committed_ms: When it was committed, in Unix milliseconds.
        sequence: Its sequence number: each snapshot of the table has a higher one than those before.
    """

    snapshot_id: int
    rows: int
    files: int
    committed_ms: int
    sequence: int

    @staticmethod
    def of(snapshot_id: int, summary: Mapping[str, str], committed_ms: int, sequence: int) -> Figures:
        """Those of a snapshot, by its summary."""
        names = ("records", "position-deletes", "data-files", "delete-files")
        rows, dead, data, deletes = (int(summary.get(f"total-{name}", 0)) for name in names)
        return Figures(snapshot_id, max(0, rows - dead), data + deletes, committed_ms, sequence)
