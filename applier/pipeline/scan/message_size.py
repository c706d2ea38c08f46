"""Finds the messages that are larger than the configuration or the memory of the driver allows."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from applier.changefeed.message import UNREADABLE
from applier.decode.large_messages import LIMIT_HINT
from applier.errors import DecodeError

_MEMORY_HINT = (
    "Raise spark.driver.memory and source.max_message_bytes; messages that the producer compressed together with it "
    "are refused, too."
)

_STAND_IN = pa.scalar(UNREADABLE, pa.binary())


def too_large(messages: pa.Table, limit: int) -> dict[int, DecodeError]:
    """Number of each message that is larger than a limit or that the driver cannot hold, and the error that says so.

    Args:
        messages: Messages: `MESSAGE_SCHEMA`.
        limit: Bytes of key and value.
    """
    keys, values = (messages[name] for name in ("key", "value"))
    found = {
        number: DecodeError("It does not fit into the memory of the driver once it is decompressed.", _MEMORY_HINT)
        for number in _numbers(np.asarray(pc.equal(values, _STAND_IN).fill_null(False)))
    }
    if messages.nbytes > limit:
        sizes = _sizes(keys) + _sizes(values)
        for number in _numbers(sizes > limit):
            what = f"It holds {sizes[number]:,} bytes; source.max_message_bytes is {limit:,}."
            found[number] = DecodeError(what, LIMIT_HINT)
    return found


def _numbers(chosen: npt.NDArray[np.bool_]) -> list[int]:
    return np.flatnonzero(chosen).tolist()


def _sizes(column: pa.ChunkedArray[pa.BinaryScalar]) -> npt.NDArray[np.int64]:
    return np.asarray(pc.binary_length(column).fill_null(0)).astype(np.int64)
