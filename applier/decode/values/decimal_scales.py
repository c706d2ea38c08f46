"""Adds the scales that the text of a row shows to a table version whose decimals come as text.

Some schemas say no more than "decimal". TiDB's text of a decimal always has all digits of its scale, so a row shows
what its schema does not. A NULL shows nothing and fits any scale seen before, so that it makes no version of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias

import msgspec

from applier.changefeed.event import Image
from applier.changefeed.table import Column, TableName, TableVersion, fingerprint
from applier.decode.bounded_cache import BoundedLists
from applier.errors import DecodeError

_Scales: TypeAlias = tuple[int | None, ...]

MAX_SCALE = 30
"""Digits after the point that TiDB allows."""


class TextScales:
    """Versions by the scales seen, each built once."""

    def __init__(self) -> None:
        self._versions: BoundedLists[tuple[TableName, int], tuple[_Scales, TableVersion]] = BoundedLists()

    def clear(self) -> None:
        """Forget the scales seen."""
        self._versions.clear()

    def version(self, version: TableVersion, names: Sequence[str], image: Image) -> TableVersion:
        """The version of a row.

        Args:
            version: What its schema says.
            names: Columns whose decimals are text.
            image: The row.

        Raises:
            DecodeError: A value has more digits after the point than TiDB allows, or is no text.
        """
        scales = tuple(_scale(name, image.get(name)) for name in names)
        place = version.name, version.version
        for seen, made in self._versions.get(place, ()):
            if _fits(scales, seen):
                return made
        scaled = _with_scales(version, dict(zip(names, scales, strict=True)))
        self._versions.keep(place, (scales, scaled))
        return scaled


def _fits(scales: _Scales, seen: _Scales) -> bool:
    return all(scale is None or scale == other for scale, other in zip(scales, seen, strict=True))


def _scale(name: str, text: object) -> int | None:
    if text is None:
        return None
    digits = len(text.partition(".")[2]) if isinstance(text, str) else MAX_SCALE + 1
    if digits > MAX_SCALE:
        msg = f"Its decimal column {name} holds no text with at most {MAX_SCALE} digits after the point."
        raise DecodeError(msg)
    return digits


def _with_scales(version: TableVersion, scales: dict[str, int | None]) -> TableVersion:
    number = fingerprint(msgspec.json.encode([version.version, sorted(scales.items())]))
    columns = tuple(_scaled(column, scales) for column in version.columns)
    return replace(version, version=number, columns=columns)


def _scaled(column: Column, scales: dict[str, int | None]) -> Column:
    return replace(column, type=replace(column.type, scale=scales[column.name])) if column.name in scales else column
