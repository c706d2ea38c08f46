"""Makes table versions of the descriptions of columns that rows or their schemas carry, and announces each once.

Some schemas say no more than "decimal". TiDB's text of a decimal always has all digits of its scale, so a row shows
what its schema does not. A NULL shows nothing and fits any scale seen before, so that it makes no version of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import msgspec

from applier.changefeed.event import Bootstrap, Event, Image, RowChange
from applier.changefeed.table import Column, Index, TableName, TableVersion, fingerprint
from applier.changefeed.types import INTEGERS
from applier.decode.bounded_cache import Bounded, BoundedLists
from applier.errors import DecodeError

_Scales: TypeAlias = tuple[int | None, ...]

MAX_SCALE = 30
"""Digits after the point that TiDB allows."""

HIDDEN = "_V$_"
"""Columns that TiDB makes for expression indexes begin so; no row has them."""

SIGNED = frozenset({*INTEGERS, "float", "double", "decimal"})
"""Types that may be unsigned; of others the word says nothing."""

_UNKNOWN = 1 << 30
"""A scale that no text has."""


def has_scale(text: object, scale: int) -> bool:
    """Whether a value is the text of a decimal with so many digits after the point."""
    return isinstance(text, str) and (text[-scale - 1 : -scale] == "." if scale else "." not in text)


@dataclass(slots=True)
class Description:
    """One description of a table's columns, and the version of the last row that had it.

    Attributes:
        version: All that the description shows; decimals have no scale where only the text of their values shows it.
        number: Number of the version that the last row was written in; None before the first.
        scales: Those decimals, and the scales they have in that version.
    """

    version: TableVersion
    number: int | None = None
    scales: dict[str, int] = field(default_factory=dict)

    @property
    def settled(self) -> TableVersion:
        """The version that the last row was written in."""
        return replace(self.version, version=self.number or 0)

    def fits(self, row: Image) -> bool:
        """Whether a row is written in the same version as the last one. Quicker than looking for it."""
        for name, scale in self.scales.items():
            text = row.get(name)
            if text is not None and not has_scale(text, scale):
                return False
        return self.number is not None


def describe(
    name: TableName,
    columns: Sequence[Column],
    indexes: tuple[Index, ...],
    handle_key: tuple[str, ...],
    *,
    keys_only: bool = False,
) -> Description:
    """The description that rows give of their table. Its number stands for all of it, the table's name included."""
    mark = ("keys",) if keys_only else ()
    number = fingerprint(msgspec.json.encode((tuple(name), columns, indexes, handle_key, *mark)))
    version = TableVersion(name, number, tuple(columns), indexes, handle_key, keys_only=keys_only)
    decimals = (column.name for column in columns if column.type.name == "decimal" and column.type.scale is None)
    return Description(version, scales=dict.fromkeys(decimals, _UNKNOWN))


class Announcer:
    """Puts a `Bootstrap` before the first row of each version; one for each pass of a decoder."""

    def __init__(self) -> None:
        self._known: Bounded[tuple[TableName, int], tuple[tuple[int, int], ...]] = Bounded()
        self._scaled: BoundedLists[tuple[TableName, int], tuple[_Scales, TableVersion]] = BoundedLists()

    def learn(self, version: TableVersion) -> None:
        """Make a version known, so that no `Bootstrap` for it is needed."""
        self._known[version.name, version.version] = version.fingerprints

    def knows(self, version: TableVersion) -> bool:
        """Whether no `Bootstrap` is needed for this one; one that was kept without its schemas is kept again."""
        return self._known.get((version.name, version.version)) == version.fingerprints

    def settle(self, description: Description, row: Image) -> Sequence[Bootstrap]:
        """Set `description.number` to the version that a row is written in; its Bootstrap if it was not known.

        Raises:
            DecodeError: A decimal is malformed.
        """
        version = self._version(description.version, tuple(description.scales), row)
        for name in description.scales:
            column = version.column(name)
            scale = None if column is None else column.type.scale
            description.scales[name] = _UNKNOWN if scale is None else scale
        description.number = version.version
        return self._bootstrap(version)

    def events(self, version: TableVersion, text_decimals: Sequence[str], change: RowChange) -> Sequence[Event]:
        """A row change that names a version, with that version in front when it is new.

        `text_decimals` are the columns of decimals whose scale shows only in their text: the change then comes to name
        the version with those scales.

        Raises:
            DecodeError: A decimal is malformed.
        """
        if text_decimals:
            image = change.before if change.after is None else change.after
            version = self._version(version, text_decimals, image or {})
            change = RowChange(change.name, version.version, change.commit_ts, change.op, change.before, change.after)
        return (change,) if self.knows(version) else (*self._bootstrap(version), change)

    def _bootstrap(self, version: TableVersion) -> Sequence[Bootstrap]:
        if self.knows(version):
            return ()
        self.learn(version)
        return (Bootstrap(version),)

    def _version(self, version: TableVersion, decimals: Sequence[str], image: Image) -> TableVersion:
        """The version with the scales that a row shows, made once for all rows that they fit."""
        if not decimals:
            return version
        scales = tuple(_scale(name, image.get(name)) for name in decimals)
        place = version.name, version.version
        for seen, made in self._scaled.get(place, ()):
            if all(scale is None or scale == other for scale, other in zip(scales, seen, strict=True)):
                return made
        by_name = dict(zip(decimals, scales, strict=True))
        number = fingerprint(msgspec.json.encode([version.version, sorted(by_name.items())]))
        columns = tuple(_scaled(column, by_name) for column in version.columns)
        scaled = replace(version, version=number, columns=columns)
        self._scaled.keep(place, (scales, scaled))
        return scaled


def _scale(name: str, text: object) -> int | None:
    if text is None:
        return None
    digits = len(text.partition(".")[2]) if isinstance(text, str) else MAX_SCALE + 1
    if digits > MAX_SCALE:
        raise DecodeError(f"Its decimal column {name} holds no text with at most {MAX_SCALE} digits after the point.")
    return digits


def _scaled(column: Column, scales: dict[str, int | None]) -> Column:
    return replace(column, type=replace(column.type, scale=scales[column.name])) if column.name in scales else column
