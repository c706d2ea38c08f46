"""Builds a pipeline that only reads: it takes no lease and makes no table."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from applier.config.readers import refuse_unreadable
from applier.config.settings import CatalogSection, Config
from applier.consume.staging_folder import staging_folder
from applier.pipeline.build import assemble, last_state, open_source
from applier.pipeline.step import Pipeline
from applier.runtime.jvm.spark_session import build_session
from applier.sink.iceberg.catalog import Catalog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def looking(config: Config, *, spark: SparkSession | None = None) -> Iterator[Pipeline]:
    """The pipeline of a configuration at its newest checkpoint, without the lease; only `look` at it.

    A session that is given is left running.

    Raises:
        ConfigError: Spark cannot start, or `tables.readers` names one that cannot read the tables.
        TransientError: Catalog or source do not answer.
    """
    refuse_unreadable(config.tables)
    section, name = config.catalog, config.changefeed.name
    with _readable(section) as properties:
        session = spark or build_session(f"applier {name}", config.spark, section.name, properties)
        try:
            catalog = Catalog(session, section.name)
            with open_source(config, session) as source:
                yield assemble(config, source, catalog, last_state(catalog, name))
        finally:
            if spark is None:
                session.stop()


@contextmanager
def _readable(section: CatalogSection) -> Iterator[dict[str, str]]:
    """Properties of the catalog; of an empty one elsewhere where Iceberg would make the file that is not there yet."""
    if section.sqlite_file is None or section.sqlite_file.exists():
        yield section.properties
        return
    with staging_folder() as folder:
        yield {**section.properties, "uri": f"jdbc:sqlite:{folder}/catalog.db"}
