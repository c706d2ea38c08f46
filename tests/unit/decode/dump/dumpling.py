"""A small writer of exports, by the rules of Dumpling.

Ported from `dumpling/export/sql_type.go` (escapeBackslashCSV, escapeBackslashSQL, WriteToBuffer…) and `writer_util.go`
of pingcap/tidb: text and bytes stand within delimiters, numbers and NULL do not, and nothing else is changed.
"""

from __future__ import annotations

import base64
import gzip
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path

import lz4.frame
import zstandard

from applier.decode.dump.csv_form import CsvForm

METADATA = """Started dump at: 2026-11-23 11:47:05
SHOW MASTER STATUS:
\tLog: tidb-binlog
\tPos: 470606910897520641
\tGTID:

Finished dump at: 2026-11-23 11:47:05
"""

DECLARED = """CREATE TABLE `t` (
  `id` bigint NOT NULL,
  `name` varchar(200) DEFAULT NULL,
  `body` blob DEFAULT NULL,
  `amount` decimal(12,2) DEFAULT NULL,
  PRIMARY KEY (`id`)
);
"""

COLUMNS = ("id", "name", "body", "amount")

Cell = int | Decimal | str | bytes | None
"""An int or a Decimal stands for a number, whose text it is."""

PACK: Mapping[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".zst": zstandard.compress,
    ".lz4": lz4.frame.compress,
}

_BINARY: Mapping[str | None, Callable[[bytes], bytes]] = {
    "hex": lambda data: data.hex().encode(),
    "base64": base64.b64encode,
}


def csv(rows: Sequence[Sequence[Cell]], form: CsvForm, names: Sequence[str] = COLUMNS, end: bytes = b"\r\n") -> bytes:
    """A CSV file."""
    lines = [[_quoted(name.encode(), form) for name in names]] if form.has_header else []
    lines += [[_csv_cell(cell, form) for cell in row] for row in rows]
    return b"".join(form.separator.join(line) + end for line in lines)


def sql(rows: Sequence[Sequence[Cell]], *, escapes: bool, each: int = 3, columns: str = "") -> bytes:
    """An SQL file, with some rows in each statement."""
    text = b"/*!40014 SET FOREIGN_KEY_CHECKS=0*/;\n/*!40101 SET NAMES binary*/;\n"
    for start in range(0, len(rows), each):
        tuples = [
            b"(" + b",".join(_sql_cell(cell, escapes=escapes) for cell in row) + b")" for row in rows[start:][:each]
        ]
        text += f"INSERT INTO `t` {columns}VALUES\n".encode() + b",\n".join(tuples) + b";\n"
    return text


def write(folder: Path, files: Mapping[str, bytes], metadata: str | None = METADATA, declared: str = DECLARED) -> str:
    """An export of one table; its address."""
    folder.mkdir(parents=True, exist_ok=True)
    if metadata is not None:
        (folder / "metadata").write_text(metadata)
    if declared:
        (folder / "d.t-schema.sql").write_text(declared)
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return str(folder)


def _csv_cell(cell: Cell, form: CsvForm) -> bytes:
    if cell is None:
        return form.null
    if isinstance(cell, int | Decimal):
        return str(cell).encode()
    data = cell.encode() if isinstance(cell, str) else _BINARY.get(form.binary, bytes)(cell)
    return _quoted(data, form)


def _quoted(data: bytes, form: CsvForm) -> bytes:
    if form.escapes:
        first = (form.delimiter or form.separator)[:1]
        escapes = {b"\0": b"0", b"\r": b"r", b"\n": b"n", b"\\": b"\\", first: first}
        data = b"".join(b"\\" + escapes[one] if (one := bytes([byte])) in escapes else one for byte in data)
    elif form.delimiter:
        data = data.replace(form.delimiter, form.delimiter * 2)
    return form.delimiter + data + form.delimiter


def _sql_cell(cell: Cell, *, escapes: bool) -> bytes:
    if cell is None:
        return b"NULL"
    if isinstance(cell, int | Decimal):
        return str(cell).encode()
    if isinstance(cell, bytes):
        return b"x'" + cell.hex().encode() + b"'"
    data = cell.encode()
    if escapes:
        names = {0: b"0", 10: b"n", 13: b"r", 92: b"\\", 39: b"'", 34: b'"', 26: b"Z"}
        return b"'" + b"".join(b"\\" + names[byte] if byte in names else bytes([byte]) for byte in data) + b"'"
    return b"'" + data.replace(b"'", b"''") + b"'"
