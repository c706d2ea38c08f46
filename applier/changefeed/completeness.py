"""Whether a table holds every row of its upstream table, and how it comes to do so again."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from applier.changefeed.filter import option
from applier.changefeed.message import Count
from applier.changefeed.position import FeedPosition
from applier.changefeed.table import TableName

Wholeness: TypeAlias = Literal["live", "incomplete", "parked"]
"""`live`: the table holds every row at its resolved ts. `incomplete`: rows arrived, but nothing proves that the earlier
rows are there. `parked`: the rows and the DDL since some point are not applied; the table shows its last true
snapshot."""

Cause: TypeAlias = Literal["", "include", "hand", "ddl", "row", "table", "lost", "load"]
"""Why a table is parked: `tables.include` leaves it out; a user parked it; a DDL or a row could not be applied; others
changed its Iceberg table; it lost rows that it should hold, so that only its whole history brings it back; or it is
loaded from an export."""


@dataclass(frozen=True, slots=True)
class Completeness:
    """What is known about the completeness of one table. No message states it, so evidence is kept from the start.

    Attributes:
        state: See `Wholeness`.
        since: Commit ts up to which a parked table is whole; 0 in offset order.
        reason: Why, as a clause that follows a colon.
        cause: See `Cause`; "" unless the table is parked.
        position: Where a parked table left the others; None where nothing shows it, so that the feed cannot bring the
            table back.
        lacked: Why the table was incomplete when it was parked; "" if it was whole.
        partners: Tables that exchanged rows with it while it was parked: they resume together.
        is_due: The table resumes as soon as `run` comes to it.
        origin: Of a table that is being brought back, the `position` from which it began.
    """

    state: Wholeness
    since: Count = 0
    reason: str = ""
    cause: Cause = ""
    position: FeedPosition | None = None
    lacked: str = ""
    partners: tuple[TableName, ...] = ()
    is_due: bool = False
    origin: FeedPosition | None = None

    @property
    def is_live(self) -> bool:
        """True if readers may take the table for whole."""
        return self.state == "live"

    @property
    def is_parked(self) -> bool:
        """True if its rows and DDL are not applied."""
        return self.state == "parked"

    @property
    def resumed(self) -> Completeness:
        """What the table is once it has all that it missed while it was parked."""
        return Completeness("incomplete", reason=self.lacked) if self.lacked else LIVE

    @property
    def word(self) -> str:
        """The state in one word or two, for people."""
        if self.is_parked and self.cause == "load" and self.reason in (LOADING, CATCHING_UP):
            return "catching up" if self.is_due else "loading"
        return self.state

    def sentence(self, name: TableName) -> str:
        """What is known, for people."""
        since = f" since resolved ts {self.since}" if self.is_parked and self.since else ""
        resumes = " and resumes" if self.is_due and self.word == "parked" else ""
        return f"Table {name} is {self.word}{since}{resumes}: {self.reason}."

    def way_out(self, name: TableName, config: str) -> str:
        """The command that makes the table live again; `config` is the path of the configuration file."""
        adopt = f"applier adopt -c {config} --tables {option([name])} --why TEXT"
        load = f"applier load -c {config} --from DIR --tables {option([name])}"
        by_hand = f"export it with `tiup dumpling -o DIR` and run `{load}`"
        if self.is_due:
            return f"`applier run -c {config}` brings it back."
        if self.cause == "load":
            return f"run `{load}` again, which goes on."
        if self.cause == "include" and self.reason == LEFT_OUT:
            forget = f"applier forget -c {config} --tables {option([name])}"
            return f"admit it in tables.include again, and `applier run -c {config}` resumes it; or run `{forget}`."
        if self.is_parked and self.position is None:
            return f"{by_hand}; or leave it out in tables.include."
        if self.reason == LETTERS:
            letters = f"applier backfill -c {config} --dead-letters"
            return f"run `{letters}`, or `applier dead-letters discard -c {config} --all --why TEXT`."
        if self.reason.startswith(SKIPPED):
            return f"bring the Iceberg table to what its upstream is, then run `{adopt}`."
        resume = f"run `applier resume -c {config} --tables {option([name, *self.partners])}`"
        if self.cause == "table":
            return f"restore it and start `applier run -c {config}` again; or {resume}, which may build it anew."
        if self.is_parked:
            is_mended = self.cause in ("ddl", "row")
            return f"mend what the reason names, then {resume}; or {by_hand}." if is_mended else f"{resume}."
        return f"{resume} if the feed still holds its CREATE TABLE; or {by_hand}."


LIVE = Completeness("live")
"""A table that the feed created: no row of it can be older than what the feed holds."""

NO_CREATE = "the feed does not hold its CREATE TABLE, so earlier rows may be missing"
UNMET = "its CREATE TABLE was supplied, and no row of it has come, so earlier rows may be missing"
UNRECORDED = "an older version wrote it, which kept no record of what the table may lack"
LEFT_OUT = "left out by tables.include"
LOADING = "rows of an export are still to be loaded"
CATCHING_UP = "it was loaded from an export, and what the feed has changed since is applied"
LEFT_OUT_AT_FIRST = "tables.include left it out until now"
NOT_FOUND = "the feed changes rows that the table does not hold"
SKIPPED = "a DDL was skipped"
LETTERS = "a message that may hold a row of it was set aside as a dead letter"


def furthest_back(resolved_ts: int, tables: Iterable[Completeness]) -> int:
    """The resolved ts of the changefeed, or that of the parked table that is furthest behind it."""
    places = [known.position.ts for known in tables if known.is_parked and known.position is not None]
    return min([resolved_ts, *places])
