"""The table of changes that a table may have beside it: a row for each image of each change, which stays for good or
for some days.

It has the columns of its table, and those that say which change an image is of. At one commit ts a key has one row
before and one row behind at the most, so that these, the key and the image name an image, also where it is sent again.
"""

from __future__ import annotations

from dataclasses import replace

from applier.changefeed.table import Column, ColumnType, TableName, TableVersion, fold
from applier.changefeed.ts import from_unix_ms, unix_ms

SUFFIX = "__changes"
"""How the name of a table of changes ends, upstream's and that of the Iceberg table."""

COMMIT_TS, COMMIT_TIME, OP, IMAGE = "_commit_ts", "_commit_time", "_op", "_image"

OWN = (
    Column(COMMIT_TS, ColumnType("bigint"), nullable=False),
    Column(COMMIT_TIME, ColumnType("instant")),
    Column(OP, ColumnType("varchar")),
    Column(IMAGE, ColumnType("varchar"), nullable=False),
)
"""The columns that it has beside those of its table."""

KEPT_FROM = "applier-changes-kept-from"
"""Property of a table: the commit ts above which its changes are kept without a gap; "" while they are not."""

COMPLETE_FROM = "applier-changes-from"
"""Table property: the commit ts above which it has every change of its table; absent where it has all of them."""

_DAY_MS = 86_400_000


def changes_of(name: TableName) -> TableName:
    """The name of the table of changes."""
    return TableName(name.database, name.table + SUFFIX)


def owner_of(name: TableName) -> TableName | None:
    """The table that one of this name would hold the changes of; None if none would."""
    stem = name.table[: -len(SUFFIX)]
    return TableName(name.database, stem) if stem and name.folded[1].endswith(SUFFIX) else None


def changes_version(version: TableVersion) -> TableVersion:
    """The columns of the table of changes of a table with a key."""
    return replace(
        version,
        name=changes_of(version.name),
        columns=(*version.columns, *OWN),
        indexes=(),
        handle_key=(COMMIT_TS, *version.key, IMAGE),
    )


def first_day(resolved_ts: int, days: int) -> int:
    """The first day, in days since 1970 in UTC, whose changes stay at a resolved ts, where they are kept for `days`."""
    return unix_ms(resolved_ts) // _DAY_MS - days


def before(day: int) -> int:
    """The last commit ts before a day, in days since 1970 in UTC: changes of that day and of later ones lie above."""
    return from_unix_ms(day * _DAY_MS) - 1


def taken(version: TableVersion) -> list[str]:
    """Columns of a table that have the names of those of its changes."""
    own = {column.name for column in OWN}
    return [column.name for column in version.columns if fold(column.name) in own]
