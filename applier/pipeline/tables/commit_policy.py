"""Which branch of its tables a changefeed writes, and what the commits say about themselves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from applier.changefeed.applied_offsets import AppliedOffsets
from applier.changefeed.table import TableVersion
from applier.order.feed_order import FeedOrder
from applier.pipeline.tables.filtered import FILTERED
from applier.pipeline.tables.table_batch import Batch
from applier.sink.commit.stamp import OFFSETS, Stamp
from applier.sink.iceberg.catalog import Catalog
from applier.sink.iceberg.table import Table
from applier.sink.write.table_writer import TableWriter

ADOPTED = "applier.adopted"
"""Table property: rows were there before the first commit of applier, so no key may be taken for new."""


@dataclass(frozen=True, slots=True)
class Changefeed:
    """The changefeed whose rows are written.

    Attributes:
        name: Its name.
        epoch: Epoch of this applier.
        order: What places its changes.
    """

    name: str
    epoch: int
    order: FeedOrder

    def stamp(self, upto: int, extra: Mapping[str, str]) -> Stamp:
        """A stamp of this applier; without a watermark a table is true as of no resolved ts."""
        return Stamp(self.name, self.epoch, self.order.as_of(upto) or 0, extra)


class CommitPolicy(Protocol):
    """Which branch of the tables is written: `MainPolicy`, or the branches of a backfill."""

    def load(self, identifier: tuple[str, ...]) -> Table | None:
        """The branch of a table that is written; None if there is none."""

    def stamp(self, upto: int, extra: Mapping[str, str] | None = None, writer: TableWriter | None = None) -> Stamp:
        """What a commit says about itself, to the table of a writer where one is given."""

    def applied(self, writer: TableWriter) -> Stamp | None:
        """The stamp that shows what a table has; None if nothing that is read counts as applied."""

    def forward(self, batch: Batch, tracked: TableVersion | None) -> Batch | None:
        """The batch as its table takes it, which its DDL so far left as `tracked`; None if it takes nothing."""


@dataclass(frozen=True, slots=True)
class MainPolicy:
    """Writes the tables as readers see them.

    Args:
        catalog: The catalog.
        feed: The changefeed.
        filtered: The feed leaves out rows, so no key may be taken for new.
    """

    catalog: Catalog
    feed: Changefeed
    filtered: bool = False

    def load(self, identifier: tuple[str, ...]) -> Table | None:
        """The table as it is in the catalog; None if there is none."""
        return self.catalog.load(identifier)

    def stamp(self, upto: int, extra: Mapping[str, str] | None = None, writer: TableWriter | None = None) -> Stamp:
        """What a commit of this applier says about itself; the first one to a table of others says that, too."""
        is_foreign = writer is not None and writer.known is None
        adopted = {ADOPTED: "true"} if is_foreign else {}
        if is_foreign and not self.feed.order.has_watermark:
            adopted[OFFSETS] = AppliedOffsets().to_text()
        filtered = {FILTERED: "true"} if self.filtered else {}
        return self.feed.stamp(upto, {**adopted, **filtered, **(extra or {})})

    def applied(self, writer: TableWriter) -> Stamp | None:
        """The newest stamp; None for a table that no applier has written."""
        return writer.known

    def forward(self, batch: Batch, tracked: TableVersion | None) -> Batch:
        """The batch as it is."""
        del tracked
        return batch
