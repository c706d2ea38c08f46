"""An address of Kafka that does not resolve is told from a wrong option."""

from __future__ import annotations

import socket
from typing import Any, cast

import pytest

from applier.config.source import SourceSection
from applier.consume import spark
from applier.consume.kafka.addresses import unresolved
from applier.consume.spark import KafkaTopics
from applier.errors import HostUnknown, OutsideRefused
from applier.runtime.permanent_errors import Cause


@pytest.fixture(autouse=True)
def _name_service(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that knows a single host."""

    def find(host: str, _: object) -> list[str]:
        if host not in {"known", "::1"}:
            raise socket.gaierror
        return [host]

    monkeypatch.setattr(socket, "getaddrinfo", find)


@pytest.mark.parametrize(
    ("servers", "hosts"),
    [
        ("known:9092", []),
        ("a:9092", ["a"]),
        ("a:9092, b.c:9093,a:9094", ["a", "b.c"]),
        ("a:9092,known:9092", []),
        ("[::1]:9092", []),
        ("SASL_SSL://a:9092", ["a"]),
    ],
)
def test_hosts_without_an_address(servers: str, hosts: list[str]) -> None:
    """One that is known leads to the others."""
    assert unresolved(servers) == hosts


@pytest.mark.parametrize(("server", "kind"), [("a:9092", HostUnknown), ("known:9092", OutsideRefused)])
def test_the_host_is_named_and_not_the_password(
    server: str, kind: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka's client raises the same for both."""
    section = SourceSection.model_validate({"kafka": {"topics": ["t"], "kafka.bootstrap.servers": server}})
    chain = (Cause("KafkaException", text="Failed"), Cause("ConfigException", text="No resolvable bootstrap urls"))
    monkeypatch.setattr(spark, "chain_of", lambda _: chain)

    found = KafkaTopics(None, section, "applier-shop")._refusal(cast("Any", None))

    assert type(found) is kind
    if kind is HostUnknown:
        assert str(found) == (
            "The address of Kafka does not resolve: no host a is known. Hint: check the host in "
            "source.kafka.kafka.bootstrap.servers, and the name service of this machine."
        )
