"""Builds a pipeline that only reads: it takes no lease and makes no table."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from applier.changefeed.checkpoint import Checkpoint, Holder
from applier.config.settings import Config
from applier.pipeline.build import assemble, open_source
from applier.pipeline.state import State
from applier.pipeline.step import Pipeline
from applier.runtime.spark_session import build_session
from applier.sink.control.append_table import AppendOnlyTable
from applier.sink.control.control import Control
from applier.sink.control.tables import CONTROL_TABLES, namespace
from applier.sink.iceberg.catalog import Catalog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def looking(config: Config, *, spark: SparkSession | None = None) -> Iterator[Pipeline]:
    """The pipeline of a configuration at its newest checkpoint, without the lease; only `look` at it.

    A session that is given is left running.

    Raises:
        ConfigError: Spark cannot start.
        TransientError: Catalog or source do not answer.
    """
    section = config.catalog
    name = config.changefeed.name
    session = spark or build_session(f"applier {name}", config.spark, section.name, section.properties)
    try:
        catalog = Catalog(session, section.name)
        with open_source(config, session) as source:
            found = {kind: catalog.load((namespace(name), kind.name)) for kind in CONTROL_TABLES}
            control = Control(name, {kind: AppendOnlyTable(table) for kind, table in found.items() if table})
            # Only an applier that takes the changefeed fences the tables.
            never = Checkpoint(epoch=0, step=0, resolved_ts=0, written_at=0, holder=Holder("", ""))
            checkpoint = replace(control.last_checkpoint() or never, unfenced=0, fenced=0)
            yield assemble(config, source, catalog, State.load(control, checkpoint))
    finally:
        if spark is None:
            session.stop()
