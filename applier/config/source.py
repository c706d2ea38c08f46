"""The section `[source]` of the configuration: where the messages are, and how many are read at once."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from applier.changefeed.message import MAX_MESSAGE_BYTES
from applier.config.kafka_options import near_miss

SourceEngine = Literal["auto", "driver", "spark"]


class KafkaSection(BaseModel):
    """Kafka, read by its own consumer or by Spark's tasks; every `kafka.*` key goes to the clients as it is."""

    model_config = ConfigDict(frozen=True, extra="allow")

    topics: Annotated[tuple[str, ...], Field(description="Topics of the changefeed.")] = ()
    topic_pattern: Annotated[
        str | None, Field(description="Java regular expression for the topics, instead of `topics`.")
    ] = None

    @model_validator(mode="after")
    def _check(self) -> KafkaSection:
        problems = [f"unknown key {key!r}" for key in self.options if not key.startswith("kafka.")]
        problems += [
            f'Kafka has no option "{key}", did you mean "{meant}"'
            for key in self.options
            if key.startswith("kafka.") and (meant := near_miss(key)) is not None
        ]
        if bool(self.topics) == bool(self.topic_pattern):
            problems.append("exactly one of topics and topic_pattern is needed")
        if "kafka.bootstrap.servers" not in self.options:
            problems.append('"kafka.bootstrap.servers" is missing')
        if problems:
            raise ValueError("; ".join(problems))
        return self

    @property
    def options(self) -> dict[str, str]:
        """Options for Spark's Kafka source."""
        return {key: str(value) for key, value in (self.__pydantic_extra__ or {}).items()}


class SourceSection(BaseModel):
    """Where the messages are; exactly one of `archive` and `kafka`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    archive: Annotated[str | None, Field(description="Folder of *.jsonl, *.jsonl.gz or *.parquet.")] = None
    kafka: Annotated[KafkaSection | None, Field(description="A Kafka cluster.")] = None
    messages_per_step: Annotated[int, Field(ge=1, description="Messages that one step reads at the most.")] = 500_000
    bytes_per_step: Annotated[
        int,
        Field(
            ge=1024,
            description="Bytes of messages, as Kafka holds them, that one step reads at the most, in each process that "
            "decodes. A window that has more is read again as a shorter one.",
        ),
    ] = 2**30
    max_message_bytes: Annotated[
        int,
        Field(
            ge=1024,
            description="Bytes of one message, as Kafka holds it, in the claim-check storage, and decompressed. A "
            "larger one is a bad message (`changefeed.on_bad_message`). The default holds a row of TiDB's default "
            "limit (6 MiB) with its old values in every protocol; raise it with `txn-entry-size-limit`.",
        ),
    ] = MAX_MESSAGE_BYTES
    engine: Annotated[
        SourceEngine,
        Field(
            description="Messages are decoded in the driver, for a backlog with other processes beside it, or in "
            "Spark's tasks; `auto` takes these for large steps where four or more run at once."
        ),
    ] = "auto"
    missing_offsets: Annotated[
        Literal["stop", "pass"],
        Field(description="Offsets that hold no message stop the job, or are counted: compaction loses rows by them."),
    ] = "stop"

    @model_validator(mode="after")
    def _check(self) -> SourceSection:
        if (self.archive is None) == (self.kafka is None):
            msg = "exactly one of archive and [source.kafka] is needed"
            raise ValueError(msg)
        return self
