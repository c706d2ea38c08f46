"""What is asked before Spark starts, in a few seconds: who holds the changefeed, and whether Kafka has its topics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

from applier.changefeed.checkpoint import Checkpoint
from applier.changefeed.message import TopicPartition
from applier.changefeed.window import OffsetRange
from applier.commands.control_reader import newest_checkpoint
from applier.config.settings import Config
from applier.consume.spark import topics_alone
from applier.errors import ConfigError, SourceLost, TerminalError, TransientError, Unreachable
from applier.runtime import terminal
from applier.runtime.logs import logger
from applier.runtime.stop_requests import STOPPING, leaving, stop_signals
from applier.runtime.threads import Asking, ask_all
from applier.sink.control.control import unix_ms
from applier.sink.control.lease import may_take, process_start, this_process
from applier.sink.control.whereabouts import ForeignLake
from applier.watch.server import PortTaken

_SECONDS = 15.0
"""How long the answers may take: what comes later, Spark asks again."""

_ANSWER_SECONDS = 6.0

_FETCHED = ("spark.jars.packages", "spark.jars.ivySettings")
"""Settings by which Spark fetches classes that Kafka's client may need."""


def refuse(
    config: Config, *, take_over: bool = False, takes: bool = True, reads: bool = True, waits: bool = False
) -> None:
    """Refuse what can be seen without Spark; what answers late is asked again by Spark, which waits for it.

    The command `takes` the changefeed (for `take_over` see `pipeline.build.assembled`), `reads` messages, and `waits`
    where no broker can be reached and the changefeed has read from them before.

    Raises:
        CheckpointConflict: Another applier holds the changefeed.
        ForeignLake: The catalog is a copy of that of another lake.
        Unreachable: No address of Kafka resolves, or none accepts a connection.
        SourceLost: There is no such topic, or none that the pattern matches.
        OutsideRefused: Kafka refuses the log-in, or its topics.
    """
    asks_kafka = reads and config.source.kafka is not None and not any(key in config.spark for key in _FETCHED)

    def look() -> Checkpoint | None:
        last = newest_checkpoint(config)
        if takes:
            refuse_held(config, last, take_over=take_over)
        return last

    catalog = Asking("catalog", [("checkpoint", look)])
    kafka = Asking("Kafka", [("topics", lambda: _look_at_topics(config))] if asks_kafka else [])

    def is_lasting(one: Asking) -> bool:
        """Whether it would come again in a minute of Spark; anything else is met there, or has passed by then."""
        lasting = (TerminalError, ForeignLake)
        return isinstance(one.error, lasting if waits else (*lasting, Unreachable))

    shown = terminal.waiting("asking Kafka and the catalog", passes=True)
    with stop_signals(config.run.stop_seconds), leaving(), STOPPING.waiting(), shown:
        ask_all([catalog, kafka], _SECONDS, is_lasting)
    for one in (catalog, kafka):
        if one.error is not None and is_lasting(one):
            raise one.error
    if isinstance(kafka.error, TransientError):
        # A catalog that does not say leaves open whether the changefeed has run, as its brokers may be right.
        if isinstance(kafka.error, Unreachable) and catalog.answers == [("checkpoint", None)]:
            raise kafka.error
        # A wrong port is named now, and not once Spark has started.
        logger().warning("no answer before Spark", error=str(kafka.error))


def refuse_held(config: Config, last: Checkpoint | None, *, take_over: bool = False) -> None:
    """Refuse, by CheckpointConflict, a changefeed that another process holds, as the lease will."""
    now = unix_ms()
    may_take(last, this_process(now), now, config.run.lease_seconds, process_start, take_over=take_over)


@contextmanager
def naming_holder(config: Config) -> Iterator[None]:
    """Raise CheckpointConflict for a port of the page that is taken while another process holds the changefeed.

    It is that process which listens there, also where it is to be taken over from.
    """
    try:
        yield
    except PortTaken:
        with suppress(TransientError, ConfigError):
            refuse_held(config, newest_checkpoint(config))
        raise


def refuse_no_topic(config: Config, bounds: Mapping[TopicPartition, OffsetRange]) -> None:
    """Refuse, by SourceLost, a pattern that matches no topic that the user may describe."""
    kafka = config.source.kafka
    if not bounds and kafka is not None and kafka.topic_pattern:
        right = "and that this user has the right Describe on the topics"
        hint = f"check source.kafka.topic_pattern, {right}; TiCDC makes topics when the changefeed starts."
        raise SourceLost(f"No topic of Kafka matches {kafka.topic_pattern}.", hint)


def _look_at_topics(config: Config) -> None:
    with topics_alone(config, _ANSWER_SECONDS) as topics:
        refuse_no_topic(config, topics.bounds())
