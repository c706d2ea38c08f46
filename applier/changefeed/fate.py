"""What becomes of each change and control message of a window: none is dropped without a fate, and fates add up."""

from __future__ import annotations

from collections import Counter
from enum import StrEnum
from typing import TypeAlias

from applier.changefeed.table import TableName


class Fate(StrEnum):
    """What became of a row change, or of a message that holds none.

    Whoever drops a change says which, with its table: what is left out, or doubted, must be so by the table's state,
    and what is held must lie behind the next offset. `docs/guarantees.md` has the sum.
    """

    APPLIED = "applied"
    """It is in the table behind the step, or a later change of its key is."""

    HAD = "had"
    """The table has it: its resolved ts, or the offsets that it has, show that."""

    HELD = "held"
    """It is not due: a later step reads it again."""

    LEFT_OUT = "left_out"
    """Its table is parked, or `tables.include` leaves it out."""

    DOUBTED = "doubted"
    """It lies before a DDL that its table has taken: the table that lacks it for that says so."""

    SET_ASIDE = "set_aside"
    """Its message is a dead letter: the tables that may lack it say so."""

    CONTROL = "control"
    """No row: a resolved ts, a DDL, a table version, or a message that says nothing."""


Fates: TypeAlias = "Counter[tuple[Fate, TableName | None]]"
"""How many changes and control messages had each fate, by table; None where that is not known."""
