"""One state of an Iceberg table."""

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
