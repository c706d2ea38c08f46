"""Cuts a file of an export into bounded blocks of whole rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from applier.decode.dump.csv_form import CsvForm
from applier.decode.dump.export import File
from applier.decode.dump.sql_rows import without_prologue

BLOCK_BYTES = 4 << 20
"""Bytes that are read before rows are looked for in them."""


def blocks(stream: Any, file: File, form: CsvForm) -> Iterator[bytes]:
    """Whole rows of a CSV or SQL file, without the header; the stream begins at `file.start`.

    Raises:
        ValueError: It ends within a row.
    """
    left, begins, last = b"", not file.start, b""
    for read in _part(stream, file):
        data, last = left + read, (last + read[-2:])[-2:]
        if begins:
            data, begins = without_head(data, file, form)
        cut = 0 if begins else end_of_rows(data, form)
        if cut:
            yield data[:cut]
        left = data[cut:]
    if left or (file.kind == "sql" and file.end is None and last not in (b"", b";\n")):
        raise ValueError("its header has no end" if begins else "it ends within a row: it is not whole")


def without_head(data: bytes, file: File, form: CsvForm) -> tuple[bytes, bool]:
    """The beginning of a CSV or SQL file from its rows on, and whether these have not come yet."""
    if file.kind == "sql":
        data = without_prologue(data)
        return data, b"\n" not in data
    end = data.find(b"\n") + 1
    return data[end:] if form.has_header else data, form.has_header and not end


def parts(file: File, form: CsvForm, size: int) -> tuple[File, ...]:
    """A file in parts of about some bytes, which can be read at the same time.

    Only where each end of a line ends a row can a part begin in the middle of a file: neither in what is compressed nor
    where text may hold ends of lines.
    """
    if file.kind == "parquet" or file.packed or not form.escapes or file.size <= size:
        return (file,)
    starts = range(0, file.size, size)
    return tuple(file._replace(start=start, end=start + size if start + size < file.size else None) for start in starts)


def _part(stream: Any, file: File) -> Iterator[bytes]:
    """The lines that begin in the part."""
    at, begins = file.start, not file.start
    if not begins:
        # The line that ends before the part tells that one begins with it.
        at -= 1
        stream.seek(at)
    while read := stream.read(BLOCK_BYTES):
        start = 0 if begins else read.find(b"\n") + 1
        begins = begins or start > 0
        # A line begins at the end of the part, or goes beyond it.
        end = len(read) if file.end is None else read.find(b"\n", max(0, file.end - 1 - at)) + 1
        at += len(read)
        is_last = file.end is not None and end > 0
        if begins and start < (end if is_last else len(read)):
            yield read[start : end if is_last else len(read)]
        if is_last:
            return


def end_of_rows(data: bytes, form: CsvForm) -> int:
    """Where the last whole row of some data ends; 0 without one."""
    cut = data.rfind(b"\n")
    if form.escapes or not form.delimiter:
        # The end of a line within text is escaped.
        return cut + 1
    # A delimiter within text is there twice, so an even number of them lies before the end of a row.
    count = data.count(form.delimiter, 0, max(cut, 0))
    while cut >= 0 and count % 2:
        before = data.rfind(b"\n", 0, cut)
        count -= data.count(form.delimiter, max(before, 0), cut)
        cut = before
    return cut + 1
