"""Reads the messages of a window: by Kafka's consumer, in the driver or in Spark's tasks, or from an archive."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import IllegalArgumentException, PySparkException, PythonException
from pyspark.sql import SparkSession

from applier.changefeed.message import Messages, TopicPartition
from applier.changefeed.window import OffsetRange, Window
from applier.config.settings import Config
from applier.config.source import KafkaSection, SourceSection
from applier.consume.archive import Archive, in_windows, partitions
from applier.consume.kafka.addresses import other_protocol, refuse_unreachable
from applier.consume.kafka.admin import KafkaAdmin
from applier.consume.kafka.client import FETCH_SIZE, KafkaClient, KafkaSilentError
from applier.consume.kafka.spark import in_blocks, topic_blocks
from applier.consume.kafka.stores import refused_store
from applier.consume.source import Blocks
from applier.consume.staging_folder import full_temporary_folder
from applier.consume.tasks.plan import readings
from applier.consume.tasks.spark import is_result_too_large
from applier.consume.window_size import Limits
from applier.errors import ConfigError, OutsideRefused, SourceLost, TerminalError, TransientError
from applier.runtime.jvm import jars
from applier.runtime.jvm.bare_jvm import bare_jvm
from applier.runtime.logs import Guard
from applier.runtime.outages import OUTAGES
from applier.runtime.permanent_errors import KAFKA, SPARK, chain_of, refusal, told
from applier.runtime.places import Places
from applier.runtime.stop_requests import STOPPING
from applier.runtime.tasks.task_error import PYTHON, defect, is_outage

_USUAL = {
    # How long a broker may wait for more to come. A window ends where the topic did, so what comes later is not read;
    # but a consumer that asked for it at the end of one step cannot read again, in the next, before it is answered:
    # with Kafka's 500 ms each step that reads held rows again took a second longer.
    "fetch.max.wait.ms": "5",
    # What the system may hold of a connection, as it sees fit: with Kafka's 64 KiB a broker waits while messages are
    # taken out of what came, and each gigabyte is read in sixteen thousand pieces.
    "receive.buffer.bytes": "-1",
}
"""Options of Kafka's clients where the configuration does not set them."""

_LOOK_BYTES = 64 * 2**10
"""Bytes that a broker may send of a partition at once where a few messages are looked up, as those above."""

_CHUNK_BYTES = 16 * 2**20
"""Bytes that are read while the same amount is decoded."""

_SILENT = "Reading from Kafka failed: no message came for a minute, though the topic has more."
_AGAIN = "the read is tried again; check the brokers."


_LOST = (
    "the window is read again; executors that end for want of memory need more of it: spark.executor.memoryOverhead, "
    "for Python, or spark.executor.memory."
)

_MEMORY = ("OutOfMemoryError", "MemoryError")
"""How Java and Python say that there is no more of it."""


class ArchiveSource(Archive):
    """An archive as a `Source`; arguments as of `Archive`, behind the session."""

    parts_partitions = False

    def __init__(self, spark: SparkSession, folder: Path, staging: Path) -> None:
        super().__init__(folder, staging)
        self._spark = spark

    def topic_ids(self) -> Mapping[str, str]:
        """See `Source`; records do not show it."""
        return {}

    def show_offsets(self, offsets: Mapping[TopicPartition, int]) -> None:
        """See `Source`; files have no such tools."""

    def blocks(self, window: Window, limits: Limits, slots: int) -> Blocks:
        """See `Source`; one task reads each partition."""
        del limits, slots
        parts = partitions(window)
        return Blocks(self._spark.sparkContext.parallelize(parts, len(parts)), partial(in_windows, self.files))

    def reading(self) -> AbstractContextManager[None]:
        """See `Source`."""
        return reading()


class KafkaTopics:
    """The topics of a Kafka cluster, as far as looking at them needs no Spark: only Kafka's clients in a JVM.

    The section's `kafka.*` options go, without the prefix, to Kafka's clients. An answer of the admin client may take
    some seconds, or what Kafka allows.
    """

    def __init__(self, jvm: Any, section: SourceSection, group: str, seconds: float | None = None) -> None:
        kafka = cast("KafkaSection", section.kafka)
        given = {key.removeprefix("kafka."): value for key, value in kafka.options.items()}
        self._options = {"group.id": group, **_USUAL, **given}
        self._servers = self._options.get("bootstrap.servers", "")
        self._was_reached = False
        self._topics = kafka.topics
        self._pattern = kafka.topic_pattern
        limits = {} if seconds is None else {"timeout_ms": int(seconds * 1000)}
        self._admin = KafkaAdmin(jvm, self._options, **limits)
        self._look_ups = KafkaClient(jvm, {FETCH_SIZE: str(_LOOK_BYTES), **self._options}, section.bytes_per_step)
        self._clients: list[KafkaAdmin | KafkaClient] = [self._look_ups, self._admin]

    def bounds(self) -> Mapping[TopicPartition, OffsetRange]:
        """See `Source`."""
        with self._asking():
            return self._admin.bounds(self._names())

    def topic_ids(self) -> Mapping[str, str]:
        """See `Source`; brokers before 2.8 give none."""
        with self._asking():
            return self._admin.topic_ids(self._names())

    def resolved(self, read: Mapping[TopicPartition, int], applied: int) -> None:
        """See `Source`; messages show it."""

    def offsets_at(self, milliseconds: int) -> Mapping[TopicPartition, int]:
        """See `Source`."""
        with self._asking():
            return self._admin.offsets_at(self._names(), milliseconds)

    def collect(self, window: Window) -> Messages:
        """See `Source`."""
        with self.reading():
            return self._look_ups.read(window)

    def close(self) -> None:
        """End the connections to the brokers."""
        for client in self._clients:
            with suppress(Py4JError):  # Where the JVM is gone, they are.
                client.close()

    def _names(self) -> Sequence[str]:
        return self._admin.matching(self._pattern) if self._pattern else self._topics

    def _missing(self) -> Sequence[str]:
        """Topics that the cluster does not have; all of them where it does not say."""
        with suppress(Py4JError):
            found = set(self._admin.matching(".*"))
            return [topic for topic in self._topics if topic not in found] or self._topics
        return self._topics

    def reading(self) -> AbstractContextManager[None]:
        """See `Source`."""
        return reading(self._options)

    @contextmanager
    def _asking(self) -> Iterator[None]:
        try:
            # A request that only reads changes nothing, so a stop need not wait for the answer.
            with STOPPING.waiting(), OUTAGES.asking("source", f"Kafka at {self._servers}"):
                if not self._was_reached:
                    refuse_unreachable(self._servers)
                    self._was_reached = True
                yield
        except IllegalArgumentException as error:
            # PySpark gives this name to an error of Java's pattern compiler.
            if not self._pattern:
                raise
            reason = str(error).splitlines()[0]
            raise ConfigError([f"source.kafka.topic_pattern: is no regular expression of Java: {reason}."]) from error
        except Py4JJavaError as error:
            raise self._refusal(error) from error

    def _refusal(self, error: Py4JJavaError) -> TransientError | SourceLost | OutsideRefused:
        servers = self._servers
        chain = chain_of(error, self._options)
        if any("UnknownTopicOrPartition" in cause.kind for cause in chain):
            hint = "check source.kafka.topics; TiCDC makes the topic when the changefeed starts."
            return SourceLost(f"Kafka at {servers} has no topic {', '.join(self._missing())}.", hint)
        is_unseen = any(cause.kind == "TopicAuthorizationException" for cause in chain)
        about = f" about {', '.join(self._missing())}" if is_unseen else ""
        if lasting := refused_store(self._options) or refusal(
            f"Kafka at {servers} cannot be asked{about}", chain, KAFKA
        ):
            return lasting
        if otherwise := other_protocol(servers, self._options.get("security.protocol", "PLAINTEXT")):
            return otherwise
        hint = "check the address and the network; a listener that is secured otherwise may look like one that is down."
        return TransientError(f"Kafka at {servers} does not answer: {told(chain)}", hint)


@contextmanager
def topics_alone(config: Config, seconds: float | None = None) -> Iterator[KafkaTopics]:
    """The topics of a configuration without Spark, by a JVM of their own that ends with the block.

    Raises:
        ConfigError: No Java was found, or it does not start.
        Unreachable: No address of Kafka resolves, or none accepts a connection.
        TransientError: The jars cannot be fetched.
    """
    if config.source.kafka is not None:
        refuse_unreachable(config.source.kafka.options.get("kafka.bootstrap.servers", ""))
    spark = config.spark
    given = [*spark.get("spark.jars", "").split(","), *spark.get("spark.driver.extraClassPath", "").split(os.pathsep)]
    options = shlex.split(spark.get("spark.driver.extraJavaOptions", ""))
    with bare_jvm([*jars.fetch("spark"), *filter(None, map(str.strip, given))], options) as jvm:
        group = f"applier-{config.changefeed.name}"
        with closing(KafkaTopics(jvm, config.source, group, seconds)) as topics:
            yield topics


class KafkaSource(KafkaTopics):
    """A Kafka cluster as a `Source`, read by Kafka's consumer in the driver or in Spark's tasks.

    Arguments as of `KafkaTopics`, behind the session.
    """

    parts_partitions = True

    def __init__(self, spark: SparkSession, section: SourceSection, group: str) -> None:
        jvm = spark._jvm  # noqa: SLF001 - the one way to Kafka's clients in Spark's JVM
        super().__init__(jvm, section, group)
        self._spark = spark
        self._client = KafkaClient(jvm, self._options, section.bytes_per_step)
        self._clients.append(self._client)
        self._shown_group = cast("KafkaSection", section.kafka).consumer_group
        self._showing = Guard("offsets not shown to Kafka")

    def read(self, window: Window) -> Messages:
        """See `Source`."""
        with self.reading():
            return self._client.read(window)

    def chunks(self, window: Window) -> Iterator[Messages]:
        """See `Source`."""
        return self._client.chunks(window, _CHUNK_BYTES)

    def show_offsets(self, offsets: Mapping[TopicPartition, int]) -> None:
        """See `Source`: those of `source.kafka.consumer_group`."""
        if self._shown_group is not None:
            with self._showing.block():
                self._admin.show_offsets(self._shown_group, offsets)

    def blocks(self, window: Window, limits: Limits, slots: int) -> Blocks:
        """See `Source`."""
        parts = readings(window, limits.at_once, slots, limits.unsplit)
        return Blocks(topic_blocks(self._spark, parts, self._options, limits.at_once), in_blocks)


def places(spark: SparkSession, engine: str) -> Places:
    """Where rows run, by `source.engine`: with `auto` in this machine's processes if all tasks run here, too.

    There a process that decodes what another reads costs half as much as tasks do.
    """
    is_elsewhere = not (spark.sparkContext.master or "").startswith("local")
    return Places(engine == "spark" or (engine == "auto" and is_elsewhere), engine == "spark")


@contextmanager
def reading(options: Mapping[str, str] = MappingProxyType({})) -> Iterator[None]:
    """Raise what Spark and Kafka raise in the block as errors of a source; options as of `read_refusal`."""
    try:
        yield
    except KafkaSilentError:
        raise TransientError(_SILENT, _AGAIN) from None
    except (Py4JJavaError, PySparkException) as error:
        raise read_refusal(error, options) from error


def read_refusal(error: Exception, options: Mapping[str, str] = MappingProxyType({})) -> TransientError | TerminalError:
    """The error for a failed read: offsets are gone, a broker does not answer, or no retry can help.

    What `options` of a client hold of secrets is not in it.
    """
    text = str(error)
    if (isinstance(error, PythonException) or PYTHON in text) and not is_outage(text):
        return defect(text)
    chain = chain_of(error, options)
    if "ExecutorLostFailure" in text:
        return TransientError(f"Spark lost the executors of a job: {told(chain)}", _LOST)
    if any(cause.kind == "SparkException" for cause in chain) and any(cause.kind in _MEMORY for cause in chain):
        return TransientError(f"Tasks have not enough memory: {told(chain)}", _LOST)
    if is_result_too_large(error):
        return OutsideRefused("Rows do not fit into spark.driver.maxResultSize.", "raise it, and spark.driver.memory.")
    if "OffsetOutOfRange" in text or "data may have been lost" in text.lower() or "KAFKA_DATA_LOSS" in text:
        return SourceLost(f"Kafka no longer has the offsets to read: {told(chain)}", "see docs/runbook.md.")
    if lasting := refusal("Messages cannot be read", chain, (*KAFKA, *SPARK)):
        return lasting
    if any(cause.kind == "IOException" for cause in chain) and (full := full_temporary_folder()) is not None:
        return full
    return TransientError(f"Reading from Kafka failed: {told(chain)}", _AGAIN)
