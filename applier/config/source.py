"""The section `[source]` of the configuration: where the messages are, and how many are read at once."""

from __future__ import annotations

import difflib
import re
import warnings
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, model_validator

from applier.changefeed.message import MAX_MESSAGE_BYTES
from applier.config.section import Section, refuse

_NAMES = frozenset(
    """
allow.auto.create.topics auto.commit.interval.ms auto.include.jmx.reporter auto.offset.reset bootstrap.controllers
bootstrap.servers check.crcs client.dns.lookup client.id client.rack connections.max.idle.ms default.api.timeout.ms
enable.auto.commit enable.metrics.push exclude.internal.topics fetch.max.bytes fetch.max.wait.ms fetch.min.bytes
group.id group.instance.id group.protocol group.remote.assignor heartbeat.interval.ms interceptor.classes
isolation.level key.deserializer max.partition.fetch.bytes max.poll.interval.ms max.poll.records metadata.max.age.ms
metadata.recovery.strategy metric.reporters metrics.num.samples metrics.recording.level metrics.sample.window.ms
partition.assignment.strategy receive.buffer.bytes reconnect.backoff.max.ms reconnect.backoff.ms request.timeout.ms
retries retry.backoff.max.ms retry.backoff.ms sasl.client.callback.handler.class sasl.jaas.config
sasl.kerberos.kinit.cmd sasl.kerberos.min.time.before.relogin sasl.kerberos.service.name
sasl.kerberos.ticket.renew.jitter sasl.kerberos.ticket.renew.window.factor sasl.login.callback.handler.class
sasl.login.class sasl.login.connect.timeout.ms sasl.login.read.timeout.ms sasl.login.refresh.buffer.seconds
sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor sasl.login.refresh.window.jitter
sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms sasl.mechanism sasl.oauthbearer.clock.skew.seconds
sasl.oauthbearer.expected.audience sasl.oauthbearer.expected.issuer sasl.oauthbearer.header.urlencode
sasl.oauthbearer.jwks.endpoint.refresh.ms sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms
sasl.oauthbearer.jwks.endpoint.retry.backoff.ms sasl.oauthbearer.jwks.endpoint.url sasl.oauthbearer.scope.claim.name
sasl.oauthbearer.sub.claim.name sasl.oauthbearer.token.endpoint.url security.protocol security.providers
send.buffer.bytes session.timeout.ms socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms
ssl.cipher.suites ssl.enabled.protocols ssl.endpoint.identification.algorithm ssl.engine.factory.class
ssl.key.password ssl.keymanager.algorithm ssl.keystore.certificate.chain ssl.keystore.key ssl.keystore.location
ssl.keystore.password ssl.keystore.type ssl.protocol ssl.provider ssl.secure.random.implementation
ssl.trustmanager.algorithm ssl.truststore.certificates ssl.truststore.location ssl.truststore.password
ssl.truststore.type value.deserializer
""".split()  # noqa: SIM905 - a list of literals, one a line, would fill two screens
)
"""What the consumer and the admin client of Kafka 3.9 take."""

_NEAR = 0.85
"""Likeness from which on a name is a misspelling; plug-ins of Kafka's clients may read names of their own."""


def near_miss(key: str) -> str | None:
    """The option that was probably meant by a `kafka.*` key; None for a known one, and for one that is like none.

    Kafka's clients pass over options that they do not know, so a misspelling would change nothing in silence.
    """
    name = key.removeprefix("kafka.")
    if name in _NAMES:
        return None
    close = difflib.get_close_matches(name, _NAMES, n=1, cutoff=_NEAR)
    return f"kafka.{close[0]}" if close else None


_MECHANISMS = {
    "PlainLoginModule": ("PLAIN",),
    "ScramLoginModule": ("SCRAM-SHA-256", "SCRAM-SHA-512"),
    "OAuthBearerLoginModule": ("OAUTHBEARER",),
    "Krb5LoginModule": ("GSSAPI",),
}
"""Values of `kafka.sasl.mechanism` that each login module of Kafka and Java serves; plug-ins have others."""

_USUAL_MECHANISM = "GSSAPI"
"""What Kafka's clients take where `kafka.sasl.mechanism` is not set."""


def login_problems(options: Mapping[str, str]) -> dict[str, str]:
    """Options by which no log-in can come about, and why; Kafka's clients take them for a broker that is down."""
    protocol = options.get("kafka.security.protocol", "PLAINTEXT")
    login = options.get("kafka.sasl.jaas.config", "").split()
    if not login:
        return {}
    if not protocol.upper().startswith("SASL"):
        return {
            "kafka.sasl.jaas.config": f"has no effect with kafka.security.protocol {protocol}: write SASL_SSL there"
        }
    module = login[0].rpartition(".")[2]
    fitting = _MECHANISMS.get(module, ())
    if not fitting or options.get("kafka.sasl.mechanism", _USUAL_MECHANISM) in fitting:
        return {}
    return {"kafka.sasl.mechanism": f"must be {' or '.join(fitting)} with the {module} of kafka.sasl.jaas.config"}


_BROKEN = {
    "missing ), unterminated subpattern": "a parenthesis is not closed",
    "unbalanced parenthesis": "a parenthesis was never opened",
    "unterminated character set": "a bracket is not closed",
    "nothing to repeat": "nothing stands before a repetition",
    "bad escape (end of pattern)": "a backslash is its end",
}
"""What Python says of patterns that Java refuses as well."""


def broken_pattern(pattern: str) -> str | None:
    """Why a Java regular expression is none, as far as Python shows it: the two differ in rare constructs."""
    if r"\Q" in pattern:
        return None
    try:
        with warnings.catch_warnings(action="ignore"):
            re.compile(pattern)
    except re.error as error:
        return _BROKEN.get(error.msg)
    return None


class KafkaSection(Section):
    """Kafka, read by its own consumer or by Spark's tasks; every `kafka.*` key goes to the clients as it is."""

    model_config = ConfigDict(extra="allow")

    topics: tuple[str, ...] = ()
    """Topics of the changefeed."""
    topic_pattern: str | None = None
    """Java regular expression for the topics, instead of `topics`."""
    consumer_group: Annotated[str | None, Field(min_length=1)] = None
    """Consumer group that shows Kafka's own tools the offsets of the checkpoint, after each step of `run`. Nothing
    reads them back. Default: none."""

    @classmethod
    def unknown(cls, key: str, value: Any) -> tuple[str | None, str] | None:
        """See `Section`; options of Kafka's clients need their prefix."""
        found, option = super().unknown(key, value), near_miss(key)
        if found is None or (key.startswith("kafka.") and option is None):
            return None
        meant = (f"kafka.{key}" if key in _NAMES else option) or found[0]
        return meant, f"{found[1]}, and options of Kafka's clients, which begin with `kafka.`"

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
        problems |= login_problems(self.options)
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


_FILE_BYTES = 1 << 30
"""Bytes of a file of the storage sink beyond which it is refused: TiCDC's `file-size` is 512 MiB at the most."""


class StoredCsvSection(Section):
    """How the storage sink writes CSV: the keys of `[sink.csv]` of the changefeed, where they are not TiCDC's
    defaults. It needs `include-commit-ts = true` there. Files that do not fit are refused.
    """

    delimiter: Annotated[str, Field(min_length=1, max_length=3)] = ","
    """`delimiter`."""
    quote: str = '"'
    """`quote`; an empty one is refused."""
    null: str = "\\N"
    """`null`."""
    binary_encoding_method: Literal["base64", "hex"] = "base64"
    """`binary-encoding-method`."""
    output_old_value: bool = False
    """`output-old-value`."""

    @model_validator(mode="after")
    def _check(self) -> StoredCsvSection:
        if len(self.quote) != 1 or not self.quote.isascii() or _is_content(self.quote):
            refuse({"quote": "must be one ASCII character that is no letter, digit or backslash and in no number"})
        if any(map(_is_content, self.delimiter)):
            refuse({"delimiter": "holds a letter, a digit, a backslash, an end of a line or a part of a number"})
        if self.quote in self.delimiter:
            refuse({"quote": "is a part of the delimiter: TiCDC refuses that as well"})
        if self.quote in self.null or self.delimiter in self.null or {"\r", "\n"} & {*self.null}:
            refuse({"null": "holds the quote, the delimiter or an end of a line: let TiCDC write another null"})
        if re.fullmatch(r"[-+.0-9eE]+|true|false", self.null):
            refuse({"null": "may be a number, which has no quotes either: let TiCDC write another null"})
        return self


def _is_content(character: str) -> bool:
    """Whether values without quotes hold a character, or the reader takes it for another's."""
    return (character.isascii() and character.isalnum()) or character in "+-.\\\r\n\0"


class StorageSection(Section):
    """A folder that TiCDC's cloud storage sink writes, read as it grows."""

    uri: Annotated[str, Field(min_length=1)]
    """Its address, as of TiCDC's `sink-uri` without the parameters: `s3://bucket/prefix`, `gs://bucket/prefix`,
    `file:///folder` or a path. For S3 the variables AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION and
    AWS_ENDPOINT_URL count, and roles."""
    csv: StoredCsvSection = StoredCsvSection()
    """How it writes CSV, with `changefeed.protocol = "csv"`."""

    @model_validator(mode="after")
    def _check(self) -> StorageSection:
        if "?" in self.uri:
            refuse({"uri": "has parameters: leave out `?` and all that follows"})
        return self


_PLACES = "archive, [source.kafka] and [source.storage]"


class SourceSection(Section):
    """Where the messages are; exactly one of `archive`, `kafka` and `storage`."""

    archive: str | None = None
    """Folder of *.jsonl, *.jsonl.gz or *.parquet."""
    kafka: KafkaSection | None = None
    """A Kafka cluster."""
    storage: StorageSection | None = None
    """A folder of TiCDC's cloud storage sink."""
    messages_per_step: Annotated[int, Field(ge=1)] = 500_000
    """Messages that one step reads at the most; on a cluster, where it is not set, for [each core](cluster.md#size)."""
    bytes_per_step: Annotated[int, Field(ge=1024)] = 2**30
    """Bytes of messages, as Kafka holds them, that one step reads at the most, in each process that decodes. A window
    that has more is read again as a shorter one."""
    max_message_bytes: Annotated[int, Field(ge=1024)] = MAX_MESSAGE_BYTES
    """Bytes of one message, as Kafka holds it, in the claim-check storage, and decompressed. A larger one is a bad
    message (`changefeed.on_bad_message`). The default holds a row of TiDB's default limit (6 MiB) with its old values
    in every protocol; raise it with `txn-entry-size-limit`."""
    engine: Literal["auto", "driver", "spark"] = "auto"
    """Messages are decoded in the driver, for a backlog with other processes beside it, or in Spark's tasks, where the
    rows [stay](cluster.md#what-runs-where); `auto` takes tasks for large windows on a cluster."""
    missing_offsets: Literal["stop", "pass"] = "stop"
    """`stop` on offsets without a message (compaction loses rows), or `pass` and count."""

    @model_validator(mode="after")
    def _check(self) -> SourceSection:
        given = [name for name in ("archive", "kafka", "storage") if getattr(self, name) is not None]
        if len(given) > 1:
            refuse({given[0]: f"excludes [source.{given[1]}]: exactly one of {_PLACES} is needed"})
        if not given:
            refuse({"kafka": f"missing: exactly one of {_PLACES} is needed"})
        return self

    @property
    def is_bounded(self) -> bool:
        """Whether nothing is added to it while it is read: what was there at the start is all."""
        return self.archive is not None

    @property
    def most_bytes(self) -> int:
        """Bytes of a message beyond which it is refused; a file of the storage sink is one."""
        return self.max_message_bytes if self.storage is None else _FILE_BYTES


def dotted(nested: dict[str, Any]) -> dict[str, Any]:
    """Options of Kafka by their full names, of tables that TOML makes of dots."""
    flat: dict[str, Any] = {}
    for key, value in nested.items():
        if isinstance(value, dict):
            flat.update({f"{key}.{inner}": item for inner, item in dotted(value).items()})
        else:
            flat[key] = value
    return flat
