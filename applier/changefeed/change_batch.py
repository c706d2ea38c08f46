"""Row changes of a table, ordered and reduced: the input of one Iceberg commit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where each of some rows comes from.

    Attributes:
        table: Upstream table, `database.table`, as the change names it.
        commit_ts: For each row the commit ts of the change that made it, 0 where it carried none.
        op: For each row the kind of that change, as `Op`; NULL where a load brought it.
    """

    table: str
    commit_ts: pa.ChunkedArray[pa.Int64Scalar]
    op: pa.ChunkedArray[pa.Int8Scalar]

    def filter(self, mask: pa.BooleanArray) -> Provenance:
        """That of the rows which a mask keeps."""
        return Provenance(self.table, self.commit_ts.filter(mask), self.op.filter(mask))


@dataclass(frozen=True, slots=True)
class ChangeBatch:
    """Row changes of one table with a key, all at or below one resolved ts, at most one row per key.

    Attributes:
        upserts: New images. Columns by their upstream names, each of the Arrow type that `changefeed/types.py` gives
            its TiDB type; columns that no image holds are left out.
        fresh: One boolean per row of `upserts`: the key was not in the upstream table before the batch, because its
            first event is an INSERT.
        deletes: Key columns of the rows to remove, in key order. No key is in both `upserts` and `deletes`.
        may_be_new: Number of keys in `upserts` and `deletes` whose first event is an UPSERT: the upstream table may
            have had them before the batch. None of them is fresh.
        made: Where the rows of `upserts` come from; None where it does not matter.
        is_soft: Deleted rows stay: `upserts` has their old images, by `made`, and `deletes` is empty. The table may
            hold a fresh key, as a deleted row.
    """

    upserts: pa.Table
    fresh: pa.BooleanArray
    deletes: pa.Table
    may_be_new: int = 0
    made: Provenance | None = None
    is_soft: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether it changes no row."""
        return self.upserts.num_rows == 0 and self.deletes.num_rows == 0


@dataclass(frozen=True, slots=True)
class KeylessBatch:
    """Row changes of one table without a key: the table is a bag of rows.

    Attributes:
        inserts: Full images to add, one row each, equal ones repeated.
        deletes: Full images to remove; each removes exactly one equal row.
        made: Where the rows of `inserts` come from; None where it does not matter. Equal rows have the newest.
    """

    inserts: pa.Table
    deletes: pa.Table
    made: Provenance | None = None

    @property
    def is_empty(self) -> bool:
        """Whether it changes no row."""
        return self.inserts.num_rows == 0 and self.deletes.num_rows == 0


Changes: TypeAlias = ChangeBatch | KeylessBatch
"""Row changes of one table, whatever its shape."""
