"""Brokers that cannot be reached are named at once, and Kafka's client is not asked."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from applier.config.source import SourceSection
from applier.consume.kafka.addresses import other_protocol, refuse_unreachable
from applier.consume.spark import KafkaTopics
from applier.errors import OutsideRefused, TransientError, Unreachable
from applier.runtime.outages import system_of

KEY = "source.kafka.kafka.bootstrap.servers"


@pytest.fixture
def listening() -> Iterator[int]:
    """A port at which a connection is accepted."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture
def closed() -> Iterator[int]:
    """A port that is taken, and at which nobody listens."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


@pytest.fixture
def _name_service(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that knows addresses alone."""

    def connect(place: tuple[str, int], _: float) -> socket.socket:
        if place[0] == "far":
            raise TimeoutError
        if place[0] not in {"127.0.0.1", "::1"}:
            raise socket.gaierror
        return socket.socket()

    monkeypatch.setattr(socket, "create_connection", connect)


def test_a_refused_connection(closed: int) -> None:
    """The hint has host and port, and the outage is one of the source."""
    at = f"127.0.0.1:{closed}"

    with pytest.raises(TransientError) as raised:
        refuse_unreachable(f"SASL_PLAINTEXT://{at}")
    assert str(raised.value) == (
        f"Kafka at SASL_PLAINTEXT://{at} does not answer: Connection refused. "
        f"Hint: check host and port ({at}) in {KEY}, and whether a broker listens there."
    )
    assert system_of(raised.value) == "source"


def test_one_broker_leads_to_the_rest(listening: int, closed: int) -> None:
    """A cluster is there while one of its brokers is."""
    refuse_unreachable(f"127.0.0.1:{closed}, PLAINTEXT://127.0.0.1:{listening}")


@pytest.mark.usefixtures("_name_service")
@pytest.mark.parametrize(
    ("servers", "hosts"),
    [("a:9092", "a"), ("a:9092, b.c:9093,a:9094", "a or b.c"), ("SASL_SSL://a:9092", "a")],
)
def test_hosts_without_an_address(servers: str, hosts: str) -> None:
    """Another name service may know none of them for ever, so that this is no outage to wait for."""
    with pytest.raises(Unreachable) as raised:
        refuse_unreachable(servers)
    assert str(raised.value) == (
        f"The address of Kafka does not resolve: no host {hosts} is known. "
        f"Hint: check the host in {KEY}, and the name service of this machine."
    )


@pytest.mark.usefixtures("_name_service")
def test_each_broker_has_its_own_reason() -> None:
    """They may differ."""
    with pytest.raises(Unreachable, match="a:1: no such host is known; far:2: no connection within 3 seconds") as found:
        refuse_unreachable("far:2,a:1")
    assert "check host and port (a:1 or far:2) in" in found.value.hint


@pytest.mark.parametrize("servers", ["", "a", "a:", "a:port", "a:9092,b", "a:65536", "a:0"])
def test_what_is_no_host_and_port(servers: str) -> None:
    """Kafka's client refuses it as well, and names no place to look at."""
    with pytest.raises(OutsideRefused, match=f"write each address in {KEY} as HOST:PORT"):
        refuse_unreachable(servers)


@pytest.mark.usefixtures("_name_service")
@pytest.mark.parametrize("servers", ["[::1]:9092", "MY-LISTENER://127.0.0.1:1"])
def test_addresses_as_kafka_takes_them(servers: str) -> None:
    """With the name of a listener before them, or of IPv6."""
    refuse_unreachable(servers)


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", struct.pack(">iih", 6, 1, 34)])
def test_what_is_no_broker_shows_nothing(answer: bytes) -> None:
    """A proxy whose broker is down closes the connection, or answers in words of its own."""
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as beside:
        answered = beside.submit(answer_each, server, answer, 2)

        assert other_protocol(f"127.0.0.1:{server.getsockname()[1]}", "SASL_SSL") is None
        answered.result()


def test_a_broker_that_is_down_shows_nothing(closed: int) -> None:
    """It is waited for, whatever the configuration says."""
    assert other_protocol(f"127.0.0.1:{closed}", "SASL_SSL") is None


def test_a_broker_that_is_down_leads_to_the_next(closed: int) -> None:
    """Its answer has Kafka's error code 34, ILLEGAL_SASL_STATE, and the number of the request."""
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as beside:
        answered = beside.submit(answer_each, server, struct.pack(">iih", 6, 7_041_776, 34), 2)
        at = f"127.0.0.1:{server.getsockname()[1]}"

        refused = other_protocol(f"127.0.0.1:{closed},{at}", "SASL_SSL")
        answered.result()
    assert str(refused) == (
        f"Kafka at {at} does not take kafka.security.protocol SASL_SSL: this listener takes plain text, without SASL. "
        'Hint: write "kafka.security.protocol" = "PLAINTEXT" under [source.kafka].'
    )


def answer_each(server: socket.socket, answer: bytes, number: int) -> None:
    """Give so many connections an answer, and close them."""
    for _ in range(number):
        connection, _ = server.accept()
        with connection:
            connection.recv(2**16)
            connection.sendall(answer)


def test_a_broker_that_was_reached_is_not_looked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka's client then knows brokers of its own; what it was told to begin with may be gone."""
    asked: list[str] = []
    monkeypatch.setattr("applier.consume.spark.refuse_unreachable", asked.append)
    section = SourceSection.model_validate({"kafka": {"topics": ["t"], "kafka.bootstrap.servers": "b:9092"}})
    topics = KafkaTopics(None, section, "applier-shop")

    for _ in range(2):
        with topics._asking():
            pass
    assert asked == ["b:9092"]
