"""What needs no Spark is refused before it starts."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from applier import cli
from applier.changefeed.checkpoint import Checkpoint, Holder, Lease
from applier.commands import before_spark
from applier.commands.before_spark import refuse
from applier.commands.control_reader import ControlView
from applier.errors import CheckpointConflict, ConfigError, OutsideRefused, SourceLost, TransientError, Unreachable
from applier.runtime.logs import set_up_logging
from applier.sink.control.control import unix_ms
from tests.unit.commands.check.world import World

HELD = Checkpoint(Lease(1, Holder("token", "elsewhere")), 1, 7, 0)


def kafka(monkeypatch: pytest.MonkeyPatch, world: World, error: Exception | None) -> World:
    """Let Kafka answer, or fail."""

    def bounds() -> dict[Any, Any]:
        if error is not None:
            raise error
        return {}

    @contextmanager
    def alone(*_: object) -> Iterator[Any]:
        yield SimpleNamespace(bounds=bounds)

    monkeypatch.setattr(before_spark, "topics_alone", alone)
    world.raw["source"] = {"kafka": {"topics": ["t"], "kafka.bootstrap.servers": "b:9092"}}
    return world


@pytest.mark.parametrize("error", [SourceLost("No topic."), OutsideRefused("No log-in."), Unreachable("No host.")])
def test_what_kafka_would_refuse_again_ends_the_command(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each with its own sentence, also for a command that takes no changefeed."""
    world = kafka(monkeypatch, World(tmp_path), error)

    for takes in (True, False):
        with pytest.raises(type(error), match=str(error)):
            refuse(world.config, takes=takes)


@pytest.mark.parametrize("error", [None, TransientError("Away."), ConfigError(["No Java."]), RuntimeError("?")])
def test_what_may_pass_is_left_to_spark(
    error: Exception | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that answers late may be busy, and a library may be absent that only this look needs."""
    refuse(kafka(monkeypatch, World(tmp_path), error).config)


@pytest.mark.parametrize("answer", [HELD, TransientError("No catalog."), None])
def test_a_run_waits_for_brokers_only_where_it_may_have_read_from_them(
    answer: Checkpoint | Exception | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A first run, and whatever a person waits for, ends within seconds where nothing listens."""

    def checkpoint(_: object) -> Checkpoint | None:
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(ControlView, "checkpoint", checkpoint)
    config = kafka(monkeypatch, World(tmp_path), Unreachable("Connection refused.", "check the port.")).config

    with nullcontext() if answer else pytest.raises(Unreachable, match="check the port"):
        refuse(config, waits=True)
    with pytest.raises(Unreachable, match="check the port"):
        refuse(config)


def test_an_outage_is_said_before_spark_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Who gave a wrong port need not wait for Spark to learn of it."""
    set_up_logging()
    refuse(kafka(monkeypatch, World(tmp_path), TransientError("No broker.", "check the port.")).config)

    told = json.loads(capsys.readouterr().err)
    assert (told["event"], told["error"]) == (
        "no answer before Spark",
        "No broker. Hint: check the port.",
    )


def test_packages_that_spark_fetches_may_be_kafkas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without them its client would lack classes."""
    world = kafka(monkeypatch, World(tmp_path), OutsideRefused("A class is missing."))
    world.raw["spark"] = {"spark.jars.packages": "software.amazon.msk:aws-msk-iam-auth:2.3.0"}

    refuse(world.config)


def test_a_command_that_reads_no_message_needs_no_topic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`adopt` and `ddl skip` end what holds a changefeed up, also while its topic is away."""
    config = kafka(monkeypatch, World(tmp_path), OutsideRefused("There is no such topic.")).config

    refuse(config, reads=False)


def test_a_changefeed_that_another_process_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is refused as the lease refuses it; `--take-over` and a command that takes none go on."""
    config = World(tmp_path).config
    monkeypatch.setattr(ControlView, "checkpoint", lambda _: replace(HELD, written_at=unix_ms()))

    with pytest.raises(CheckpointConflict, match=r"The changefeed is held by .*elsewhere"):
        refuse(config)
    refuse(config, take_over=True)
    refuse(config, takes=False)
    monkeypatch.setattr(ControlView, "checkpoint", lambda _: HELD)
    refuse(config)


@pytest.mark.parametrize("take_over", [(), ("--take-over",)])
def test_a_port_that_the_holder_has_names_the_holder(
    take_over: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The lease comes first: another port would not help."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        world = kafka(monkeypatch, World(tmp_path), None)
        world.raw["http"] = {"port": taken.getsockname()[1]}
        monkeypatch.setattr(cli, "loaded", lambda *_: world.config)
        monkeypatch.setattr(sys, "argv", ["applier", "run", "-c", "applier.toml", *take_over])

        monkeypatch.setattr(ControlView, "checkpoint", lambda _: replace(HELD, written_at=unix_ms()))
        with pytest.raises(SystemExit) as ended:
            cli.main()
        held = capsys.readouterr().err
        assert (ended.value.code, "The changefeed is held by" in held, "http.port" in held) == (3, True, False)

        monkeypatch.setattr(ControlView, "checkpoint", lambda _: HELD)
        with pytest.raises(SystemExit) as ended:
            cli.main()
        assert (ended.value.code, "http.port: cannot listen on" in capsys.readouterr().err) == (2, True)
