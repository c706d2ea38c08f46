"""Forgets a whole changefeed: what it keeps in the catalog beside the tables themselves."""

from __future__ import annotations

from applier.config import own_namespaces
from applier.config.settings import Config
from applier.errors import ConfigError
from applier.pipeline.build import refuse_copy
from applier.runtime.jvm.spark_session import running
from applier.runtime.retry import with_retry
from applier.sink.commit.stamp import CHANGEFEED
from applier.sink.control.checkpoints import drop_all, is_absent
from applier.sink.control.control import Control, unix_ms
from applier.sink.control.lease import this_process
from applier.sink.control.tables import namespace
from applier.sink.iceberg.catalog import Catalog
from applier.sink.iceberg.maintenance import unset_properties


def forget_changefeed(config: Config, *, take_over: bool = False) -> list[str]:
    """Remove the applier.* properties of all tables, and the control tables from the catalog; no file is removed.

    If the process ends on the way, the same command does the rest. Returns what was done and what stays, one sentence
    each.

    Raises:
        ConfigError: There is no such changefeed, or the lake is a copy.
        CheckpointConflict: Another applier holds the changefeed.
        TransientError: The catalog does not answer.
    """
    section, name = config.catalog, config.changefeed.name
    with running(config, section.properties) as session:
        catalog = with_retry(lambda: Catalog(session, section.name))
        with_retry(lambda: refuse_copy(config, catalog))
        if with_retry(lambda: is_absent(catalog.load, name)):
            raise ConfigError([f"There is no changefeed {name} in catalog {section.name}."])
        return with_retry(lambda: _forgotten(config, catalog, take_over=take_over))


def planned(config: Config) -> list[str]:
    """What would be done, one sentence each; it writes nothing."""
    name = config.changefeed.name
    return [
        (
            f"Forget changefeed {name} while `run` is stopped: its control tables in namespace {namespace(name)} leave "
            "the catalog, and the applier.* properties leave its tables."
        ),
        "The Iceberg tables, all files, the topics and the changefeed in TiCDC stay.",
    ]


def _forgotten(config: Config, catalog: Catalog, *, take_over: bool) -> list[str]:
    name, route = config.changefeed.name, config.route
    control = Control.open(catalog, name)
    last, _ = control.take(this_process(unix_ms()), config.run.lease_seconds, take_over=take_over)
    kept = []
    for identifier in dict.fromkeys([*map(route.identifier, sorted(last.tables)), *last.cut.heads]):
        table = catalog.load(identifier)
        if table is not None and table.setting(CHANGEFEED) == name:
            unset_properties(table, "applier.")
            kept.append(".".join(identifier))
    for aside in (own_namespaces.resumes(name), own_namespaces.loads(name)):
        for identifier in catalog.list((aside,)):
            catalog.drop(identifier)
    drop_all(catalog, (namespace(name),))
    tables = f"These Iceberg tables stay as they are: {', '.join(kept)}." if kept else "No Iceberg table was its own."
    return [
        f"Changefeed {name} is forgotten: its control tables are out of the catalog, and their files stay.",
        tables,
        "The topics in Kafka and the changefeed in TiCDC stay, too.",
    ]
