"""The section `[source]` of the configuration: where the messages are, and how many are read at once."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, model_validator

from applier.changefeed.message import MAX_MESSAGE_BYTES
from applier.config.kafka_options import broken_pattern, near_miss, option_meant
from applier.config.section import Section, refuse

SourceEngine = Literal["auto", "driver", "spark"]


class KafkaSection(Section):
    """Kafka, read by its own consumer or by Spark's tasks; every `kafka.*` key goes to the clients as it is."""

    model_config = ConfigDict(extra="allow")

    topics: tuple[str, ...] = ()
    """Topics of the changefeed."""
    topic_pattern: str | None = None
    """Java regular expression for the topics, instead of `topics`."""

    @classmethod
    def takes(cls, key: str) -> bool:
        """See `Section`."""
        return super().takes(key) or (key.startswith("kafka.") and near_miss(key) is None)

    @classmethod
    def meant(cls, key: str) -> str | None:
        """See `Section`; options of Kafka's clients need their prefix."""
        return option_meant(key) or super().meant(key)

    @classmethod
    def instead(cls, key: str, value: Any) -> str:
        """See `Section`."""
        return f"{super().instead(key, value)}, and options of Kafka's clients, which begin with `kafka.`"

    @model_validator(mode="after")
    def _check(self) -> KafkaSection:
        problems = {}
        if self.topics and self.topic_pattern:
            problems["topic_pattern"] = "excludes topics: exactly one of them is needed"
        elif not self.topics and not self.topic_pattern:
            problems["topics"] = "missing: exactly one of topics and topic_pattern is needed"
        if self.topic_pattern and (reason := broken_pattern(self.topic_pattern)):
            problems["topic_pattern"] = f"is no regular expression: {reason}"
        if "kafka.bootstrap.servers" not in self.options:
            problems["kafka.bootstrap.servers"] = "missing"
        refuse(problems)
        return self

    @property
    def lacks_login(self) -> bool:
        """Whether the clients are to log in by SASL, and no option says how."""
        protocol = self.options.get("kafka.security.protocol", "")
        return protocol.upper().startswith("SASL") and not self.options.get("kafka.sasl.jaas.config")

    @property
    def options(self) -> dict[str, str]:
        """Options of Kafka's clients, with the prefix `kafka.`."""
        return {key: str(value) for key, value in (self.__pydantic_extra__ or {}).items()}


class SourceSection(Section):
    """Where the messages are; exactly one of `archive` and `kafka`."""

    archive: str | None = None
    """Folder of *.jsonl, *.jsonl.gz or *.parquet."""
    kafka: KafkaSection | None = None
    """A Kafka cluster."""
    messages_per_step: Annotated[int, Field(ge=1)] = 500_000
    """Messages that one step reads at the most; on a cluster, where it is not set, for [each core](cluster.md#size)."""
    bytes_per_step: Annotated[int, Field(ge=1024)] = 2**30
    """Bytes of messages, as Kafka holds them, that one step reads at the most, in each process that decodes. A window
    that has more is read again as a shorter one."""
    max_message_bytes: Annotated[int, Field(ge=1024)] = MAX_MESSAGE_BYTES
    """Bytes of one message, as Kafka holds it, in the claim-check storage, and decompressed. A larger one is a bad
    message (`changefeed.on_bad_message`). The default holds a row of TiDB's default limit (6 MiB) with its old values
    in every protocol; raise it with `txn-entry-size-limit`."""
    engine: SourceEngine = "auto"
    """Messages are decoded in the driver, for a backlog with other processes beside it, or in Spark's tasks, where the
    rows [stay](cluster.md#what-runs-where); `auto` takes tasks for large windows on a cluster."""
    missing_offsets: Literal["stop", "pass"] = "stop"
    """`stop` on offsets without a message (compaction loses rows), or `pass` and count."""

    @model_validator(mode="after")
    def _check(self) -> SourceSection:
        if self.archive is not None and self.kafka is not None:
            refuse({"archive": "excludes [source.kafka]: exactly one of them is needed"})
        if self.archive is None and self.kafka is None:
            refuse({"kafka": "missing: exactly one of archive and [source.kafka] is needed"})
        return self


def dotted(nested: dict[str, Any]) -> dict[str, Any]:
    """Options of Kafka by their full names, of tables that TOML makes of dots."""
    flat: dict[str, Any] = {}
    for key, value in nested.items():
        if isinstance(value, dict):
            flat.update({f"{key}.{inner}": item for inner, item in dotted(value).items()})
        else:
            flat[key] = value
    return flat
