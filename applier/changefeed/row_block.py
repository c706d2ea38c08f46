"""Rows of many messages of one table version and kind, as columns."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from applier.changefeed.event import Op
from applier.changefeed.table import TableName

Ints: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ColumnBlock:
    """Row changes of one table version and kind.

    Attributes:
        name: The table's upstream name.
        version: What the rows refer to.
        op: Kind of all of them. No update among them changes a key.
        key: Names of the key columns.
        places: Number of each row's message in what was read.
        commit_ts: TSO of each row.
        form: Blocks of one version and of one form have columns of one type.
        columns: Wire values, as `to_array` takes them; of a delete those of the key, unless its old row is asked for.
        indexes: Number of each row within its message; None where each message holds one.
        before: The same columns of the old rows of updates; None where none is asked for, or sent.
    """

    name: TableName
    version: int
    op: Op
    key: tuple[str, ...]
    places: Ints
    commit_ts: Ints
    form: Hashable
    columns: Mapping[str, pa.Array[Any]]
    indexes: Ints | None = None
    before: Mapping[str, pa.Array[Any]] | None = None

    def part(self, rows: Ints) -> ColumnBlock:
        """Some of its rows."""
        return replace(
            self,
            places=self.places[rows],
            commit_ts=self.commit_ts[rows],
            columns=_taken(self.columns, rows),
            indexes=None if self.indexes is None else self.indexes[rows],
            before=None if self.before is None else _taken(self.before, rows),
        )


def _taken(columns: Mapping[str, pa.Array[Any]], rows: Ints) -> dict[str, pa.Array[Any]]:
    return {name: column.take(rows) for name, column in columns.items()}


def without(block: ColumnBlock, places: Collection[int]) -> ColumnBlock:
    """A block without the rows of some messages."""
    rows = np.flatnonzero(~np.isin(block.places, list(places)))
    return block if len(rows) == len(block.places) else block.part(rows)
