"""Command `dead-letters`: the messages that were set aside, and the decision to give some of them up."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from rich.console import Console

from applier.changefeed.message import HIDDEN
from applier.commands.catalog_reader import open_lake
from applier.commands.control_reader import ControlView
from applier.config.settings import Config
from applier.errors import ConfigError
from applier.pipeline.build import assembled
from applier.pipeline.step import Pipeline
from applier.pipeline.tables import completeness
from applier.runtime.escaping import Text, escaped, grid
from applier.runtime.logs import logger
from applier.sink.control.rows import DeadLetter

_BYTES = 2_000
"""Bytes of a key or a value that are shown."""


def found(config: Config, *, whole: bool = False) -> list[DeadLetter]:
    """All dead letters that are neither made up for nor given up, newest first; `whole` ones with their bytes.

    Raises NeverRan where the catalog has no such changefeed, and what `open_lake` does.
    """
    with open_lake(config.catalog) as lake:
        view = ControlView(lake, config.changefeed.name)
        view.refuse_unknown()
        return view.letters(whole=whole)


def content(config: Config, place: str) -> DeadLetter:
    """The dead letter at `topic/partition:offset`, with the bytes of its key and its value; ConfigError for none."""
    return _chosen(found(config, whole=True), [place])[0]


def discard(config: Config, places: Sequence[str], why: str, *, take_over: bool = False) -> list[DeadLetter]:
    """Give dead letters up: `status` no longer counts them, and `backfill --dead-letters` leaves them out.

    Places are those of `content`; () for all. The control table keeps the messages, and for each of them the reason.

    Raises:
        ConfigError: No reason is given, or there is no such dead letter.
        CheckpointConflict: Another applier holds the changefeed.
    """
    if not why.strip():
        raise ConfigError(["--why is empty: say why these messages need not be applied."])
    chosen = _chosen(found(config), places)
    wanted = {letter.place for letter in chosen}
    with assembled(config, take_over=take_over) as pipeline:
        letters = [item for item in pipeline.state.control.letters() if item.place in wanted]
        end_letters(pipeline, letters, f"discarded: {why}".encode())
        logger().info("dead letters discarded", count=len(letters), because=why)
    return chosen


def end_letters(pipeline: Pipeline, letters: Sequence[DeadLetter], why: bytes | None = None) -> None:
    """Record that dead letters are made up for, or `why` they are given up: one without an error counts as resolved."""
    step = pipeline.state.checkpoint.step
    pipeline.state.control.bury([replace(it, key=None, value=why, error="", step=step) for it in letters])
    completeness.end_letters(pipeline.state, pipeline.targets)


def place_of(letter: DeadLetter) -> str:
    """Where a letter was read: `topic/partition:offset`."""
    return f"{letter.topic}/{letter.partition}:{letter.offset}"


def to_json(letters: Sequence[DeadLetter]) -> str:
    """The list as JSON."""
    names = ("topic", "partition", "offset", "error", "step")
    rows = [
        {
            "place": place_of(letter),
            **{name: getattr(letter, name) for name in names},
            "buried_at": letter.buried_at.isoformat(timespec="milliseconds"),
        }
        for letter in letters
    ]
    return json.dumps(rows, indent=2)


def render(letters: Sequence[DeadLetter], console: Console) -> None:
    """Print the list."""
    if not letters:
        console.print(Text("There are no dead letters."))
        return
    rows = [(place_of(it), it.step, f"{it.buried_at:%F %T}", it.error) for it in letters]
    console.print(grid(f"Dead letters: {len(letters)}", ("place", "step", "set aside (UTC)", "why"), rows))


def render_one(letter: DeadLetter, console: Console, *, values: bool) -> None:
    """Print one letter; its bytes only where they were asked for, as they may hold rows."""
    console.print(Text(escaped(f"place: {place_of(letter)}")))
    for name in ("error", "step", "timestamp", "buried_at"):
        console.print(Text(escaped(f"{name}: {getattr(letter, name)}")))
    for name, data in (("key", letter.key), ("value", letter.value)):
        if HIDDEN in (letter.value, data):
            console.print(Text(f"{name}: not kept, as columns are hidden under [tables]"))
            continue
        size = "null" if data is None else f"{len(data)} bytes"
        text = "" if data is None or not values else f": {data[:_BYTES].decode('utf-8', 'backslashreplace')}"
        console.print(Text(escaped(f"{name}: {size}{text}")))


def _chosen(letters: Sequence[DeadLetter], places: Sequence[str]) -> list[DeadLetter]:
    by_place = {place_of(letter): letter for letter in letters}
    unknown = [place for place in places if place not in by_place]
    if unknown:
        what = f"There is no dead letter at {unknown[0]}: `applier dead-letters list -c FILE` shows the places."
        raise ConfigError([what])
    if not letters:
        raise ConfigError(["There are no dead letters."])
    return [by_place[place] for place in places] or list(letters)
