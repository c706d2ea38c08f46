"""Looks up a sample of the keys that are taken for new: a feed that leaves out deletes inserts keys that are there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from applier.changefeed.change_batch import ChangeBatch
from applier.sink.format.storage import Storage
from applier.sink.write.deletes import alive
from applier.sink.write.file_index import FileIndex, IndexedFile
from applier.sink.write.file_writer import conform_keys
from applier.sink.write.lookup import positions_of

KEYS = 16
"""Keys of a batch that are looked up."""

FIRST_CREDIT = 50_000
"""Rows of key columns that may be read before any row was written, so that a start finds a mistake soon."""

CREDIT_PER_ROW = 4
"""Rows of key columns that each written row allows to be read: about 3 % of what writing it costs."""

FILE_COST = 10_000
"""Rows that could be read in the time that it takes to open a file."""


@dataclass(eq=False, slots=True)
class NewKeySample:
    """Looks new keys of one table up, in as many files as a credit allows that grows with the rows written.

    The `credit` counts rows of key columns.
    """

    name: str
    storage: Storage
    credit: int = FIRST_CREDIT

    def is_there(self, index: FileIndex, batch: ChangeBatch) -> bool:
        """Whether the indexed snapshot holds a row of one of the new keys; False says little where many files may hold
        them.
        """
        fresh = np.flatnonzero(batch.fresh.to_numpy(zero_copy_only=False))
        self.credit = min(self.credit + CREDIT_PER_ROW * len(fresh), max(FIRST_CREDIT, index.rows + FILE_COST))
        if not len(fresh) or not index.files:
            return False
        # Another choice for each snapshot, and the same one when a commit is tried again.
        draw = np.random.default_rng(index.snapshot_id)
        key = index.columns
        names = [field.name for field in key]
        chosen = draw.choice(fresh, min(KEYS, len(fresh)), replace=False)
        keys = conform_keys(self.name, batch.upserts.select(names).take(pa.array(chosen)), key)
        files = list(self._affordable(index.candidates(keys), draw))
        return bool(alive(positions_of(files, keys, key, self.storage, threads=1), index.files, self.storage))

    def _affordable(self, candidates: list[IndexedFile], draw: np.random.Generator) -> Iterator[IndexedFile]:
        for place in draw.permutation(len(candidates)):
            cost = candidates[place].file.records + FILE_COST
            if cost > self.credit:
                return
            self.credit -= cost
            yield candidates[place]
