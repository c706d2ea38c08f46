"""Messages in, the ones out that are larger than the configuration allows."""

from __future__ import annotations

from typing import cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from applier.decode.large_messages import LIMIT_HINT
from applier.errors import DecodeError


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
        number: DecodeError(f"It holds {sizes[number]:,} bytes; source.max_message_bytes is {limit:,}.", LIMIT_HINT)
        for number in np.flatnonzero(sizes > limit).tolist()
    }


def _sizes(column: pa.BinaryArray) -> npt.NDArray[np.int64]:
    return np.asarray(pc.binary_length(column).fill_null(0)).astype(np.int64)
