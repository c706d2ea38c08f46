"""Command `check`: do the registry's schemas, the decoder and the Iceberg tables fit together, now and after a change?

It asks and reads, and changes nothing that stays: no registration, no commit, no Spark.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from applier.changefeed.table import TableName
from applier.commands.catalog_reader import open_lake
from applier.commands.check.avro import Registrations
from applier.commands.check.change import coming_ddl, coming_schema
from applier.commands.check.iceberg_side import Replicas, tracked
from applier.commands.check.inputs import Sides
from applier.commands.check.registry_side import reported
from applier.commands.check.report import Report, TableReport
from applier.commands.check.systems import Systems
from applier.commands.check.unmatched import unmatched
from applier.commands.init.look import Findings
from applier.config.readers import unreadable
from applier.config.settings import Config
from applier.decode.registry.registries import open_registry
from applier.errors import ConfigError
from applier.pipeline.build import supplied

ATTEMPTS = 3
"""Rounds over the registry's addresses before it counts as unreachable: a person waits for the answer."""


def check(
    config: Config,
    *,
    subject: str | None = None,
    schema: Path | None = None,
    ddl: str | None = None,
    systems: Systems | None = None,
) -> Report:
    """Check a changefeed against its registry and its Iceberg tables.

    Systems that do not answer are named in the report; nothing is raised for them.

    Args:
        config: Names the changefeed, its registry and its catalog.
        subject: Report only this subject, its partner and its tables; ConfigError where there is no registry.
        schema: File with the next Avro schema of a subject.
        ddl: A DDL that will run upstream.
        systems: What the systems have answered: those that do not answer are not asked again.
    """
    section = config.changefeed
    if subject and config.registry is None:
        what = f"--subject needs a schema registry, and {config.path} has no section [registry]."
        raise ConfigError([f"{what} Leave --subject out, or add the section."])
    sides, known = Sides(config, subject), systems or Systems()
    with ExitStack() as stack:
        with sides.noting():
            known.refuse("catalog")
            lake = stack.enter_context(open_lake(config.catalog))
            sides.replicas = Replicas(config, lake, tracked(lake, section.name))
        if section.traits.carries.schema == "registry" and config.registry:
            settings = config.registry.model_copy(update={"attempts": ATTEMPTS})
            with sides.noting():
                known.refuse("registry")
                sides.load(open_registry(settings), everything=ddl is not None or schema is not None)
        if subject and sides.client and subject not in sides.client.subjects and schema is None:
            sides.problems.append(f"Subject {subject} is not registered.")
        tables: list[TableReport] = []
        with sides.noting():
            tables += sides.tables()
        changes = [] if schema is None else [coming_schema(sides, schema)]
        changes += [] if ddl is None else [coming_ddl(sides, ddl)]
    return Report(
        changefeed=section.name,
        protocol=section.protocol,
        capabilities=section.traits.carries,
        systems=known.answers,
        warnings=tuple(_warnings(sides, known.findings)),
        subjects=tuple(map(reported, sides.shown())),
        tables=tuple(tables),
        changes=tuple(changes),
        problems=tuple(sides.problems),
    )


def _warnings(sides: Sides, findings: Findings) -> Iterator[str]:
    """What the tables will lack because of the protocol or of options, as far as messages do not show them on."""
    section, client = sides.config.changefeed, sides.client
    formats = {"": sides.config.tables.format_version, **(sides.replicas.formats if sides.replicas else {})}
    yield from filter(
        None, (unreadable(sides.config.tables.readers, number, table) for table, number in formats.items())
    )
    capabilities = section.traits.carries
    is_off = section.traits.registered == "rows" and client is not None and not Registrations(client).has_extension
    if section.order == "offset":
        yield "Order is by offset: tables are not as of a resolved ts, and a transaction may be seen in part."
    elif is_off:
        yield (
            "The registered schemas have no extension fields, so enable-tidb-extension is off and the feed carries no "
            'watermark: `applier run` waits for ever. Turn it on with avro-enable-watermark, or set order = "offset".'
        )
    elif capabilities.resolved_ts != "always" and not findings.has_watermark:
        yield f"The watermark needs options of TiCDC: {capabilities.resolved_ts}. Without it `applier run` waits."
    # One option may turn on both.
    is_on = findings.has_watermark and capabilities.ddl == capabilities.resolved_ts
    if capabilities.ddl != "always" and not is_off and not is_on:
        yield f"DDL messages need options of TiCDC: {capabilities.ddl}."
    if is_off:
        yield "Without DDL messages a renamed column looks like one dropped and one added, and a TRUNCATE is not seen."
    if lacking := _left_open(sides, findings):
        yield (
            f"Rows of {', '.join(map(str, sorted(lacking)))} leave open whether columns hold text or bytes, signed or "
            "unsigned numbers: `applier run` parks the table unless a CREATE TABLE shows it, in the feed or in the "
            "folder [upstream] schemas."
        )
    yield from unmatched(sides.config.tables, _seen(sides, findings))
    if not capabilities.exact_decimals:
        yield "Decimals pass through a double on the wire: digits beyond the 15th are lost."


def _seen(sides: Sides, findings: Findings) -> dict[TableName, tuple[str, ...]]:
    """The tables that messages, registry and control tables show, with their columns as far as they are known."""
    seen = dict.fromkeys(sorted({*findings.tables, *findings.made}), ()) | dict(findings.columns)
    for versions in (sides.replicas.known if sides.replicas else {}, sides.registered()):
        seen |= {name: tuple(column.name for column in version.columns) for name, version in versions.items()}
    return seen


def _left_open(sides: Sides, findings: Findings) -> set[TableName]:
    """Tables whose rows leave types open that nothing known shows; none where the export cannot be read."""
    left = {*findings.open} - findings.made - set(sides.replicas.known if sides.replicas else ())
    try:
        return {name for name in left if name not in supplied(sides.config)}
    except ConfigError:
        return set()  # The row of the export says so.
