"""Windows -> Spark frames of messages: Kafka's batch source with explicit offsets, or a staged archive."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException, PythonException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from applier.changefeed.message import MESSAGE_ORDER, MESSAGE_SCHEMA, TopicPartition
from applier.changefeed.window import OffsetRange, Window
from applier.consume.archive import Archive
from applier.consume.source import Job
from applier.errors import OutsideRefused, SourceLost, TerminalError, TransientError
from applier.outside import refusal

_ADMIN_TIMEOUT_MS = 30_000
_NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"
"""How Kafka writes the id of a topic that has none."""


_FETCH_WAIT_MS = "5"
"""How long a broker may wait for more to come. A window ends where the topic did, so nobody needs what comes later; but
a consumer that asked for it at the end of one step cannot read again, in the next, before it is answered: with Kafka's
500 ms each step that reads held rows again took a second longer."""
_OUTAGE = re.compile(r"applier\.errors\.TransientError|MemoryError|ConnectionError|TimeoutError")
_RAISED = re.compile(r"^([\w.]+(?:Error|Exception|Refused|Interrupt))\b", re.MULTILINE)
_PLACE = re.compile(r'File "(?:[^"]*/)?(applier/[^"]+)", line (\d+)')
"""Parts of the traceback that Spark hands on from a Python worker."""

_WRAPPERS = re.compile(r"^(?:[\w.]+Exception: )+(?=.)")
"""Java's names of the exceptions before what they say."""


class ArchiveSource:
    """An archive as a `Source`."""

    def __init__(self, spark: SparkSession, archive: Archive) -> None:
        self._spark = spark
        self._archive = archive

    def bounds(self) -> Mapping[TopicPartition, OffsetRange]:
        """See `Source`."""
        return self._archive.bounds()

    def topic_ids(self) -> Mapping[str, str]:
        """See `Source`; records do not say it."""
        return {}

    def offsets_at(self, milliseconds: int) -> Mapping[TopicPartition, int]:
        """See `Source`."""
        return self._archive.offsets_at(milliseconds)

    def collect(self, window: Window) -> pa.Table:
        """See `Source`."""
        return self._archive.collect(window)

    def map(self, window: Window, job: Job, schema: str) -> pa.Table:
        """See `Source`."""
        return mapped(self._frame(window), job, schema)

    def _frame(self, window: Window) -> DataFrame:
        frame = self._spark.read.parquet(*self._archive.files).select(*MESSAGE_SCHEMA.names)
        inside = F.lit(False)
        for place, span in window.ranges.items():
            inside = inside | (
                (F.col("topic") == place.topic)
                & (F.col("partition") == place.partition)
                & (F.col("offset") >= span.start)
                & (F.col("offset") < span.end)
            )
        return frame.where(inside)


class KafkaSource:
    """A Kafka cluster as a `Source`, read by Spark's batch source.

    Args:
        spark: The session.
        options: `kafka.*` options of Spark's source; the admin client gets the same without the prefix.
        topics: Topics to read, or
        pattern: a Java regular expression for them.
        group: Consumer group name; a fixed one lets executors reuse their consumers between steps.
    """

    def __init__(
        self, spark: SparkSession, options: Mapping[str, str], topics: tuple[str, ...], pattern: str | None, group: str
    ) -> None:
        self._spark = spark
        self._options = {"kafka.group.id": group, "kafka.fetch.max.wait.ms": _FETCH_WAIT_MS, **options}
        self._topics = topics
        self._pattern = pattern
        self._admin: Any = None

    def bounds(self) -> Mapping[TopicPartition, OffsetRange]:
        """See `Source`."""
        try:
            partitions = self._partitions()
            starts = self._offsets(partitions, lambda spec: spec.earliest())
            ends = self._offsets(partitions, lambda spec: spec.latest())
        except Py4JJavaError as error:
            raise self._refusal(error) from error
        return {place: OffsetRange(starts[place], ends[place]) for place in partitions}

    def topic_ids(self) -> Mapping[str, str]:
        """See `Source`; brokers before 2.8 give none."""
        try:
            ids = {entry.getKey(): str(entry.getValue().topicId().toString()) for entry in self._described()}
        except Py4JJavaError as error:
            raise self._refusal(error) from error
        return {topic: found for topic, found in ids.items() if found != _NO_ID}

    def offsets_at(self, milliseconds: int) -> Mapping[TopicPartition, int]:
        """See `Source`."""
        try:
            partitions = self._partitions()
            found = self._offsets(partitions, lambda spec: spec.forTimestamp(milliseconds))
            ends = self._offsets(partitions, lambda spec: spec.latest())
        except Py4JJavaError as error:
            raise self._refusal(error) from error
        # Kafka answers -1 where every record is older.
        return {place: found[place] if found[place] >= 0 else ends[place] for place in partitions}

    def collect(self, window: Window) -> pa.Table:
        """See `Source`."""
        if not window.ranges:
            return MESSAGE_SCHEMA.empty_table()
        try:
            return self._frame(window).toArrow().cast(MESSAGE_SCHEMA).sort_by(MESSAGE_ORDER)
        except (Py4JJavaError, PySparkException) as error:
            raise read_refusal(error) from error

    def map(self, window: Window, job: Job, schema: str) -> pa.Table:
        """See `Source`."""
        try:
            frame = self._frame(window)
        except PySparkException as error:
            raise read_refusal(error) from error
        return mapped(frame, job, schema)

    def _frame(self, window: Window) -> DataFrame:
        assigned: dict[str, list[int]] = {}
        starts: dict[str, dict[str, int]] = {}
        ends: dict[str, dict[str, int]] = {}
        for place, span in sorted(window.ranges.items()):
            assigned.setdefault(place.topic, []).append(place.partition)
            starts.setdefault(place.topic, {})[str(place.partition)] = span.start
            ends.setdefault(place.topic, {})[str(place.partition)] = span.end
        reader = self._spark.read.format("kafka").options(**self._options)
        reader = reader.option("assign", json.dumps(assigned))
        reader = reader.option("startingOffsets", json.dumps(starts)).option("endingOffsets", json.dumps(ends))
        return reader.load().select(*MESSAGE_SCHEMA.names)

    def close(self) -> None:
        """End the connection that asks for offsets."""
        if self._admin is not None:
            self._admin.close()
            self._admin = None

    def _java(self) -> Any:
        jvm: Any = self._spark._jvm  # noqa: SLF001 - the one way to Kafka's admin client in Spark's JVM
        return jvm

    def _client(self) -> Any:
        if self._admin is None:
            properties = self._java().java.util.Properties()
            for key, value in self._options.items():
                if key != "kafka.group.id":
                    properties.setProperty(key.removeprefix("kafka."), value)
            properties.setProperty("default.api.timeout.ms", str(_ADMIN_TIMEOUT_MS))
            properties.setProperty("request.timeout.ms", str(_ADMIN_TIMEOUT_MS // 2))
            self._admin = self._java().org.apache.kafka.clients.admin.AdminClient.create(properties)
        return self._admin

    def _partitions(self) -> list[TopicPartition]:
        return sorted(
            TopicPartition(entry.getKey(), info.partition())
            for entry in self._described()
            for info in entry.getValue().partitions()
        )

    def _described(self) -> Any:
        """Java's description of each topic."""
        topics = self._java_list(self._matching() if self._pattern else self._topics)
        return self._client().describeTopics(topics).allTopicNames().get().entrySet()

    def _matching(self) -> list[str]:
        pattern = self._java().java.util.regex.Pattern.compile(self._pattern)
        names = self._client().listTopics().names().get()
        return sorted(name for name in names if pattern.matcher(name).matches())

    def _offsets(self, partitions: Iterable[TopicPartition], which: Callable[[Any], Any]) -> dict[TopicPartition, int]:
        java = self._java()
        spec = java.org.apache.kafka.clients.admin.OffsetSpec
        wanted = java.java.util.HashMap()
        for place in partitions:
            key = java.org.apache.kafka.common.TopicPartition(place.topic, place.partition)
            wanted.put(key, which(spec))
        found = self._client().listOffsets(wanted).all().get()
        return {
            TopicPartition(entry.getKey().topic(), entry.getKey().partition()): entry.getValue().offset()
            for entry in found.entrySet()
        }

    def _java_list(self, items: Iterable[str]) -> Any:
        names = self._java().java.util.ArrayList()
        for item in items:
            names.add(item)
        return names

    def _refusal(self, error: Py4JJavaError) -> TransientError | SourceLost | OutsideRefused:
        servers = self._options.get("kafka.bootstrap.servers", "")
        text = str(error.java_exception)
        if "UnknownTopicOrPartition" in text:
            hint = "check source.kafka.topics; TiCDC makes the topic when the changefeed starts."
            return SourceLost(f"Kafka at {servers} has no topic {', '.join(self._topics)}.", hint)
        if lasting := refusal(f"Kafka at {servers} refuses to tell its offsets", (), _first_line(text)):
            return lasting
        hint = "check the address, the network and the kafka.security.* options."
        return TransientError(f"Kafka at {servers} does not answer: {_WRAPPERS.sub('', _first_line(text))}", hint)


def mapped(frame: DataFrame, job: Job, schema: str) -> pa.Table:
    """Run a job over a frame of messages in Spark's tasks; see `Source.map` for errors."""
    try:
        return frame.mapInArrow(job, schema).toArrow()
    except (Py4JJavaError, PySparkException) as error:
        raise read_refusal(error) from error


def read_refusal(error: Exception) -> TransientError | TerminalError:
    """What a failed read means: offsets that are gone, a broker that does not answer, or what no retry can mend."""
    text = str(error)
    if isinstance(error, PythonException) and not _OUTAGE.search(text):
        return _defect(text)
    if "OffsetOutOfRange" in text or "data may have been lost" in text.lower() or "KAFKA_DATA_LOSS" in text:
        return SourceLost(f"Kafka no longer has the offsets to read: {_first_line(text)}", "see docs/what-if.md.")
    if lasting := refusal("Messages cannot be read", [type(error).__name__], _first_line(text)):
        return lasting
    return TransientError(
        f"Reading from Kafka failed: {_first_line(text)}", "the read is tried again; check the brokers."
    )


def _defect(text: str) -> TerminalError:
    """A task of ours failed: its kind and place are told, never its message, which may hold a row."""
    kinds = _RAISED.findall(text)
    places = _PLACE.findall(text)
    where = f" at {places[-1][0]} line {places[-1][1]}" if places else ""
    what = f"A task that decodes messages failed with {kinds[-1] if kinds else 'an unknown error'}{where}."
    return TerminalError(what, "this is a defect of applier, and a retry meets it again: please report it.")


def _first_line(text: str) -> str:
    return text.strip().splitlines()[0][:300] if text.strip() else "no reason given"
