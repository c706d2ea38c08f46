"""Builds a pipeline that only reads: it takes no lease and makes no table."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from applier.config.readers import refuse_unreadable
from applier.config.settings import CatalogSection, Config
from applier.consume.spark import places
from applier.consume.staging_folder import staging_folder
from applier.pipeline.build import assemble, last_state, open_runner, refuse_copy
from applier.pipeline.step import Pipeline
from applier.runtime.jvm.spark_session import running
from applier.sink.iceberg.catalog import Catalog


@contextmanager
def looking(config: Config) -> Iterator[Pipeline]:
    """The pipeline of a configuration at its newest checkpoint, without the lease; only `look` at it.

    Raises ConfigError where Spark cannot start, `tables.readers` names one that cannot read the tables, or the lake is
    a copy.
    """
    refuse_unreadable(config.tables.readers, config.tables.format_version)
    with _readable(config.catalog) as properties, running(config, properties) as session:
        catalog = Catalog(session, config.catalog.name)
        refuse_copy(config, catalog)
        with open_runner(config, session, places(session, config.source.engine)) as runner:
            yield assemble(config, runner, catalog, last_state(catalog, config.changefeed.name))


@contextmanager
def _readable(section: CatalogSection) -> Iterator[dict[str, str]]:
    """Properties of the catalog; of an empty one elsewhere where Iceberg would make the file that is not there yet."""
    if section.sqlite_file is None or section.sqlite_file.exists():
        yield section.properties
        return
    with staging_folder() as folder:
        yield {**section.properties, "uri": f"jdbc:sqlite:{folder}/catalog.db"}
