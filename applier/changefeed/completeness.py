"""Whether a table holds every row of its upstream table, and why it does not."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Literal, TypeAlias

from applier.changefeed.message import Count
from applier.changefeed.position import FeedPosition
from applier.changefeed.table import TableName

Wholeness: TypeAlias = Literal["live", "incomplete", "parked"]
"""`docs/operations.md` explains each, in its table of states."""


class Why(StrEnum):
    """Why a table is live, incomplete or parked. `applier.wording` has the words."""

    # live
    WHOLE = "whole"
    ADOPTED = "adopted"
    LOADED_BEFORE = "loaded-before"
    REPAIRED = "repaired"
    # incomplete
    NO_CREATE = "no-create"
    UNMET = "unmet"
    UNRECORDED = "unrecorded"
    NOT_FOUND = "not-found"
    NOT_READ = "not-read"
    NOT_RENAMED = "not-renamed"
    SKIPPED = "skipped"
    LETTERS = "letters"
    LETTERS_LOST = "letters-lost"
    LATE = "late"
    EXCHANGED = "exchanged"
    CAME_BACK = "came-back"
    MADE_WHILE_PARKED = "made-while-parked"
    # parked
    LEFT_OUT = "left-out"
    LEFT_OUT_BEFORE = "left-out-before"
    BY_HAND = "by-hand"
    REBUILT = "rebuilt"
    DDL = "ddl"
    ROW = "row"
    TABLE = "table"
    LOST = "lost"
    LOADING = "loading"
    CATCHING_UP = "catching-up"

    @property
    def state(self) -> Wholeness:
        """What the table is."""
        return "live" if self in _LIVE else "parked" if self in _PARKED else "incomplete"

    @property
    def is_tried_again(self) -> bool:
        """Whether a start may find the cause gone: the table resumes then. A command brings the others back."""
        return self in (Why.LEFT_OUT, Why.LEFT_OUT_BEFORE, Why.DDL, Why.ROW, Why.TABLE)

    @property
    def is_error(self) -> bool:
        """Whether something could not be applied."""
        return self in (Why.DDL, Why.ROW, Why.TABLE, Why.LOST)

    @property
    def is_loaded(self) -> bool:
        """Whether an export is loaded into the table."""
        return self in (Why.LOADING, Why.CATCHING_UP)

    @property
    def is_left_out(self) -> bool:
        """Whether `tables.include` decides."""
        return self in (Why.LEFT_OUT, Why.LEFT_OUT_BEFORE)


_LIVE = frozenset({Why.WHOLE, Why.ADOPTED, Why.LOADED_BEFORE, Why.REPAIRED})

_PARKED = frozenset(list(Why)[list(Why).index(Why.LEFT_OUT) :])


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a table is what it is.

    Attributes:
        why: The kind.
        detail: What belongs to it: the user's words (`ADOPTED`, `BY_HAND`), the range (`REPAIRED`), the commit ts
            (`SKIPPED`, `LATE`), the partner (`EXCHANGED`), what could not be applied (`DDL`, `ROW`, `TABLE`, `LOST`);
            with the other ones that are parked, why the last attempt to bring the table back failed.
        ddl: Commit ts of the DDL that could not be applied (`DDL`); 0 where the reason is no single one.
        mend: What a user can change so that it can be applied (`DDL`, `ROW`), as a sentence; "" for nothing.
    """

    why: Why
    detail: str = ""
    ddl: Count = 0
    mend: str = ""


@dataclass(frozen=True, slots=True)
class Completeness:
    """What is known about the completeness of one table. No message states it, so evidence is kept from the start.

    Attributes:
        reason: Why the table is what it is.
        since: Commit ts up to which a parked table is whole; 0 in offset order.
        position: Where a parked table left the others; None where it is unknown, so the feed cannot bring the table
            back.
        lacked: Why the table was incomplete when it was parked; None if it was whole.
        partners: Tables that exchanged rows with it while it was parked: they resume together.
        is_due: The table resumes as soon as `run` comes to it.
        origin: Of a table that is being brought back, the `position` from which it began.
        is_misnamed: Upstream another table may have its name, or none: a statement that names it was not understood.
    """

    reason: Reason
    since: Count = 0
    position: FeedPosition | None = None
    lacked: Reason | None = None
    partners: tuple[TableName, ...] = ()
    is_due: bool = False
    origin: FeedPosition | None = None
    is_misnamed: bool = False

    @property
    def why(self) -> Why:
        """The kind of its reason."""
        return self.reason.why

    @property
    def state(self) -> Wholeness:
        """See `Wholeness`."""
        return self.why.state

    @property
    def is_live(self) -> bool:
        """True if readers may take the table for whole."""
        return self.state == "live"

    @property
    def is_parked(self) -> bool:
        """True if its rows and DDL are not applied."""
        return self.state == "parked"

    @property
    def needs_export(self) -> bool:
        """True while the table that an export is loaded into is not yet this one to readers."""
        return self.why.is_loaded or (self.position is not None and self.position.is_loaded)

    @property
    def resumed(self) -> Completeness:
        """What the table is once it has all that it missed while it was parked."""
        return LIVE if self.lacked is None else Completeness(self.lacked)

    @property
    def coming_back(self) -> Completeness:
        """The table as it is due at its place; one that an export was loaded into catches up, whatever held it up."""
        is_loaded = self.position is not None and self.position.is_loaded
        return replace(self, reason=Reason(Why.CATCHING_UP) if is_loaded else self.reason, is_due=True)

    @property
    def shown(self) -> Literal["live", "incomplete", "parked", "loading", "catching up"]:
        """The state as people see it: a load that goes on is no failure."""
        if self.why.is_loaded and not self.reason.detail:
            return "catching up" if self.is_due else "loading"
        return self.state


LIVE = Completeness(Reason(Why.WHOLE))
"""A table that the feed created: no row of it can be older than what the feed holds."""


def incomplete(why: Why) -> Completeness:
    """A table that may lack rows."""
    return Completeness(Reason(why))


def furthest_back(resolved_ts: int, tables: Iterable[Completeness]) -> int:
    """The resolved ts of the changefeed, or that of the parked table that is furthest behind it."""
    places = [known.position.ts for known in tables if known.is_parked and known.position is not None]
    return min([resolved_ts, *places])
