"""What DDL say of the rows of a window."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from applier.changefeed.table import TableName, TableVersion
from applier.ddl.late_rows import Lates
from applier.decode.avro.namesakes import Shown


@dataclass(frozen=True, slots=True)
class DdlMarks:
    """What DDL, those of the window and those before it, say of rows.

    Attributes:
        cuts: DDL that cut the rows of a table into segments, by commit ts.
        typed: Per table and segment the version whose column types and key count, where the feed's DDL show more
            than its rows.
        changed: As `Known.changed`.
        shown: What DDL and watermarks show beside, where the protocol does not hold the names of tables.
        moving: Tables that a DDL of the window makes, or takes the name off: a message without a commit ts that may be
            of one is read again behind that DDL.
        late: In offset order what shows rows that come behind a DDL of an earlier step.
    """

    cuts: Mapping[TableName, Sequence[int]] = field(default_factory=dict)
    typed: Mapping[TableName, Sequence[TableVersion | None]] = field(default_factory=dict)
    changed: Mapping[TableName, int] = field(default_factory=dict)
    shown: Shown | None = None
    moving: frozenset[TableName] = frozenset()
    late: Lates = field(default_factory=dict)
