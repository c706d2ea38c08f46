"""What is asked before Spark starts, in a few seconds: who holds the changefeed, and whether Kafka has its topics."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from applier.commands.catalog_reader import open_lake
from applier.commands.control_reader import ControlView
from applier.config.settings import Config
from applier.consume.spark import topics_alone
from applier.errors import TerminalError, TransientError, Unreachable
from applier.runtime import terminal
from applier.runtime.logs import logger
from applier.runtime.stop_requests import STOPPING, leaving, stop_signals
from applier.sink.control.control import unix_ms
from applier.sink.control.lease import may_take, process_start, this_process

_SECONDS = 15.0
"""How long the answers may take: what comes later, Spark asks again."""

_ANSWER_SECONDS = 6.0

_FETCHED = ("spark.jars.packages", "spark.jars.ivySettings")
"""Settings by which Spark fetches classes that Kafka's client may need."""


def refuse(
    config: Config, *, take_over: bool = False, takes: bool = True, reads: bool = True, waits: bool = False
) -> None:
    """Refuse what can be seen without Spark; what answers late is asked again by Spark, which waits for it.

    Args:
        config: The configuration.
        take_over: See `pipeline.build.assembled`.
        takes: Whether the command takes the changefeed.
        reads: Whether it reads messages.
        waits: Whether it goes on where no broker can be reached and the changefeed has read from them before.

    Raises:
        CheckpointConflict: Another applier holds the changefeed.
        Unreachable: No address of Kafka resolves, or none accepts a connection.
        SourceLost: There is no such topic.
        OutsideRefused: Kafka refuses the log-in, or its topics.
    """
    looks = [lambda: _lease(config, take_over=take_over)] if takes else []
    asks_kafka = reads and config.source.kafka is not None and not _has_fetched(config)
    looks += [lambda: _topics(config, waits=waits)] if asks_kafka else []
    found: list[Exception] = []
    threads = [threading.Thread(target=_noted, args=(look, found), daemon=True) for look in looks]
    shown = terminal.waiting("asking Kafka and the catalog", passes=True)
    with stop_signals(config.run.stop_seconds), leaving(), STOPPING.waiting(), shown:
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + _SECONDS
        for thread in threads:
            while thread.is_alive() and not found and time.monotonic() < deadline:
                thread.join(0.05)
    if found:
        raise found[0]


def _noted(look: Callable[[], None], found: list[Exception]) -> None:
    """Keep a refusal that would come again in a minute of Spark; anything else is met there, or has passed by then."""
    try:
        look()
    except (TerminalError, Unreachable) as error:
        found.append(error)
    except Exception:  # noqa: BLE001, S110 - whatever it is, Spark's way to the same system decides
        pass


def _has_fetched(config: Config) -> bool:
    return any(key in config.spark for key in _FETCHED)


def _lease(config: Config, *, take_over: bool) -> None:
    with open_lake(config.catalog) as lake:
        last = ControlView(lake, config.changefeed.name).checkpoint()
    now = unix_ms()
    may_take(last, this_process(now), now, config.run.lease_seconds, process_start, take_over=take_over)


def _topics(config: Config, *, waits: bool) -> None:
    try:
        with topics_alone(config, _ANSWER_SECONDS) as topics:
            topics.bounds()
    except TransientError as error:
        if isinstance(error, Unreachable) and not (waits and _may_have_run(config)):
            raise
        # Who gave a wrong port learns of it now, and not once Spark has started.
        logger().warning("no answer before Spark", error=str(error))


def _may_have_run(config: Config) -> bool:
    """Whether the changefeed has a checkpoint; also where the catalog does not say, as its brokers may be right."""
    try:
        with open_lake(config.catalog) as lake:
            return ControlView(lake, config.changefeed.name).checkpoint() is not None
    except Exception:  # noqa: BLE001 - whatever it is, Spark's way to the catalog decides
        return True
