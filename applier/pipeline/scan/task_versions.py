"""The table versions that a decode task knows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from applier.changefeed.row_block import ColumnBlock
from applier.changefeed.table import TableName, TableVersion
from applier.ddl.late_rows import Lates
from applier.decode.avro.namesakes import Shown
from applier.decode.decoder import Decoder, NamedByDdl
from applier.sink.evolve.row_columns import is_of_rows, unmistaken, widened


@dataclass(frozen=True, slots=True)
class DdlMarks:
    """What DDL, those of the window and those before it, say of rows.

    Attributes:
        cuts: DDL that cut the rows of a table into segments, by commit ts.
        typed: Per table and segment the version whose column types and key count, where the feed's DDL show more
            than its rows.
        changed: As `State.changed_at`, of the tables that a DDL has changed.
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

    def refined(self, version: TableVersion, number: int, ts: int = 0) -> TableVersion:
        """A version with the types and the key that DDL, or a load, give it in a segment for rows of a commit ts.

        Types that are known from former rows alone give way to wider ones, and all to those of newer rows whose values
        would pass for others.
        """
        tracked = self.typed.get(version.name, ())
        known = tracked[min(number, len(tracked) - 1)] if tracked else None
        if known is None:
            return version
        refined = version.refined(known)
        changed = 0 if number else self.changed.get(version.name, 0)
        if ts > changed or not changed:
            # Rows from before a MODIFY to FLOAT may lag behind it, and TiDB has rounded their values.
            refined = unmistaken(refined, version)
        return widened(refined, version) if is_of_rows(known) else refined


class TaskVersions:
    """Table versions by name and number, and what DDL say of them; the decoder learns every version, too.

    Attributes:
        counted: Tables with a version that counts each change, so that one sent again must not count.
    """

    def __init__(self, decoder: Decoder, known: Sequence[TableVersion], marks: DdlMarks) -> None:
        self.counted: set[TableName] = set()
        self._decoder = decoder
        self._marks = marks
        self._versions: dict[tuple[TableName, int], TableVersion] = {}
        for version in known:
            self.learn(version)
        for versions in marks.typed.values():
            for one in versions:
                if one is not None:
                    decoder.learn(one)
                    self._note(one)
        if marks.shown is not None and isinstance(decoder, NamedByDdl):
            decoder.describe(marks.shown, marks.typed, marks.cuts)

    def get(self, name: TableName, number: int) -> TableVersion | None:
        """A version; None if it has not come."""
        return self._versions.get((name, number))

    def learn(self, version: TableVersion) -> None:
        """Take a version that a message describes."""
        self._versions[version.name, version.version] = version
        self._decoder.learn(version)
        self._note(version)

    def _note(self, version: TableVersion) -> None:
        if not version.shape.is_idempotent:
            self.counted.add(version.name)

    def is_reducible(self, block: ColumnBlock) -> bool:
        """False if DDL show another key than the rows do, in any segment: they may not hold it whole."""
        version = self._versions.get((block.name, block.version))
        cuts = self._marks.cuts.get(block.name, ())
        return version is not None and all(
            self.typed(version, number).key == block.key for number in range(len(cuts) + 1)
        )

    def typed(self, version: TableVersion, number: int, ts: int = 0) -> TableVersion:
        """See `DdlMarks.refined`."""
        return self._marks.refined(version, number, ts)
