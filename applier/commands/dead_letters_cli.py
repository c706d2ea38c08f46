"""The command group `dead-letters` of the command line."""

from __future__ import annotations

from typing import Annotated

import typer

from applier.commands.tables.cli import ConfigFile, TakeOver, examples, loaded
from applier.errors import ConfigError

app = typer.Typer(help="The messages that were set aside: list them, look at one, discard some.", no_args_is_help=True)


@app.command("list", epilog=examples("dead-letters list -c applier.toml", "dead-letters list -c applier.toml --json"))
def show_all(
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


@app.command(epilog=examples("dead-letters show shop/0:4711 -c applier.toml --show-values"))
def show(
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


@app.command(
    epilog=examples(
        "dead-letters discard shop/0:4711 -c applier.toml --why 'test message'",
        "dead-letters discard --all -c applier.toml --why 'all of one broken sender'",
    )
)
def discard(
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
