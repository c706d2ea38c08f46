"""A real SIGTERM and a real SIGINT: in a step, idle, and in each wait for an outside system."""

from __future__ import annotations

import signal
import socket
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests import recordings
from tests.recovery.process import Applier
from tests.replay import Replay, differences, replay

TERM_FIRST = [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.soak)]
"""`make test` sends one signal in each of these places, and `make test-recovery` both."""

INT_FIRST = [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.soak)]
"""As above."""

NOWHERE = "127.0.0.1:9"
"""An address at which nothing listens."""

BACKFILL = ("--from", "beginning", "--log-level", "info")
"""All that the source has."""

SECONDS = 20.0
"""Far below the five minutes that an outage is waited for, and far above what a loaded machine needs to stop."""


def feed(folder: Path, protocol: str = "simple", variant: str = "simple-json") -> Replay:
    """A replay with a catalog of its own."""
    lake = {"type": "jdbc", "uri": f"jdbc:sqlite:{folder}/catalog.db", "warehouse": f"{folder}/tables"}
    return replay("pk", variant, lake, folder, protocol)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """The database of the catalog, locked by another process."""
    somebody = sqlite3.connect(folder / "catalog.db", isolation_level=None)
    try:
        somebody.execute("PRAGMA journal_mode=DELETE")
        somebody.execute("BEGIN EXCLUSIVE")
        yield
    finally:
        somebody.close()


@cache
def _silent() -> socket.socket:
    """A socket that accepts connections and says nothing; where nothing listens, a first run ends at once."""
    return socket.create_server(("127.0.0.1", 0))


def without_kafka(folder: Path) -> dict[str, Any]:
    """A changefeed whose Kafka does not answer."""
    config = feed(folder).raw
    address = f"127.0.0.1:{_silent().getsockname()[1]}"
    return config | {"source": {"kafka": {"topics": ["t"], "kafka.bootstrap.servers": address}}}


def without_registry(folder: Path) -> dict[str, Any]:
    """A changefeed whose schema registry does not answer."""
    config = feed(folder, "avro", "avro-precise").raw
    return config | {"registry": {"url": f"http://{NOWHERE}"}}


def stopped(applier: Applier, number: signal.Signals) -> str:
    """Stop an applier, check how it ends, and return what it said beside its log."""
    begin = time.monotonic()
    ended = applier.end(number)
    seconds = time.monotonic() - begin
    assert ended.code == 0, ended.everything
    assert "Traceback" not in ended.everything, ended.everything
    assert seconds < SECONDS, f"{seconds:.1f} s: {ended.everything}"
    said = " ".join(ended.said.split())
    assert said.count(". ") <= 2, said
    return said


@pytest.mark.parametrize("number", TERM_FIRST)
def test_the_step_under_way_is_finished_first(number: signal.Signals, tmp_path: Path) -> None:
    """A signal in a step ends the run after it with exit 0, and the next run goes on to the end."""
    found = feed(tmp_path)
    found.raw["source"]["messages_per_step"] = 40
    applier = Applier(found.raw, tmp_path)
    applier.until("step")

    stopped(applier, number)

    following = Applier(found.raw, tmp_path, "--once")
    assert following.wait().taken["because"].endswith("released it")
    assert differences(found, recordings.expected("pk")[-1]) == []


@pytest.mark.soak
@pytest.mark.parametrize("number", INT_FIRST)
def test_an_idle_run_stops(number: signal.Signals, tmp_path: Path) -> None:
    """A signal while nothing comes ends the run with exit 0."""
    applier = Applier(feed(tmp_path).raw, tmp_path)
    applier.until("step")
    time.sleep(3)

    stopped(applier, number)


@pytest.mark.soak
@pytest.mark.parametrize("number", TERM_FIRST)
@pytest.mark.parametrize("config", [without_kafka, without_registry])
def test_a_wait_for_an_outside_system_is_left_at_once(
    config: Callable[[Path], dict[str, Any]], number: signal.Signals, tmp_path: Path
) -> None:
    """A signal while Kafka or the registry does not answer ends the run with exit 0."""
    applier = Applier(config(tmp_path), tmp_path)
    applier.until("waiting for an outside system")

    stopped(applier, number)


@pytest.mark.parametrize("number", INT_FIRST)
def test_a_start_of_spark_is_left_at_once(number: signal.Signals, tmp_path: Path) -> None:
    """A signal while Spark starts ends the run with exit 0, and the changefeed is not taken."""
    found = feed(tmp_path)
    found.raw["catalog"]["uri"] = f"jdbc:sqlite:{tmp_path}/new.db"
    applier = Applier(found.raw, tmp_path)
    applier.until("catalog is new")

    ended = applier.end(number)

    assert (ended.code, ended.said) == (0, "Stopped while waiting; nothing was left half done."), ended.everything
    events = [event["event"] for event in ended.events]
    assert events[:2] == ["starting Spark", "catalog is new"]
    # A quick machine may have Spark by the time that the signal comes.
    assert events[2:] in ([], ["Spark is started"])


@pytest.mark.soak
@pytest.mark.parametrize("number", INT_FIRST)
def test_a_wait_for_the_catalog_is_left_at_once(number: signal.Signals, tmp_path: Path) -> None:
    """A signal while the database of the catalog is locked ends the run with exit 0."""
    found = feed(tmp_path)
    Applier(found.raw, tmp_path, "--once").wait()
    with locked(tmp_path):
        applier = Applier(found.raw, tmp_path)
        applier.until("waiting for an outside system")

        stopped(applier, number)


@pytest.mark.soak
@pytest.mark.parametrize("number", TERM_FIRST)
def test_a_backfill_finishes_its_step_first(number: signal.Signals, tmp_path: Path) -> None:
    """A signal in a step ends a backfill after it with exit 0, and the same command goes on to the end."""
    found = feed(tmp_path)
    found.raw["source"]["messages_per_step"] = 40
    applier = Applier(found.raw, tmp_path, *BACKFILL, command="backfill")
    applier.until("step")

    said = stopped(applier, number)

    assert said.endswith("The backfill was stopped before the end: the same command goes on from here.")
    ended = Applier(found.raw, tmp_path, *BACKFILL, command="backfill").wait()
    assert ended.code == 0, ended.everything
    assert differences(found, recordings.expected("pk")[-1]) == []


@pytest.mark.parametrize("number", INT_FIRST)
@pytest.mark.parametrize("config", [pytest.param(without_kafka, marks=pytest.mark.soak), without_registry])
def test_a_backfill_leaves_a_wait_for_an_outside_system_at_once(
    config: Callable[[Path], dict[str, Any]], number: signal.Signals, tmp_path: Path
) -> None:
    """A signal while Kafka or the registry does not answer ends a backfill with exit 0."""
    applier = Applier(config(tmp_path), tmp_path, *BACKFILL, command="backfill")
    applier.until("waiting for an outside system")

    stopped(applier, number)


@pytest.mark.soak
@pytest.mark.parametrize("number", TERM_FIRST)
def test_a_backfill_leaves_a_wait_for_the_catalog_at_once(number: signal.Signals, tmp_path: Path) -> None:
    """A signal while the database of the catalog is locked ends a backfill with exit 0."""
    found = feed(tmp_path)
    Applier(found.raw, tmp_path, "--once").wait()
    with locked(tmp_path):
        applier = Applier(found.raw, tmp_path, *BACKFILL, command="backfill")
        applier.until("waiting for an outside system")

        stopped(applier, number)


@pytest.mark.soak
def test_a_second_signal_ends_the_process(tmp_path: Path) -> None:
    """Whoever cannot wait for the step sends the signal again."""
    found = feed(tmp_path)
    applier = Applier(found.raw, tmp_path)
    applier.until("changefeed taken")
    applier.send(signal.SIGTERM)

    ended = applier.end(signal.SIGTERM)

    assert ended.code in (0, -signal.SIGTERM)
