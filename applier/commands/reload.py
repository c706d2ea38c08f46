"""Command `reload`: the process that holds a changefeed takes up its changed configuration file."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from applier.changefeed.checkpoint import RequestOutcome
from applier.commands.tables.command import Say, is_held, requested, waited
from applier.config import settings
from applier.config.readers import refuse_unreadable
from applier.config.settings import Config
from applier.errors import ConfigError
from applier.pipeline.build import supplied
from applier.pipeline.step import Pipeline
from applier.pipeline.tables import layouts
from applier.sink.control.whereabouts import ForeignLake
from applier.wording import several

TAKEN_UP = ("tables", "ddl", "sink", "maintenance", "run", "upstream")
"""Sections that a running process takes up; each other one belongs to what lives as long as the process."""


def reload(config: Config, say: Say) -> str:
    """Ask for it and wait for the outcome, which is returned in words; without a holder there is nothing to ask.

    Raises:
        ConfigError: The holder refuses the file, and goes on as before; or it cannot be asked, as the file names
            another lake.
        CheckpointConflict: The control tables of the changefeed are gone.
        TerminalError: The holder has ended, and no process has come. The request is kept.
        TransientError: The catalog does not answer.
    """
    file = Path(*shlex.split(config.path)).absolute()
    try:
        is_asked = is_held(config)
    except ForeignLake as error:
        # The process cannot be asked: the file leads to no lake of its own.
        what = f"{_differing(['catalog'], file)} from that of the lake, which a running process does not take up"
        raise ForeignLake([f"{what}: change it back. {' '.join(error.problems)}"]) from error
    if not is_asked:
        what = f"No process holds changefeed {config.changefeed.name} of the catalog that {file} names"
        return f"{what}: `applier run -c {config.path}` reads the file when it starts."
    return waited(config, requested("reload", (), ""), say, comes_back=False)


def read_again(main: Pipeline) -> tuple[Config | None, RequestOutcome]:
    """The file of a configuration as it is now, None where it is the same; and what becomes of a request to read it.

    Raises:
        ConfigError: The file is wrong, a section differs that a running process cannot change, or a new layout, or a
            new shape of rows, does not fit an existing table.
    """
    config = main.config
    given = Path(*shlex.split(config.path))
    found = settings.load(given)
    differs = [name for name in Config.model_fields if getattr(found, name) != getattr(config, name)]
    file = given.absolute()
    if fixed := [name for name in differs if name not in TAKEN_UP]:
        what = f"{_differing(fixed, file)}, which a running process does not take up"
        raise ConfigError([f"{what}: restart `applier run`."])
    # A start refuses the same, and would end the process.
    refuse_unreadable(found.tables.readers, found.tables.format_version)
    supplied(found, main.state)
    if moved := [name for name in main.state.tables if config.route.identifier(name) != found.route.identifier(name)]:
        names = several(list(map(str, moved)))
        raise ConfigError([f"The route of {names} differs, and a table that exists stays where it is: change it back."])
    wrong = layouts.misfits(main.state, main.targets, found.tables, config.tables)
    if wrong := [*wrong, *layouts.misshapen(main.state, main.targets, found, config)]:
        raise ConfigError(wrong)
    if not differs:
        return None, RequestOutcome("reloaded", notes=(f"Nothing differs in {file}.",))
    return found, RequestOutcome("reloaded", notes=(f"{_differing(differs, file)}, and `applier run` begins anew.",))


def _differing(names: Sequence[str], file: Path) -> str:
    shown = several([f"[{name}]" for name in names])
    return f"Section {shown} of {file} differs" if len(names) == 1 else f"Sections {shown} of {file} differ"
