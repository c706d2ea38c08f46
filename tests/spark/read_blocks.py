"""Runs blocks of docs/reading.md and prints what they read, as JSON; any Python that has the engine can run it.

Standard input has a JSON list: for each table the block that reads its head, and the one that reads an older snapshot.
"""

from __future__ import annotations

import json
import sys
import warnings
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any


def plain(value: Any) -> Any:
    """A value as JSON has it, alike for engines: a moment in UTC, bytes as the text that ClickHouse makes of it."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat() if value.tzinfo else f"{value.isoformat()} without a zone"
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode("latin-1")
    if isinstance(value, Decimal):
        return f"{value.normalize():f}"
    return value if value is None or isinstance(value, int | str) else str(value)


def rows_of(found: Any) -> list[dict[str, Any]]:
    """The rows of an Arrow table or of a frame, by their ids."""
    rows = found.to_pylist() if hasattr(found, "to_pylist") else found.to_dicts()
    return sorted(({name: plain(value) for name, value in row.items()} for row in rows), key=lambda row: row["id"])


def main() -> None:
    """Run each block; what one raises is printed in place of rows."""
    warnings.simplefilter("ignore")
    read: list[list[Any]] = []
    for blocks in json.load(sys.stdin):
        names: dict[str, Any] = {}
        read.append([])
        for block in blocks:
            names.pop("rows", None)
            try:
                exec(block, names)  # noqa: S102 - the page of this repository
                read[-1].append(rows_of(names["rows"]))
            except Exception as error:  # noqa: BLE001 - an engine may fail in any way
                read[-1].append(f"{type(error).__name__}: {error}")
    sys.stdout.write("\n" + json.dumps(read))


if __name__ == "__main__":
    main()
