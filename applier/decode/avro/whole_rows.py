"""Finds what a row lacks that holds its key columns alone.

TiCDC v26.3.4 with `avro-enable-watermark` registers the key columns as the whole schema of a table for which it
writes a DELETE first, and writes the rows that follow in that schema.
"""

from __future__ import annotations

from collections import defaultdict

from applier.changefeed.table import TableName, TableVersion
from applier.decode.avro.schema import RecordSchema, record_schema
from applier.decode.registry.subjects import Subjects
from applier.errors import IncompleteRow, RegistryError

_HINT = (
    "pause the changefeed in TiCDC and resume it with --overwrite-checkpoint-ts at a time from which the first change "
    'of the table is no DELETE; changefeed.on_bad_message = "dead_letter" passes the rows that the topic holds already.'
)


class WholeRows:
    """Which columns a table has beside its key, as DDL and the registry show them.

    Attributes:
        has_watermarks: TiCDC may have written such rows: without watermarks, a table had its key alone at some time.
    """

    def __init__(self, subjects: Subjects) -> None:
        self.has_watermarks = True
        self._subjects = subjects
        self._described: dict[TableName, list[frozenset[str]]] = defaultdict(list)

    def learn(self, version: TableVersion) -> None:
        """Take the columns of a version that a DDL describes."""
        virtual = {column.name for column in version.columns if column.generated == "virtual"}
        columns = frozenset(column.name for column in version.columns) - virtual
        if columns not in self._described[version.name]:
            self._described[version.name].append(columns)

    def lacking(self, name: TableName, key: tuple[str, ...], record: RecordSchema, value_id: int) -> str:
        """What rows of the key columns alone lack; an empty text where nothing shows that they lack anything.

        The table's name and key columns are those upstream, the record is the schema of the rows, under its id.

        Raises:
            TransientError: The registry could not be reached.
        """
        described = [columns - set(key) for columns in self._described.get(name, ())]
        if described:
            # A table that had its key alone at some time may have sent the row then.
            return f"its DDL declares {_listed(described[-1])}" if all(described) else ""
        own = {column.name for column in record.columns}
        for schema in self._subjects.beside(value_id) if self.has_watermarks else ():
            try:
                other = record_schema(value_id, schema)
            except RegistryError:
                continue
            more = {column.name for column in other.columns} - own
            if other.name == record.name and more:
                return f"another version of its subject in the schema registry has {_listed(more)}"
        return ""


def _listed(columns: set[str] | frozenset[str]) -> str:
    return f"column{'s' if len(columns) > 1 else ''} {', '.join(sorted(columns))}"


def refused(name: TableName, lacking: str) -> IncompleteRow:
    """The refusal of a row that lacks columns."""
    what = (
        f"A row of table {name} holds its key columns alone, but {lacking}: TiCDC v26.3.4 writes such rows behind a "
        "DELETE that it wrote first."
    )
    return IncompleteRow(what, _HINT, [name])
