"""The identity of rows (format 3): an updated row may keep the id of the row that it replaces, and a moved one does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from applier.changefeed.table import fold
from applier.config.table_layout import ROW_IDS
from applier.sink.format import types
from applier.sink.format.file_layout import FileLayout
from applier.sink.format.types import Chunks, Field
from applier.sink.write.file_index import IndexedFile
from applier.sink.write.parquet import Positions

LINEAGE = (
    Field(2147483540, types.LINEAGE[0], "long", pa.int64(), required=False),
    Field(2147483539, types.LINEAGE[1], "long", pa.int64(), required=False),
)
"""A file has them if its rows were in another one before; else a row's place in the file and the file's sequence number
say it. An updated row has the first one alone: it was last updated by the commit that adds its file."""


def are_kept(layout: FileLayout) -> bool:
    """Whether updated rows of a table keep their ids."""
    is_free = not any(fold(name) in types.LINEAGE for name in layout.schema.names)
    return layout.properties.get(ROW_IDS) == "keep" and layout.format_version >= 3 and is_free


def column(field: Field) -> pa.Field[Any]:
    """A column of a file, with its field id."""
    return pa.field(field.name, field.arrow, metadata={types.FIELD_ID: str(field.id).encode()})


def inherited(files: Mapping[str, IndexedFile], living: Mapping[str, Positions], own: Chunks) -> Chunks:
    """The ids of some rows, file after file; `own` are those that their files hold, NULL where a place gives them.

    NULL where Iceberg has given a file no ids yet, as in a table that was made with format 2: its rows get new ones.
    """
    given = []
    for path, positions in living.items():
        first = files[path].file.first_row_id
        none = pa.nulls(len(positions), pa.int64())
        given.append(none if first is None else pa.array(np.asarray(positions, np.int64) + first))
    return pc.coalesce(own, pa.chunked_array(given, pa.int64()))


def with_ids(rows: pa.Table, ids: Chunks) -> pa.Table:
    """Rows in the columns of their table, followed by their ids; NULL is for a new one."""
    return rows.append_column(column(LINEAGE[0]), ids)
