"""Names as TiCDC writes them into Avro schemas, which allow `[A-Za-z_][A-Za-z0-9_]*`."""

from __future__ import annotations

import re

from applier.changefeed.table import TableName

_FORBIDDEN = re.compile(r"[^A-Za-z0-9_]")


def sanitised(name: str) -> str:
    """A name as TiCDC writes it: one `_` for each character that Avro forbids, one more before a leading digit."""
    clean = _FORBIDDEN.sub("_", name)
    return f"_{clean}" if clean[:1].isdigit() else clean


def sanitised_table(name: TableName) -> TableName:
    """The same for the name of a table."""
    return TableName(sanitised(name.database), sanitised(name.table))
