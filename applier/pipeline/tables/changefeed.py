"""The changefeed whose rows are written, and what its commits say about themselves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from applier.changefeed.applied_offsets import AppliedOffsets
from applier.order.feed_order import FeedOrder
from applier.pipeline.tables.filtered import FILTERED
from applier.sink.commit.stamp import OFFSETS, Stamp
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
