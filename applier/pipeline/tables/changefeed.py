"""The changefeed whose rows are written, and what its commits say about themselves and about their tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from applier.changefeed.applied_offsets import AppliedOffsets
from applier.changefeed.completeness import Completeness
from applier.changefeed.table import TableName
from applier.ddl.actions import Action, effect, touches
from applier.ddl.schema_tracker import Tables
from applier.order.feed_order import FeedOrder
from applier.sink.commit.stamp import OFFSETS, Stamp
from applier.sink.control.table_record import RECORD, TableRecord
from applier.sink.write.table_writer import TableWriter

FILTERED = "applier.filtered"
"""Table property: deletes of the table may have been left out, so no key may be taken for new."""


def left_behind(actions: Iterable[Action], tables: Tables) -> frozenset[TableName]:
    """The tables that keep rows which actions remove upstream, where these are passed over."""
    found: set[TableName] = set()
    for action in actions:
        done = effect(action)
        if done.is_silent or (done.empties and not done.created):
            found.update(touches(action), done.leaving(tables))
    return frozenset(found)


ADOPTED = "applier.adopted"
"""Table property: rows were there before the first commit of applier, so no key may be taken for new."""


@dataclass(frozen=True, slots=True)
class Changefeed:
    """The changefeed whose rows are written.

    Attributes:
        epoch: Epoch of this applier.
        filtered: It leaves out rows, so no key may be taken for new.
    """

    name: str
    epoch: int
    order: FeedOrder
    filtered: bool = False

    def stamp(self, upto: int, extra: Mapping[str, str] | None = None, writer: TableWriter | None = None) -> Stamp:
        """What a commit of this applier says about itself; the first one to a table of others says that, too.

        Without a watermark a table is true as of no resolved ts.
        """
        is_foreign = writer is not None and writer.known is None
        adopted = {ADOPTED: "true"} if is_foreign else {}
        if is_foreign and not self.order.has_watermark:
            adopted[OFFSETS] = AppliedOffsets().to_text()
        filtered = {FILTERED: "true"} if self.filtered else {}
        return Stamp(self.name, self.epoch, self.order.as_of(upto) or 0, {**adopted, **filtered, **(extra or {})})

    def add(self, writer: TableWriter, entries: Mapping[str, str]) -> int | None:
        """Add entries to the stamp that a table has; its head then, None for a table without a stamp."""
        known = writer.known
        if known is None:
            return None
        return writer.stamp(self.stamp(known.resolved_ts, {**known.extra, **entries})).snapshot_id


@dataclass(slots=True)
class Recorder:
    """The records of the tables of a changefeed, or of the copies of a job.

    Attributes:
        known: Whether a table holds every row; None for one of which nothing is known.
        job: The job whose copies these are; "" for the tables that readers see.
        kept: What each table says of itself, as far as that was looked at.
    """

    known: Callable[[TableName], Completeness | None] = lambda name: None
    job: str = ""
    kept: dict[TableName, Completeness] = field(default_factory=dict, init=False)
    _said: dict[tuple[str, ...], str] = field(default_factory=dict, init=False)

    def entries(self, name: TableName, writer: TableWriter | None, known: Completeness | None = None) -> dict[str, str]:
        """The property with the record of a table, if the table does not say so yet.

        Args:
            name: The name that the table has, or gets by the commit.
            writer: Its writer; None for a table that is to be made.
            known: What is known of it behind the commit; what is known now when absent.
        """
        known = known or self.known(name)
        if known is None:
            return {}
        text = TableRecord(name, known, self.job).to_text()
        if writer is None:
            return {RECORD: text}
        identifier = writer.table.identifier
        if self._said.get(identifier) != text and writer.table.setting(RECORD) != text:
            # The commit that takes it may fail: what the table says then is read again.
            self._said.pop(identifier, None)
            return {RECORD: text}
        self._said[identifier] = text
        return {}

    def forget(self, name: TableName, identifier: tuple[str, ...]) -> None:
        """Look again at what a table says."""
        self.kept.pop(name, None)
        self._said.pop(identifier, None)

    def clear(self) -> None:
        """Look again at what all tables say."""
        self.kept.clear()
        self._said.clear()
