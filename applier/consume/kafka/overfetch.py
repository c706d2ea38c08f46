"""What was read beyond the end of a window: kept, because the next window begins there."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from applier.changefeed.window import OffsetRange


@dataclass(frozen=True, slots=True)
class Overfetch:
    """Messages of one partition: at most what the answer to one fetch holds.

    Attributes:
        span: The offsets that were read, also those that hold no message.
        messages: The messages at them, by offset: `MESSAGE_SCHEMA`.
    """

    span: OffsetRange
    messages: pa.Table

    def within(self, end: int) -> pa.Table:
        """The messages before an offset."""
        return self.messages.slice(0, self._count(end))

    def beyond(self, end: int) -> Overfetch | None:
        """What is left of it from an offset on, in memory of its own; None if that is nothing."""
        if end >= self.span.end:
            return None
        # A slice would keep all that was read with it in memory, up to the next window of the partition.
        rest = self.messages.take(np.arange(self._count(end), self.messages.num_rows))
        return Overfetch(OffsetRange(max(end, self.span.start), self.span.end), rest)

    def _count(self, end: int) -> int:
        return int(np.searchsorted(self.messages["offset"].to_numpy(), end))
