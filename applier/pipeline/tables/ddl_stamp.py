"""What the commits of DDL say about themselves, so that a restart neither makes them again nor leaves one half made."""

from __future__ import annotations

import hashlib

from applier.changefeed.event import SchemaChange
from applier.sink.commit.stamp import Stamp

DDL = "applier.ddl"
"""Entry of the stamp of a commit that a DDL made: its commit ts and text."""

DROPPED_AT = "applier.dropped-at"
"""Table property of a table that was dropped upstream and is kept: commit ts of the DROP."""

DROPPED_VERSION = "applier.dropped-version"
"""The same of its last `TableVersion.version`: RECOVER TABLE brings it back, also after a restart."""

TRUNCATED_AT = "applier.truncated-at"
"""Entry of the stamp of a TRUNCATE: its commit ts. FLASHBACK TABLE brings back the rows that it removed."""

TRUNCATED_VERSION = "applier.truncated-version"
"""The same of the `TableVersion.version` before it: the columns of those rows."""

TRUNCATED_STATE = "applier.truncated-state"
"""The same of the completeness before it: a TRUNCATE makes its table whole, and not the rows that it removed."""

_SHOWN = 300


def mark(change: SchemaChange) -> str:
    """Identity of a DDL: its commit ts and a hash of its text."""
    return f"{change.commit_ts} {hashlib.sha256(change.sql.encode()).hexdigest()[:16]}"


def is_in(known: Stamp | None, change: SchemaChange) -> bool:
    """True if the newest stamp of a table says that the table has a DDL: that made it, or rows from behind it came.

    The resolved ts is 0 in a feed in offset order.
    """
    if known is None:
        return False
    is_newest = known.resolved_ts in (0, change.commit_ts) and known.extra.get(DDL) == mark(change)
    return is_newest or known.resolved_ts > change.commit_ts


def shown(sql: str) -> str:
    """A statement in an error: on one line, cut to a readable length."""
    line = " ".join(sql.split())
    return line if len(line) <= _SHOWN else f"{line[:_SHOWN]}…"
