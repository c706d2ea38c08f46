"""The section `[source]` of the configuration: where the messages are, and how many are read at once."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from applier.changefeed.message import MAX_MESSAGE_BYTES
from applier.config.kafka_options import near_miss

SourceEngine = Literal["auto", "driver", "spark"]


class KafkaSection(BaseModel):
    """Kafka, read by its own consumer or by Spark's tasks; every `kafka.*` key goes to the clients as it is."""

    model_config = ConfigDict(frozen=True, extra="allow", use_attribute_docstrings=True)

    topics: tuple[str, ...] = ()
    """Topics of the changefeed."""
    topic_pattern: str | None = None
    """Java regular expression for the topics, instead of `topics`."""

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

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    archive: str | None = None
    """Folder of *.jsonl, *.jsonl.gz or *.parquet."""
    kafka: KafkaSection | None = None
    """A Kafka cluster."""
    messages_per_step: Annotated[int, Field(ge=1)] = 500_000
    """Messages that one step reads at the most."""
    bytes_per_step: Annotated[int, Field(ge=1024)] = 2**30
    """Bytes of messages, as Kafka holds them, that one step reads at the most, in each process that decodes. A window
    that has more is read again as a shorter one."""
    max_message_bytes: Annotated[int, Field(ge=1024)] = MAX_MESSAGE_BYTES
    """Bytes of one message, as Kafka holds it, in the claim-check storage, and decompressed. A larger one is a bad
    message (`changefeed.on_bad_message`). The default holds a row of TiDB's default limit (6 MiB) with its old values
    in every protocol; raise it with `txn-entry-size-limit`."""
    engine: SourceEngine = "auto"
    """Messages are decoded in the driver, for a backlog with other processes beside it, or in Spark's tasks; `auto`
    takes these for large steps where four or more run at once."""
    missing_offsets: Literal["stop", "pass"] = "stop"
    """Offsets that hold no message stop the job, or are counted: compaction loses rows by them."""

    @model_validator(mode="after")
    def _check(self) -> SourceSection:
        if (self.archive is None) == (self.kafka is None):
            msg = "exactly one of archive and [source.kafka] is needed"
            raise ValueError(msg)
        return self
