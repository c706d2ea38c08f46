"""Rows without a commit ts, in a feed in which the commit ts orders the changes of a row."""

from __future__ import annotations

from applier.changefeed.event import Op
from applier.changefeed.table import TableName
from applier.errors import DecodeError, IncompleteRow

_HINT = (
    'set changefeed.order = "offset", where the place in the topic orders changes, or upgrade TiCDC: its Avro deletes '
    "carry a commit ts from v8.5.7 and v26.3.4 on."
)


def undated(name: TableName, op: Op) -> IncompleteRow:
    """The refusal of a row that carries no commit ts, in a feed in resolved order.

    Such a row has no provable place: below the watermark or above it, before or after another change of its key.
    The ts of the change before it in the topic would not do. TiCDC may send `insert@5, delete, insert@9`, restart, and
    send `delete, insert@9` again: the second copy of the delete would follow the living row.
    """
    what = (
        f"A {op.name.lower()} of table {name} has no commit ts, so nothing shows which changes of the row it follows."
    )
    return IncompleteRow(what, _HINT, (name.database, name.table))


def undated_ddl() -> DecodeError:
    """The same for a DDL, which would pass for one that was applied long ago."""
    what = "A DDL has no commit ts, so nothing shows which rows came before it."
    return DecodeError(what, 'set enable-tidb-extension in the changefeed, or changefeed.order = "offset" here.')
