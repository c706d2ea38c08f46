"""One state of an Iceberg table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

MAIN = "main"
"""The branch that readers see."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One snapshot.

    Attributes:
        id: Snapshot id.
        operation: `append`, `delete`, `overwrite` or `replace`.
        summary: Its summary.
        parent_id: The snapshot that it was made on, which may have expired; None for the first.
    """

    id: int
    operation: str
    summary: Mapping[str, str]
    parent_id: int | None = None
