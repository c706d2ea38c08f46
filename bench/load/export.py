"""Writes an export as Dumpling does, column by column: a table of orders in CSV, and what its columns add up to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from applier.changefeed.table import TableName
from bench.topic.schema import DATABASE

FILE_BYTES = 256 << 20
"""`dumpling -F 256MiB`."""

NULL = b"\\N"

ARROW = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("name", pa.string()),
        pa.field("amount", pa.decimal128(12, 2)),
        pa.field("created_at", pa.timestamp("us")),
        pa.field("quantity", pa.int32()),
        pa.field("note", pa.string()),
    ]
)

_DECLARED = """CREATE TABLE `{name}` (
  `id` bigint NOT NULL,
  `name` varchar(32) DEFAULT NULL,
  `amount` decimal(12,2) DEFAULT NULL,
  `created_at` datetime(6) DEFAULT NULL,
  `quantity` int DEFAULT NULL,
  `note` varchar(100) DEFAULT NULL,
  PRIMARY KEY (`id`) /*T![clustered_index] CLUSTERED */
);
"""

TSO = 470606910897520641

_METADATA = f"""Started dump at: 2026-11-23 11:47:05
SHOW MASTER STATUS:
\tLog: tidb-binlog
\tPos: {TSO}
\tGTID:

Finished dump at: 2026-11-23 11:47:05
"""

_BLOCK_ROWS = 100_000
_FIRST_MICROSECOND = 1_600_000_000_000_000
_PHRASES = 20_000
"""Different beginnings of texts, which end differently."""


@dataclass(frozen=True, slots=True)
class Sums:
    """What the columns of a table add up to."""

    rows: int = 0
    ids: int = 0
    cents: int = 0
    microseconds: int = 0
    quantities: int = 0
    characters: int = 0
    nulls: int = 0

    def plus(self, rows: pa.Table) -> Sums:
        """The sums with some more rows."""
        epochs = rows["created_at"].cast(pa.timestamp("us")).cast(pa.int64())
        texts = [pc.utf8_length(rows[name]) for name in ("name", "note")]
        return Sums(
            self.rows + rows.num_rows,
            self.ids + _sum(rows["id"]),
            self.cents + int(100 * (pc.sum(rows["amount"]).as_py() or 0)),
            self.microseconds + _sum(pc.subtract(epochs, _FIRST_MICROSECOND)),
            self.quantities + _sum(rows["quantity"]),
            self.characters + sum(map(_sum, texts)),
            self.nulls + sum(column.null_count for column in rows.columns),
        )


def write(folder: Path, name: str, rows: int, *, start: int = 0) -> Sums:
    """Write rows of a table to files of 256 MB.

    Args:
        folder: The export; other tables may be in it.
        name: The table.
        rows: How many rows.
        start: Key before the first one.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "metadata").write_text(_METADATA, encoding="utf-8")
    (folder / f"{DATABASE}.{name}-schema.sql").write_text(_DECLARED.format(name=name), encoding="utf-8")
    sums, number, size, file = Sums(), 0, 0, None
    for block in _blocks(rows, start):
        if file is None or size > FILE_BYTES:
            if file is not None:
                file.close()
            file = (folder / f"{DATABASE}.{name}.{number:09}.csv").open("wb")
            number, size = number + 1, file.write(_header())
        size += file.write(_lines(block))
        sums = sums.plus(block)
    if file is not None:
        file.close()
    return sums


def table(name: str) -> TableName:
    """The table upstream."""
    return TableName(DATABASE, name)


def _sum(column: Any) -> int:
    return int(pc.sum(column).as_py() or 0)


def _blocks(rows: int, start: int) -> Iterator[pa.Table]:
    random = np.random.default_rng(7)
    names, notes = _names(random), _notes(random)
    for first in range(start, start + rows, _BLOCK_ROWS):
        size = min(_BLOCK_ROWS, start + rows - first)
        yield _block(random, np.arange(first + 1, first + size + 1), names, notes)


def _block(random: np.random.Generator, ids: Any, names: Any, notes: Any) -> pa.Table:
    size = len(ids)
    cents = pa.array(random.integers(-(10**8), 10**9, size)).cast(pa.decimal128(19, 0))
    amounts = pc.multiply(cents, pa.scalar(Decimal("0.01")))
    moments = _FIRST_MICROSECOND + ids * 1_003 + random.integers(0, 1_000, size)
    columns: list[Any] = [
        pa.array(ids),
        pc.binary_join_element_wise(_some(random, names, size), pa.array(ids).cast(pa.string()), ""),
        amounts.cast(pa.decimal128(12, 2)),
        pa.array(moments).cast(pa.timestamp("us")),
        pa.array(random.integers(-1000, 10**6, size, np.int32)),
        pc.binary_join_element_wise(_some(random, notes, size), _some(random, names, size), " "),
    ]
    # One value in twenty is NULL, in every column but the key.
    filled = [pc.if_else(pa.array(random.random(size) < 0.05), None, column) for column in columns[1:]]
    return pa.Table.from_arrays([columns[0], *filled], schema=ARROW)


def _some(random: np.random.Generator, texts: Any, size: int) -> Any:
    return texts.take(pa.array(random.integers(0, len(texts), size)))


def _names(random: np.random.Generator) -> pa.Array[Any]:
    return pa.array([random.bytes(int(size)).hex()[: int(size)] for size in random.integers(8, 23, _PHRASES)])


def _notes(random: np.random.Generator) -> pa.Array[Any]:
    """Texts of up to a hundred characters; one in ten has something that Dumpling escapes."""
    odd = ('say "yes" ', "a\\b ", "two\nlines ", "grün ")
    texts = []
    for number in range(_PHRASES):
        words = " ".join(random.bytes(4).hex() for _ in range(int(random.integers(1, 7))))
        texts.append((odd[number // 10 % len(odd)] if number % 10 == 0 else "") + words)
    return pa.array(texts)


def _header() -> bytes:
    return b",".join(b'"%s"' % name.encode() for name in ARROW.names) + b"\r\n"


def _lines(rows: pa.Table) -> bytes:
    """Rows as Dumpling writes them: text and dates within delimiters, numbers and NULL without."""
    cells = [_quoted(column) if _is_quoted(column.type) else column.cast(pa.string()) for column in rows.columns]
    written = [pc.fill_null(cell, NULL.decode()) for cell in cells]
    parts: list[Any] = [part for cell in written for part in (cell, ",")]
    lines: Any = pc.binary_join_element_wise(*parts[:-1], "\r\n", "").combine_chunks()
    offsets = np.frombuffer(lines.buffers()[1], np.int32)
    return bytes(lines.buffers()[2])[: offsets[len(lines)]]


def _is_quoted(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_timestamp(kind)


def _quoted(column: Any) -> Any:
    text = column.cast(pa.string())
    for byte, name in (("\\", "\\"), ('"', '"'), ("\n", "n")):
        text = pc.replace_substring(text, byte, f"\\{name}")
    return pc.binary_join_element_wise('"', text, '"', "")
