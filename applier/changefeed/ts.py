"""TSO timestamps of TiDB: 46 bits of Unix milliseconds, 18 bits of logical counter."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute

pc: Any = pyarrow.compute

LOGICAL_BITS = 18

LOGICAL = (1 << LOGICAL_BITS) - 1
"""The bits of the logical counter. PD counts from 1, so where all are 0 a millisecond was made into a commit ts."""


CLOCK_SKEW_MS = 60_000
"""How far the clocks of TiDB and of the writer of the messages may be apart: so much more is read, and left out."""


def unix_ms(tso: int) -> int:
    """Unix time in milliseconds of a commit ts or resolved ts."""
    return tso >> LOGICAL_BITS


def from_unix_ms(milliseconds: int) -> int:
    """The smallest TSO of a millisecond."""
    return milliseconds << LOGICAL_BITS


def age(tso: int, now_ms: int) -> float:
    """Seconds since a TSO, at a Unix time in milliseconds; 0 for one of the future, as clocks differ."""
    return max(0, now_ms - unix_ms(tso)) / 1000


def wall_clock(tso: int) -> datetime:
    """Wall clock of a TSO, in UTC."""
    return datetime.fromtimestamp(unix_ms(tso) / 1000, tz=UTC)


def times(stamps: pa.ChunkedArray[pa.Int64Scalar]) -> pa.ChunkedArray[Any]:
    """The times of some TSO, in whole milliseconds: NULL where there is none."""
    milliseconds = pc.shift_right(stamps, pa.scalar(LOGICAL_BITS, pa.int64()))
    found: pa.ChunkedArray[Any] = milliseconds.cast(pa.timestamp("ms", tz="UTC")).cast(pa.timestamp("us", tz="UTC"))
    return found
