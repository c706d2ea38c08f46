"""Messages in, the ones out that are larger than the configuration allows."""

from __future__ import annotations

from typing import cast

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


def too_large(messages: pa.RecordBatch, limit: int) -> dict[int, DecodeError]:
    """Number of each message whose key and value are larger than a limit, and the error that says so.

    Args:
        messages: Messages: `MESSAGE_SCHEMA`.
        limit: Bytes.
    """
    if messages.nbytes <= limit:
        return {}
    keys, values = (cast("pa.BinaryArray", messages.column(name)) for name in ("key", "value"))
    sizes = _sizes(keys) + _sizes(values)
    return {
        number: _error(values[number].as_buffer(), int(sizes[number]), limit)
        for number in np.flatnonzero(sizes > limit).tolist()
    }


def _error(value: pa.Buffer | None, size: int, limit: int) -> DecodeError:
    if value is not None and value.slice(0, len(UNREADABLE)).to_pybytes() == UNREADABLE:
        return DecodeError("It does not fit into the memory of the driver once it is decompressed.", _MEMORY_HINT)
    return DecodeError(f"It holds {size:,} bytes; source.max_message_bytes is {limit:,}.", LIMIT_HINT)


def _sizes(column: pa.BinaryArray) -> npt.NDArray[np.int64]:
    return np.asarray(pc.binary_length(column).fill_null(0)).astype(np.int64)
