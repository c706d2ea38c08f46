"""The command line of `init`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from applier.commands.tables.cli import examples
from applier.runtime.escaping import escaped

# Written out: the modules that know them take a second to import.
_PROTOCOL = "simple, open, canal-json, avro, debezium or debezium-avro. Default: what the messages show."
_CATALOG = "jdbc, rest, hive, glue, hadoop, nessie or bigquery: type of the Iceberg catalog."


EXAMPLES = examples(
    "init applier.toml --servers broker:9092 --topics shop --name shop",
    "init applier.toml --servers broker:9092 --topics shop --name shop --catalog hive --uri thrift://hive:9083",
)


def init(  # noqa: PLR0913 - each is an option
    file: Annotated[Path, typer.Argument(help="The file to write.")] = Path("applier.toml"),
    *,
    servers: Annotated[str, typer.Option(help="Kafka brokers, host:port.")] = "",
    topics: Annotated[str, typer.Option(help="Topics of the changefeed, separated by commas.")] = "",
    topic_pattern: Annotated[str, typer.Option(help="Java regular expression for the topics, instead.")] = "",
    kafka: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="An option of Kafka's clients, such as kafka.security.protocol=SSL."),
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the changefeed.")] = None,
    protocol: Annotated[str | None, typer.Option(help=_PROTOCOL)] = None,
    registry: Annotated[str | None, typer.Option(help="Address of the schema registry of an Avro feed.")] = None,
    catalog: Annotated[str | None, typer.Option(help=_CATALOG)] = None,
    uri: Annotated[str | None, typer.Option(help="Address of the catalog.")] = None,
    warehouse: Annotated[str | None, typer.Option(help="Where the catalog stores tables.")] = None,
    catalog_option: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="Another key of [catalog].")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
) -> None:
    """Write a first configuration, from a look at the topics. What they do not show is a comment to fill in.

    Secrets stay out of the file: write ${NAME} for the environment variable that holds one.
    """
    from applier.commands.init.command import init as write  # noqa: PLC0415
    from applier.commands.init.command import options, split  # noqa: PLC0415
    from applier.commands.init.write import Answers  # noqa: PLC0415
    from applier.runtime.logs import set_up_logging  # noqa: PLC0415

    set_up_logging()
    given = {"topics": split(topics), "topic_pattern": topic_pattern, "kafka.bootstrap.servers": servers}
    section = {key: value for key, value in given.items() if value} | options(kafka or [], "--kafka")
    extra = options(catalog_option or [], "--catalog-option")
    answers = Answers(section, name, protocol, registry, catalog, uri, warehouse, extra)
    write(file, answers, say=lambda line: print(escaped(line)), force=force)
