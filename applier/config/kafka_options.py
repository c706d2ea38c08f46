"""Names the option of Kafka's clients that a misspelt `kafka.*` key means."""

from __future__ import annotations

import difflib
import re
import warnings

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


def option_meant(key: str) -> str | None:
    """The `kafka.*` option that a key means which is misspelt or lacks the prefix; None if it is like none."""
    name = key.removeprefix("kafka.")
    return f"kafka.{name}" if name in _NAMES else near_miss(name)


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
