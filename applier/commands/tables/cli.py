"""The command line of what asks the holder of a changefeed: `park`, `resume`, `forget` and `reload`."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from applier.changefeed.filter import rules_of
from applier.runtime.escaping import escaped

if TYPE_CHECKING:
    from applier.config.settings import Config
    from applier.sink.control.rows import Kind

app = typer.Typer()

_given: list[Path] = []


def _remember(path: Path) -> Path:
    _given[:] = [path]
    return path


def with_file(text: str) -> str:
    """A message whose commands name the configuration file as the user gave it, in place of FILE."""
    return text.replace(" -c FILE", f" -c {shlex.quote(str(_given[0]))}") if _given else text


ConfigFile = Annotated[
    Path,
    typer.Option(
        "--config",
        "-c",
        envvar="APPLIER_CONFIG",
        help="Configuration file (TOML).",
        show_default=False,
        callback=_remember,
    ),
]
Tables = Annotated[
    str,
    typer.Option(
        help="Rules that choose tables, by commas: shop.a is one, shop.b* all that begin so, !shop.b1 none of them."
    ),
]
Plan = Annotated[bool, typer.Option("--plan", help="Show what the command would do, and do nothing.")]
TakeOver = Annotated[
    bool, typer.Option("--take-over", help="Take the changefeed even if another applier seems to hold it.")
]
LogLevel = Annotated[
    Literal["debug", "info", "warning", "error"],
    typer.Option(help="Write log events of this level and above to standard error."),
]


def loaded(config: Path, log_level: str | None = None) -> Config:
    """The configuration; with a level, for a command that logs. Imports wait, as `--help` must not load Spark."""
    from applier.config import settings  # noqa: PLC0415
    from applier.runtime.logs import set_up_logging  # noqa: PLC0415

    if log_level is not None:
        set_up_logging(log_level)
    return settings.load(config)


def say(line: str) -> None:
    """Show a line to the user, at once."""
    print(escaped(line), flush=True)


def examples(*lines: str) -> str:
    """The end of a help text: commands to paste, each on a line of its own."""
    return "\n".join(["\b", "Examples:", *(f"  applier {line}" for line in lines)])


@app.command(epilog=examples("park -c applier.toml --tables shop.orders --why 'type change upstream'"))
def park(
    config: ConfigFile,
    tables: Tables,
    why: Annotated[str, typer.Option(help="The reason; the checkpoint keeps it.")] = "",
    *,
    plan: Plan = False,
    take_over: TakeOver = False,
    log_level: LogLevel = "warning",
) -> None:
    """Stop applying rows and DDL to tables, also while `run` goes on. Readers keep their last true snapshot."""
    _ask("park", config, tables, why, plan=plan, take_over=take_over, log_level=log_level)


@app.command(
    epilog=examples("resume -c applier.toml --tables shop.orders --plan", "resume -c applier.toml --tables 'shop.*'")
)
def resume(
    config: ConfigFile,
    tables: Tables,
    *,
    plan: Plan = False,
    take_over: TakeOver = False,
    log_level: LogLevel = "warning",
) -> None:
    """Bring tables back, also while `run` goes on: read what they miss, then show it in one commit a table."""
    _ask("resume", config, tables, "", plan=plan, take_over=take_over, log_level=log_level)


@app.command(
    epilog=examples("forget -c applier.toml --tables shop.old --plan", "forget -c applier.toml --tables shop.old")
)
def forget(
    config: ConfigFile,
    tables: Annotated[str, typer.Option(help="Filter rules of tables that are left out. Default: all of it.")] = "",
    *,
    plan: Plan = False,
    take_over: TakeOver = False,
    log_level: LogLevel = "warning",
) -> None:
    """Forget tables, or the whole changefeed while `run` is stopped. No data file is ever removed."""
    if tables:
        _ask("forget", config, tables, "", plan=plan, take_over=take_over, log_level=log_level)
        return
    found = loaded(config, log_level)
    from applier.commands.tables.forget_changefeed import forget_changefeed, planned  # noqa: PLC0415

    for sentence in planned(found) if plan else forget_changefeed(found, take_over=take_over):
        say(sentence)


@app.command(epilog=examples("reload -c applier.toml"))
def reload(config: ConfigFile, *, log_level: LogLevel = "warning") -> None:
    """Let `run` take up its changed configuration file, without a restart. Starts no Spark."""
    found = loaded(config, log_level)
    from applier.commands.reload import reload as ask  # noqa: PLC0415

    outcome = ask(found, say)
    say(outcome[:1].upper() + outcome[1:])


def _ask(kind: Kind, config: Path, tables: str, why: str, *, plan: bool, take_over: bool, log_level: str) -> None:
    found, rules = loaded(config, log_level), rules_of(tables)
    from applier.commands.tables.command import ask, planned  # noqa: PLC0415

    if plan:
        for sentence in planned(found, kind, rules):
            say(sentence)
        return
    outcome = ask(found, kind, rules, why, say, take_over=take_over)
    say(outcome[:1].upper() + outcome[1:])
