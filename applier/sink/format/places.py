"""Where new files of a table belong, by the rules of Iceberg's own location providers."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any
from urllib.parse import quote_plus

import mmh3

from applier.errors import TableMismatch
from applier.sink.format.partition_spec import SpecField
from applier.sink.format.types import TypeJson

_CUSTOM = "write.location-provider.impl"
"""A Java class that places files."""

_DATA = "write.data.path"

_HASH_BITS = 20

_ZEROS = re.compile(r"(\.0+|(?<=[1-9])0+)(?=\+|$)")
"""Zeros at the end of a second."""


def place(table: str, location: str, properties: Mapping[str, str], partition: str, name: str) -> str:
    """The location of a new file of some name.

    Args:
        table: The table, for messages.
        location: Its root.
        properties: Its properties.
        partition: The folder of the partition, as `partition_folder` names it; "" for none.
        name: The name, which no other file has.

    Raises:
        TableMismatch: A Java class places the files of the table, or a property that Iceberg knows no more.
    """
    is_hashed = properties.get("write.object-storage.enabled", "").lower() == "true"
    _refuse_strange(table, properties, is_hashed=is_hashed)
    root = location.rstrip("/")
    data = properties.get(_DATA, f"{root}/data").rstrip("/")
    file = f"{partition}/{name}" if partition else name
    if not is_hashed:
        return f"{data}/{file}"
    has_folders = properties.get("write.object-storage.partitioned-paths", "true").lower() == "true"
    file = file if has_folders else name
    if not data.startswith(root):
        # Other tables may have the same folder.
        return "/".join((data, _hashed(file), *root.split("/")[-2:], file))
    return f"{data}/{_hashed(file)}{'/' if has_folders else '-'}{file}"


def _refuse_strange(table: str, properties: Mapping[str, str], *, is_hashed: bool) -> None:
    if _CUSTOM in properties:
        what = f"Files of table {table} are placed by the Java class {properties[_CUSTOM]}, which applier does not run"
        raise TableMismatch(what, f"Remove the table property {_CUSTOM}.")
    former = ("write.folder-storage.path", *(["write.object-storage.path"] if is_hashed else []))
    for key in former:
        if key in properties and _DATA not in properties:
            what = f"Table {table} says by {key} where its files belong, which Iceberg does not read any more"
            raise TableMismatch(what, f"Set the table property {_DATA} instead, and remove {key}.")


def partition_folder(
    names: Sequence[str], spec: Sequence[SpecField], types: Mapping[str, TypeJson], values: Sequence[Any]
) -> str:
    """The folder of a partition.

    Args:
        names: Names of the partition fields.
        spec: The partition fields.
        types: Types of the columns.
        values: The partition, as single-value JSON.
    """
    shown = [_shown(value, field.transform, types[field.column]) for field, value in zip(spec, values, strict=True)]
    return "/".join(f"{_escaped(name)}={_escaped(value)}" for name, value in zip(names, shown, strict=True))


def _shown(value: Any, transform: str, kind: TypeJson) -> str:
    """A partition value as people read it."""
    if value is None:
        return "null"
    match transform:
        case "year":
            return f"{1970 + value:04}"
        case "month":
            return f"{1970 + value // 12:04}-{value % 12 + 1:02}"
        case "hour":
            return f"{date.fromordinal(date(1970, 1, 1).toordinal() + value // 24)}-{value % 24:02}"
        case "identity" | "truncate" if str(kind).startswith(("binary", "fixed")):
            return base64.b64encode(bytes.fromhex(value)).decode()
        case "identity" if str(kind).startswith("time"):
            return _ZEROS.sub("", value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _escaped(text: str) -> str:
    """As Java's `URLEncoder` writes it."""
    return quote_plus(text, safe="*").replace("~", "%7E")


def _hashed(name: str) -> str:
    """Folders that spread files evenly over the prefixes of an object storage."""
    bits = f"{mmh3.hash(name, signed=False) % (1 << _HASH_BITS):0{_HASH_BITS}b}"
    return "/".join((bits[:4], bits[4:8], bits[8:12], bits[12:]))
