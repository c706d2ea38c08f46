"""Whether a table holds every row of its upstream table, and since when it may not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from applier.changefeed.message import TopicPartition
from applier.changefeed.table import TableName

Wholeness: TypeAlias = Literal["live", "incomplete", "parked"]
"""`live`: the table holds every row at its resolved ts. `incomplete`: rows arrived, but nothing proves that the earlier
rows are there. `parked`: the rows since some point are not applied; the table shows its last true snapshot."""


@dataclass(frozen=True, slots=True)
class Completeness:
    """What is known about the completeness of one table. No message states it, so evidence is kept from the start.

    Attributes:
        state: See `Wholeness`.
        since: Commit ts up to which the table is whole, for a parked table; 0 where it never was, or in offset order.
        offsets: The same in offset order, as the next offset of each partition.
        reason: Why, as a clause that follows a colon.
        missed_ddl: A DDL of a parked table was passed over, so its columns may be other ones by now.
    """

    state: Wholeness
    since: int = 0
    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    reason: str = ""
    missed_ddl: bool = False

    @property
    def is_live(self) -> bool:
        """True if readers may take the table for whole."""
        return self.state == "live"

    @property
    def bound(self) -> str:
        """The bound for `applier backfill --from` at which the missing rows begin."""
        if self.state != "parked" or self.missed_ddl:
            return "beginning"
        if self.offsets:
            return ",".join(f"{place.topic}:{place.partition}:{at}" for place, at in sorted(self.offsets.items()))
        return str(self.since) if self.since else "beginning"

    def sentence(self, name: TableName) -> str:
        """What is known, for people."""
        since = f" since resolved ts {self.since}" if self.state == "parked" and self.since else ""
        return f"Table {name} is {self.state}{since}: {self.reason}."

    def way_out(self, name: TableName) -> str:
        """How the table becomes live again."""
        repair = f"applier backfill --from {self.bound} --repair --tables '{name}'"
        first = "drop the Iceberg table, whose columns are out of date, then run " if self.missed_ddl else "run "
        until = "" if self.state == "parked" and not self.missed_ddl else " if the feed still holds its CREATE TABLE"
        return f"{first}`{repair}`{until}; or load it by other means and run `applier adopt --tables '{name}' --why …`."


LIVE = Completeness("live")
"""A table that the feed created: no row of it can be older than what the feed holds."""

NO_CREATE = "the feed does not hold its CREATE TABLE, so earlier rows may be missing"
UNMET = "its CREATE TABLE was supplied, and no row of it has come, so earlier rows may be missing"
UNRECORDED = "an older version wrote it, which kept no record of what the table may lack"
LEFT_OUT = "tables.include left it out"
NOT_FOUND = "the feed changes rows that the table does not hold"
