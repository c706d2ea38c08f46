"""The command line: thin, and the only file that prints or exits."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer.main import get_command

from applier.changefeed.filter import rules_of
from applier.commands.tables import cli as tables_cli
from applier.commands.tables.cli import ConfigFile, LogLevel, Tables, TakeOver, examples, loaded, say, with_file
from applier.commands.verify import cli as verify_cli
from applier.errors import ConfigError
from applier.runtime.escaping import escaped
from applier.runtime.process_end import Ending, ending_of, flushed, with_streams

if TYPE_CHECKING:
    from applier.config.settings import Config
    from applier.watch.report import StatusReport

app = typer.Typer(
    name="applier",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)

letters_app = typer.Typer(
    help="The messages that were set aside: list them, look at one, discard some.", no_args_is_help=True
)
app.add_typer(letters_app, name="dead-letters")
app.add_typer(tables_cli.app)
app.add_typer(verify_cli.app)
ddl_app = typer.Typer(help="See what became of each DDL, and pass one that is refused.", no_args_is_help=True)
app.add_typer(ddl_app, name="ddl")

# Written out: the modules that know them take a second to import.
_PROTOCOL = "simple, open, canal-json, avro, debezium or debezium-avro. Default: what the messages show."
_CATALOG = "jdbc, rest, hive, glue, hadoop, nessie or bigquery: type of the Iceberg catalog."

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]


@app.command(
    epilog=examples(
        "init applier.toml --servers broker:9092 --topics shop --name shop",
        "init applier.toml --servers broker:9092 --topics shop --name shop --catalog hive --uri thrift://hive:9083",
    )
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
    lake = {"type": catalog, "uri": uri, "warehouse": warehouse}
    extra = options(catalog_option or [], "--catalog-option")
    known = extra | {key: value for key, value in lake.items() if value is not None}
    write(file, Answers(section, name, protocol, registry, known), say=say, force=force)


@app.command(epilog=examples("run -c applier.toml", "run -c applier.toml --once --log-level warning"))
def run(
    config: ConfigFile,
    *,
    once: Annotated[bool, typer.Option("--once", help="Stop where the source ends now.")] = False,
    take_over: TakeOver = False,
    accept_remade_topics: Annotated[
        bool,
        typer.Option(
            "--accept-remade-topics", help="Accept recreated topics whose messages kept their offsets; this start only."
        ),
    ] = False,
    log_level: LogLevel = "info",
) -> None:
    """Follow the changefeed and keep its tables up to date."""
    loaded = _loaded(config, log_level, take_over=take_over, waits=True)
    # These imports take a second or two: only once the first line is shown.
    from applier.commands.before_spark import naming_holder  # noqa: PLC0415
    from applier.commands.progress_bar import progress_bar  # noqa: PLC0415
    from applier.commands.run import Reports  # noqa: PLC0415
    from applier.commands.run import run as follow  # noqa: PLC0415
    from applier.watch.watching import tracing, watching  # noqa: PLC0415

    with naming_holder(loaded), watching(loaded) as board, tracing(loaded) as attempt, progress_bar() as show:
        reports = Reports(show, board.begin, board.take, attempt, board.end)
        follow(loaded, once=once, take_over=take_over, reports=reports, accept_remade=accept_remade_topics)


@app.command(
    epilog=examples(
        "check -c applier.toml", 'check -c applier.toml --ddl "ALTER TABLE shop.orders ADD COLUMN note TEXT"'
    )
)
def check(
    config: ConfigFile,
    *,
    subject: Annotated[str | None, typer.Option(help="Report only this subject and its table.")] = None,
    schema: Annotated[Path | None, typer.Option(help="File with the next Avro schema of a subject.")] = None,
    ddl: Annotated[str | None, typer.Option(help="A DDL that you plan to run upstream.")] = None,
    as_json: AsJson = False,
) -> None:
    """Check whether each system answers, and whether all fit together, now and after a change. Starts no Spark."""
    from applier.commands.check.command import check as examine  # noqa: PLC0415
    from applier.commands.check.render import render  # noqa: PLC0415
    from applier.commands.check.systems import ask  # noqa: PLC0415

    asked = loaded(config, "error")
    report = examine(asked, subject=subject, schema=schema, ddl=ddl, systems=ask(asked))
    _show(report, render, as_json=as_json)
    raise typer.Exit(report.exit_code)


@app.command(epilog=examples("status -c applier.toml --max-lag 60 --json", "status -c applier.toml --cut duckdb"))
def status(  # noqa: PLR0913 - each is an option
    config: ConfigFile,
    engine: Annotated[
        Literal["spark", "trino", "pyiceberg", "duckdb", "polars"] | None,
        typer.Argument(help="With --cut: the engine that the queries are for. Default: spark.", show_default=False),
    ] = None,
    *,
    max_lag: Annotated[
        float | None,
        typer.Option(
            help="Age in seconds beyond which tables are stale, whatever explains it. Default: http.max_lag_seconds."
        ),
    ] = None,
    tables: Annotated[
        str, typer.Option(help="List these tables with their snapshots, by rules: shop.a,shop.b*, or *.* for all.")
    ] = "",
    ddl: Annotated[bool, typer.Option("--ddl", help="Show the newest DDL, and what became of each.")] = False,
    partitions: Annotated[bool, typer.Option("--partitions", help="Show how far each partition is read.")] = False,
    cut: Annotated[
        bool, typer.Option("--cut", help="Print only the queries that read all tables as of one moment, for ENGINE.")
    ] = False,
    watch: Annotated[
        float | None, typer.Option(help="Redraw every so many seconds, until Ctrl-C.", min=0.1, show_default=False)
    ] = None,
    page: Annotated[
        Path | None, typer.Option(help="Also write this report to a file, as a page for a browser.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show whether the tables are true, what to do if not, how far they are, and why they lag."""
    from rich.console import Console  # noqa: PLC0415

    from applier.commands.status.command import status as examine  # noqa: PLC0415
    from applier.commands.status.render import Choice, refuse, render, watching  # noqa: PLC0415

    rules = rules_of(tables)
    modes = {"--json": as_json, "--cut": cut, "--watch": watch is not None}
    refuse({**modes, "--tables": bool(rules), "--ddl": ddl, "--partitions": partitions}, Console(), engine)
    given = loaded(config)
    choice = Choice(given.path, rules, ddl, partitions)

    def look() -> StatusReport:
        now_ms = time.time_ns() // 1_000_000
        report = examine(given, max_lag_seconds=max_lag, now_ms=now_ms, engine=(engine or "spark") if cut else None)
        if page is not None:
            from applier.watch.page.document import write  # noqa: PLC0415

            write(page, report, given.path)
        return report

    if watch is not None:
        raise typer.Exit(watching(look, choice, Console(), watch))
    report = look()
    if cut:
        from applier.commands.status.cut import remarks  # noqa: PLC0415

        for shown in (*remarks(engine or "spark", report), *report.cut):
            say(shown)
        is_late = max_lag is not None and (report.lag_seconds is None or report.lag_seconds > max_lag)
        raise typer.Exit(0 if report.cut and not is_late else 1)
    _show(report, lambda found, console: render(found, console, choice), as_json=as_json)
    raise typer.Exit(report.exit_code)


@app.command(
    epilog=examples(
        "backfill -c applier.toml --from beginning --tables shop.orders --plan",
        "backfill -c applier.toml --from '2026-11-01 00:00' --to end --repair",
    )
)
def backfill(  # noqa: PLR0913 - each is an option
    config: ConfigFile,
    *,
    begin: Annotated[
        str | None,
        typer.Option("--from", help="Begin here: offsets (0:100,1:250), a time in UTC, a resolved ts, or beginning."),
    ] = None,
    end: Annotated[
        str | None,
        typer.Option("--to", help="End here, in the same forms; or end, the default: what the source has now."),
    ] = None,
    tables: Tables = "",
    branch: Annotated[
        str, typer.Option(help="Build the tables in a branch of this name, and compare it with what readers see.")
    ] = "",
    publish: Annotated[
        bool, typer.Option("--publish", help="With --branch: show readers what the branch holds.")
    ] = False,
    repair: Annotated[
        bool,
        typer.Option("--repair", help="Apply the range once more to tables that have it, to restore damaged rows."),
    ] = False,
    dead_letters: Annotated[
        bool, typer.Option("--dead-letters", help="Apply what the dead letters left out, now that they can be read.")
    ] = False,
    archive: Annotated[
        str | None, typer.Option(help="Read the recorded messages of this folder, not the source.")
    ] = None,
    plan: Annotated[bool, typer.Option("--plan", help="Show what would be read and written, and do nothing.")] = False,
    take_over: TakeOver = False,
    log_level: LogLevel = "warning",
) -> None:
    """Apply a bounded range of the changefeed, once more or for the first time, while `run` is stopped."""
    from applier.commands.backfill.request import asked  # noqa: PLC0415

    request = asked(begin, end, tables=tables, branch=branch, publish=publish, repair=repair, dead_letters=dead_letters)
    loaded = _loaded(config, log_level, archive, take_over=take_over, takes=not plan)
    from rich.console import Console  # noqa: PLC0415

    from applier.commands.backfill.command import backfill as replay  # noqa: PLC0415
    from applier.commands.backfill.command import planned  # noqa: PLC0415
    from applier.commands.backfill.report import render  # noqa: PLC0415
    from applier.commands.progress_bar import progress_bar  # noqa: PLC0415

    if plan:
        render(planned(loaded, request), Console())
        return
    with progress_bar() as report:
        outcome = replay(loaded, request, take_over=take_over, report=report)
    render(outcome, Console())
    raise typer.Exit(1 if outcome.left else 0)


@app.command(
    epilog=examples("load -c applier.toml --plan", "load -c applier.toml --from /exports/shop --tables 'shop.*'")
)
def load(  # noqa: PLR0913 - each is an option
    config: ConfigFile,
    *,
    export: Annotated[
        str | None,
        typer.Option("--from", help="Folder of a Dumpling export. Default: upstream.dump, or upstream.url."),
    ] = None,
    at: Annotated[
        int | None, typer.Option("--at", min=1, help="TSO of the rows of upstream.url. Default: now.", metavar="TSO")
    ] = None,
    tables: Tables = "",
    plan: Annotated[bool, typer.Option("--plan", help="Show what would be loaded, and do nothing.")] = False,
    again: Annotated[bool, typer.Option("--again", help="Also load tables that are live.")] = False,
    take_over: TakeOver = False,
    log_level: LogLevel = "warning",
) -> None:
    """Begin on a database that has rows already, or load tables again: from an export or a TiDB, also beside `run`."""
    rules = rules_of(tables)
    loaded = _loaded(config, log_level, takes=False)
    from applier.commands.load.command import load as bring  # noqa: PLC0415
    from applier.commands.load.command import planned  # noqa: PLC0415

    if plan:
        for line in planned(loaded, export, rules, at=at, again=again):
            say(line)
        return
    done = bring(loaded, export, rules, say, at=at, again=again, take_over=take_over)
    say(done.what)
    for sentence in done.refused:
        print(escaped(sentence), file=sys.stderr)
    raise typer.Exit(1 if done.refused else 0)


@app.command(epilog=examples("adopt -c applier.toml --tables shop.orders --why 'loaded by hand on Monday'"))
def adopt(
    config: ConfigFile,
    *,
    tables: Tables,
    why: Annotated[str, typer.Option(help="How their rows came to be complete; the checkpoint keeps it.")],
    take_over: TakeOver = False,
    log_level: LogLevel = "warning",
) -> None:
    """Mark tables as complete, on your word. `run` must be stopped."""
    found = loaded(config, log_level)
    from applier.commands.adopt import adopt as take  # noqa: PLC0415

    taken = take(found, rules_of(tables), why, take_over=take_over)
    print(f"Adopted: {escaped(', '.join(map(str, taken)))}." if taken else "Nothing to adopt: these tables are live.")


@app.command(epilog=examples("plan -c applier.toml", "plan -c applier.toml --json"))
def plan(config: ConfigFile, *, as_json: AsJson = False, log_level: LogLevel = "warning") -> None:
    """Show what the next step of `run` would do. Takes no lease and writes nothing."""
    loaded = _loaded(config, log_level, takes=False)
    from applier.commands.plan.command import plan as look  # noqa: PLC0415
    from applier.commands.plan.report import render  # noqa: PLC0415

    _show(look(loaded), render, as_json=as_json)


@ddl_app.command("list", epilog=examples("ddl list -c applier.toml", "ddl list -c applier.toml --json"))
def ddl_list(config: ConfigFile, *, as_json: AsJson = False) -> None:
    """Show each DDL and what became of it, oldest first; `pending` ones hold the changefeed up. Changes nothing."""
    from applier.commands.ddl import listed, to_json  # noqa: PLC0415

    found = listed(loaded(config))
    if as_json:
        print(to_json(found))
        return
    if not found:
        print("No DDL has come.")
    for item in found:
        shown = str(item.commit_ts), item.decision, item.kind, item.table, item.sql
        print(escaped("  ".join(filter(None, shown))))
        if item.reason:
            print(escaped(f"    {item.reason}"))
        if item.way_out:
            print(escaped(f"    Way out: {item.way_out}"))


@ddl_app.command("skip", epilog=examples("ddl skip 470606913415151617 -c applier.toml --why 'no table of ours'"))
def ddl_skip(
    commit_ts: Annotated[int, typer.Argument(help="Commit ts of the statement, as `ddl list` shows it.")],
    config: ConfigFile,
    why: Annotated[str, typer.Option(help="Why it may be passed; kept in schema_changes.")],
    *,
    take_over: TakeOver = False,
    log_level: LogLevel = "warning",
) -> None:
    """Let `run` pass one refused statement, once and without its effect, while `run` is stopped."""
    loaded = _loaded(config, log_level, take_over=take_over, reads=False)
    from applier.commands.ddl import skip  # noqa: PLC0415

    for item in skip(loaded, commit_ts, why, take_over=take_over):
        print(f"applier run will pass {item.kind} of {escaped(str(item.table))} at commit ts {item.commit_ts}.")


@letters_app.command(
    "list", epilog=examples("dead-letters list -c applier.toml", "dead-letters list -c applier.toml --json")
)
def letters_list(
    config: ConfigFile,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """List the dead letters, newest first. Needs no Spark."""
    given = loaded(config)
    from rich.console import Console  # noqa: PLC0415

    from applier.commands import dead_letters  # noqa: PLC0415

    found = dead_letters.found(given)
    if as_json:
        print(dead_letters.to_json(found))
    else:
        dead_letters.render(found, Console())


@letters_app.command("show", epilog=examples("dead-letters show shop/0:4711 -c applier.toml --show-values"))
def letters_show(
    place: Annotated[str, typer.Argument(help="topic/partition:offset, as `list` shows it.")],
    config: ConfigFile,
    *,
    show_values: Annotated[
        bool, typer.Option("--show-values", help="Print key and value, which may hold rows.")
    ] = False,
) -> None:
    """Show one dead letter. Needs no Spark."""
    given = loaded(config)
    from rich.console import Console  # noqa: PLC0415

    from applier.commands import dead_letters  # noqa: PLC0415

    dead_letters.render_one(dead_letters.content(given, place), Console(), values=show_values)


@letters_app.command(
    "discard",
    epilog=examples(
        "dead-letters discard shop/0:4711 -c applier.toml --why 'test message'",
        "dead-letters discard --all -c applier.toml --why 'all of one broken sender'",
    ),
)
def letters_discard(
    config: ConfigFile,
    places: Annotated[list[str] | None, typer.Argument(help="Places as `list` shows them.")] = None,
    *,
    why: Annotated[str, typer.Option(help="Why these messages need not be applied; the control table keeps it.")],
    every: Annotated[bool, typer.Option("--all", help="Discard all of them.")] = False,
    take_over: TakeOver = False,
) -> None:
    """Discard dead letters, while `run` is stopped."""
    if bool(places) == every:
        raise ConfigError(["Name the dead letters to discard, or say --all."])
    given = loaded(config, "warning")
    from applier.commands import dead_letters  # noqa: PLC0415

    discarded = dead_letters.discard(given, places or [], why, take_over=take_over)
    print(f"Discarded: {len(discarded)}.")


def _loaded(config: Path, log_level: str, archive: str | None = None, **asked: bool) -> Config:
    """The configuration for a command that starts Spark, once `before_spark.refuse` has let it; see there."""
    found = loaded(config, log_level)
    from applier.commands.before_spark import refuse  # noqa: PLC0415
    from applier.runtime.logs import announce  # noqa: PLC0415

    if archive is not None:
        from applier.commands.backfill.command import from_archive  # noqa: PLC0415

        found = from_archive(found, archive)
    refuse(found, **asked)
    announce("starting Spark …")
    return found


def _show(report: Any, render: Callable[[Any, Any], None], *, as_json: bool) -> None:
    from rich.console import Console  # noqa: PLC0415

    if as_json:
        print(report.to_json())
    else:
        render(report, Console())


def _show_version(asked: bool) -> None:  # noqa: FBT001 - typer hands it over by position
    if asked:
        from applier.runtime.versions import commit, versions  # noqa: PLC0415

        release, *others = versions()
        print("applier {} (commit {}, Python {}, Spark {}, Iceberg {})".format(release, commit(), *others))
        raise typer.Exit


_FIRST = ("init applier.toml --servers broker:9092 --topics shop", "check -c applier.toml", "run -c applier.toml")


@app.callback(epilog=examples(*_FIRST))
def _commands(
    *,
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show versions, and do nothing else."),
    ] = False,
) -> None:
    """Keeps Apache Iceberg tables equal to a TiDB database, from its TiCDC changefeed."""


def main() -> None:
    """Run a command; an error becomes one sentence on standard error and an exit code."""
    with_streams()
    try:
        command = get_command(app)
        # Typer's own way of running a command ends with 1 where a pipe is closed, which is the code of a verdict.
        with command.make_context("applier", sys.argv[1:]) as context:
            command.invoke(context)
        end = flushed(Ending(0))
    except typer.Exit as request:
        end = flushed(Ending(request.exit_code))
    except (Exception, KeyboardInterrupt, SystemExit) as error:  # noqa: BLE001 - no user is to read a traceback
        end = ending_of(error)
    if end.text:
        with suppress(OSError):
            print(with_file(end.text), file=sys.stderr, flush=True)
    sys.exit(end.code)
