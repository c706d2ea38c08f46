"""Reads the folder of TiCDC's storage sink as a `Source`, in the driver or in Spark's tasks."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import partial

from pyspark.sql import SparkSession

from applier.changefeed.window import Window
from applier.consume.source import Blocks
from applier.consume.spark import reading
from applier.consume.storage.folder import StorageFolder
from applier.consume.storage.messages import StoredMessages, in_files
from applier.consume.window_size import Limits


class StorageSource(StoredMessages):
    """A folder of the storage sink as a `Source`; arguments as of `StoredMessages`, behind the session."""

    def __init__(self, spark: SparkSession, folder: StorageFolder, most_bytes: int) -> None:
        super().__init__(folder, most_bytes)
        self._spark = spark

    def blocks(self, window: Window, limits: Limits, slots: int) -> Blocks:
        """See `Source`; one task reads each partition."""
        del limits, slots
        groups = self.groups(window)
        return Blocks(self._spark.sparkContext.parallelize(groups, len(groups)), partial(in_files, self.folder))

    def reading(self) -> AbstractContextManager[None]:
        """See `Source`."""
        return reading()
