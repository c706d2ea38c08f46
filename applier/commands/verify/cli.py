"""The command line of `verify`."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from applier.changefeed.filter import rules_of
from applier.commands.tables.cli import ConfigFile, LogLevel, Tables, examples, loaded, say
from applier.runtime.escaping import escaped

if TYPE_CHECKING:
    from applier.commands.verify.report import TableVerdict

app = typer.Typer()


@app.command(
    epilog=examples("verify -c applier.toml", "verify -c applier.toml --tables 'shop.*' --against /exports/shop")
)
def verify(  # noqa: PLR0913 - each is an option
    config: ConfigFile,
    *,
    tables: Tables = "",
    against: Annotated[
        str,
        typer.Option(
            help="tidb, the folder of an export, or another Iceberg table. Default: upstream.url, or upstream.dump."
        ),
    ] = "",
    show_values: Annotated[
        bool, typer.Option("--show-values", help="Also print the cells that differ, which are rows.")
    ] = False,
    memory: Annotated[
        Path | None,
        typer.Option(
            help="Folder that keeps checksums of TiDB: a later run with it reads what changed since. Default: none.",
            show_default=False,
        ),
    ] = None,
    repair: Annotated[bool, typer.Option("--repair", help="Load each table that differs once more from TiDB.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of lines.")] = False,
    log_level: LogLevel = "warning",
) -> None:
    """Compare tables with TiDB or an export, cell by cell, also beside `run`."""
    given, rules = loaded(config, log_level), rules_of(tables)
    from applier.commands.verify.command import verify as compare  # noqa: PLC0415
    from applier.commands.verify.render import lines, summary  # noqa: PLC0415
    from applier.commands.verify.repair import refuse_unrepairable, repaired  # noqa: PLC0415
    from applier.runtime.logs import announce  # noqa: PLC0415

    if repair:
        refuse_unrepairable(given, against)

    def show(verdict: TableVerdict) -> None:
        if not as_json:
            for line in lines(verdict, values=show_values):
                say(line)

    def aside(line: str) -> None:
        print(escaped(line), file=sys.stderr if as_json else sys.stdout, flush=True)

    announce("starting Spark …")
    report = compare(given, against, rules, show, now_ms=time.time_ns() // 1_000_000, memory=memory)
    if as_json:
        print(report.to_json(), flush=True)
    else:
        say(summary(report))
    if repair and (done := repaired(given, report, aside)) is not None:
        for line in (done.what, *done.refused):
            aside(line)
    raise typer.Exit(report.exit_code)
