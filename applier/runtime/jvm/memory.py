"""Gives memory back to the system that a rest does not need."""

from __future__ import annotations

import ctypes
import gc
import sys
from contextlib import suppress

import pyarrow as pa

from applier.runtime.jvm.spark_session import collect_garbage


def give_back() -> None:
    """Give back what neither this process nor its JVM uses."""
    gc.collect()
    pa.default_memory_pool().release_unused()
    if sys.platform == "linux":
        # Other C libraries than glibc have no such function, and keep less.
        with suppress(AttributeError):
            ctypes.CDLL(None).malloc_trim(0)
    collect_garbage()
