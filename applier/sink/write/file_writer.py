"""Writes rows to data files that a commit can add: needs a layout and a storage, and no table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from applier.sink.format.column_metrics import metrics
from applier.sink.format.file_layout import FileLayout
from applier.sink.format.partition_spec import parse_spec, split
from applier.sink.format.storage import Storage
from applier.sink.iceberg.files import DataFile
from applier.sink.write import rows as rows_of
from applier.sink.write.lookup import remember


@dataclass(frozen=True, slots=True)
class FileWriter:
    """Writes files of one table, in any process.

    Attributes:
        layout: How.
        storage: Where to.
    """

    layout: FileLayout
    storage: Storage

    def stage(self, rows: pa.Table, key: Sequence[str]) -> list[DataFile]:
        """Write rows in the table's columns, in its sort order or else by key, to data files that a commit can add.

        It may be repeated: files that no commit adds are orphans, which maintenance removes.
        """
        if rows.num_rows == 0:
            return []
        layout = self.layout
        fields, order = layout.order_of(key)
        rows = rows_of.sort(rows, fields)
        if not layout.spec["fields"]:
            return self.write(rows, (), key, order)
        groups = split(rows, parse_spec(layout.table, layout.spec, layout.schema))
        return [file for values, group in groups for file in self.write(group, values, key, order)]

    def write(self, rows: pa.Table, values: Sequence[Any], key: Sequence[str], order: int) -> list[DataFile]:
        """Write rows of one partition as they are ordered; values and the id of the order are those of Iceberg's JSON.

        The columns are those of the table, which other ones may follow.
        """
        fields, properties = self.layout.schema.fields, self.layout.properties
        target = int(properties.get("write.target-file-size-bytes", rows_of.TARGET_BYTES))
        files = rows_of.write(rows, self.storage, lambda name: self.layout.place(name, values), target)
        if key and len(files) == 1:
            named = {field.name: field for field in fields}
            remember(files[0].path, [named[name] for name in key], rows)
        return [
            DataFile.parse(
                {
                    "spec-id": int(self.layout.spec["spec-id"]),
                    "content": "data",
                    "file-path": file.path,
                    "file-format": "parquet",
                    "partition": list(values),
                    "file-size-in-bytes": file.size,
                    "sort-order-id": order,
                    **metrics(file.footer, fields, key, properties),
                },
                is_new=True,
            )
            for file in files
        ]
