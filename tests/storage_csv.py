r"""Rows of a recorded changefeed as TiCDC's storage sink writes them in CSV, with the columns for its schema files.

The form is that of TiCDC's documentation ("TiCDC CSV Protocol") and of `pkg/sink/codec/csv/csv_message.go` of
pingcap/tiflow: numbers and bits bare, NULL as `\N`, all else within quotes, which are doubled within; enums and sets by
their labels, bytes in base64; an update as its old and its new values where the sink has output-old-value. The rows
come from a recording in Canal-JSON with content-compatible, which names the members of enums and sets.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from dataclasses import replace
from typing import Any

from tests.storage_sink import Recorded

_BARE = ("tinyint", "smallint", "mediumint", "int", "bigint", "year", "float", "double", "bit")
_TYPE = re.compile(r"(?P<name>[a-z]+)(?:\((?P<size>.*)\))?(?P<rest>[a-z ]*)", re.DOTALL)


def in_csv(recorded: Recorded, *, old_values: bool) -> Recorded:
    """The same rows in CSV."""
    rows = dict[tuple[str, str], list[tuple[int, bytes]]]()
    columns = dict[tuple[tuple[str, str], int], tuple[dict[str, str], ...]]()
    for name, lines in recorded.rows.items():
        rows[name] = [(ts, b"\r\n".join(_lines(json.loads(line), ts, old_values=old_values))) for ts, line in lines]
        for ts, line in lines:
            columns.setdefault((name, recorded.version(name, ts)), _columns(json.loads(line)))
    return replace(recorded, rows=rows, columns=columns)


def _columns(value: Any) -> tuple[dict[str, str], ...]:
    return tuple(_column(name, value["mysqlType"][name], is_key=name in value["pkNames"]) for name in value["data"][0])


def _column(name: str, text: str, *, is_key: bool) -> dict[str, str]:
    kind, size, rest = _parts(text)
    shown = {"ColumnName ": name, "ColumnType": kind.upper() + (" UNSIGNED" if "unsigned" in rest else "")}
    shown |= {"ColumnIsPk": "true", "ColumnNullable": "false"} if is_key else {}
    if kind in ("time", "datetime", "timestamp"):
        return shown | ({"ColumnScale": size} if size else {})
    if kind in ("enum", "set") or not size:
        return shown
    precision, _, scale = size.partition(",")
    return shown | {"ColumnPrecision": precision} | ({"ColumnScale": scale} if scale else {})


def _lines(value: Any, ts: int, *, old_values: bool) -> list[bytes]:
    row, op = value["data"][0], value["type"][0]
    if not old_values:
        return [_line(value, op, [ts], row)]
    if op != "U":
        return [_line(value, op, [ts, "false"], row)]
    old = {**row, **value["old"][0]}
    return [_line(value, "D", [ts, "true"], old), _line(value, "I", [ts, "true"], row)]


def _line(value: Any, op: str, head: list[Any], row: dict[str, str | None]) -> bytes:
    fields = [_quoted(text) for text in (op, value["table"], value["database"])] + [str(one) for one in head]
    fields += [_field(text, value["mysqlType"][name]) for name, text in row.items()]
    return ",".join(fields).encode()


def _field(text: str | None, kind: str) -> str:
    name, size, _ = _parts(kind)
    if text is None:
        return "\\N"
    if name in _BARE:
        return text
    if name in ("enum", "set"):
        labels = [label.replace("''", "'") for label in re.findall(r"'((?:[^']|'')*)'", size)]
        number = int(text)
        if name == "set":
            return _quoted(",".join(label for bit, label in enumerate(labels) if number >> bit & 1))
        return _quoted(labels[number - 1] if number else "")
    return _quoted(b64encode(text.encode("latin-1")).decode() if "blob" in name or "binary" in name else text)


def _quoted(text: str) -> str:
    doubled = text.replace('"', '""')
    return f'"{doubled}"'


def _parts(kind: str) -> tuple[str, str, str]:
    match = _TYPE.fullmatch(kind)
    assert match, kind
    return match["name"], match["size"] or "", match["rest"]
