"""Makes table versions of the descriptions of columns that rows carry with them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from applier.changefeed.event import Bootstrap, Event, Image, RowChange
from applier.changefeed.table import Column, Index, TableName, TableVersion, fingerprint
from applier.decode.bounded_cache import Bounded
from applier.decode.values.decimal_scales import TextScales

_UNKNOWN = 1 << 30
"""A scale that no text has."""


@dataclass(slots=True)
class Description:
    """One description of a table's columns, and the version of the last row that had it.

    Attributes:
        name: The table.
        version: All that the description shows; decimals have no scale where only the text of their values shows it.
        number: Number of the version that the last row was written in; None before the first.
        scales: Those decimals, and the scales they have in that version.
    """

    name: TableName
    version: TableVersion
    number: int | None = None
    scales: dict[str, int] = field(default_factory=dict)

    def fits(self, row: Image) -> bool:
        """Whether a row is written in the same version as the last one. Quicker than looking for it."""
        for name, scale in self.scales.items():
            text = row.get(name)
            if text is not None and (
                type(text) is not str or (text[-scale - 1 : -scale] != "." if scale else "." in text)
            ):
                return False
        return self.number is not None


@dataclass(frozen=True, slots=True)
class Descriptions:
    """The table versions that were met or are known; one for each decoder."""

    _announced: Bounded[int, bool] = field(default_factory=Bounded)
    _scales: TextScales = field(default_factory=TextScales)

    def restart(self) -> None:
        """Announce all versions again."""
        self._announced.clear()
        self._scales.clear()

    def learn(self, version: TableVersion) -> None:
        """Make a version known, so that no Bootstrap for it is needed."""
        self._announced[version.version] = True

    def settle(self, description: Description, row: Image) -> Sequence[Bootstrap]:
        """Set `description.number` to the version that a row is written in; its Bootstrap if it was not known.

        Raises:
            DecodeError: A decimal is malformed.
        """
        names = tuple(description.scales)
        version = self._scales.version(description.version, names, row) if names else description.version
        for name in names:
            column = version.column(name)
            scale = None if column is None else column.type.scale
            description.scales[name] = _UNKNOWN if scale is None else scale
        description.number = version.version
        if version.version in self._announced:
            return ()
        self._announced[version.version] = True
        return (Bootstrap(version),)


def describe(
    name: TableName, columns: Sequence[Column], indexes: tuple[Index, ...], handle_key: tuple[str, ...]
) -> Description:
    """The description that rows give of their table. Its number stands for all of it, the table's name included."""
    number = fingerprint(msgspec.json.encode((name, columns, indexes, handle_key)))
    version = TableVersion(name, number, tuple(columns), indexes, handle_key)
    decimals = (column.name for column in columns if column.type.name == "decimal" and column.type.scale is None)
    return Description(name, version, scales=dict.fromkeys(decimals, _UNKNOWN))


class Announcer:
    """Puts a `Bootstrap` before the first row of each version."""

    def __init__(self) -> None:
        self._known: Bounded[tuple[TableName, int], bool] = Bounded()
        self._scales = TextScales()

    def learn(self, version: TableVersion) -> None:
        """No `Bootstrap` is needed for this one."""
        self._known[version.name, version.version] = True

    def knows(self, version: TableVersion) -> bool:
        """Whether no `Bootstrap` is needed for this one."""
        return (version.name, version.version) in self._known

    def events(self, version: TableVersion, text_decimals: Sequence[str], change: RowChange) -> Sequence[Event]:
        """The row change, with its version in front when it is new.

        Args:
            version: What the schema of the row says.
            text_decimals: Columns of decimals whose scale shows only in their text.
            change: The row change, which names the version.
        """
        if text_decimals:
            image = change.before if change.after is None else change.after
            version = self._scales.version(version, text_decimals, image or {})
            change = RowChange(change.name, version.version, change.commit_ts, change.op, change.before, change.after)
        if self.knows(version):
            return (change,)
        self.learn(version)
        return (Bootstrap(version), change)
