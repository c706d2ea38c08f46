"""Listeners that speak TLS where the client does not, and the other way round, are told from brokers that are down."""

from __future__ import annotations

import shutil
import socket
import ssl
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from applier.consume.kafka.listener import is_met
from applier.errors import OutsideRefused
from tests.services.kafka import Broker

ALERT = bytes.fromhex("15030300020228")
"""A fatal TLS 1.2 alert, handshake_failure (RFC 5246, 7.2)."""


@contextmanager
def listener(answer: Callable[[socket.socket], None]) -> Iterator[str]:
    """A server that answers each connection, and its address."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    try:
                        answer(connection)
                    except OSError:
                        continue

        threading.Thread(target=serve, daemon=True).start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)


def hang_up(connection: socket.socket) -> None:
    """Close the connection once something came, as brokers do with what they cannot read."""
    connection.recv(64)


def alert(connection: socket.socket) -> None:
    """Answer anything with a TLS alert."""
    connection.recv(1024)
    connection.sendall(ALERT)


def kafka_alone(connection: socket.socket) -> None:
    """Answer Kafka's request and hang up on anything else, as a listener without TLS does."""
    request = connection.recv(1024)
    size, key = struct.unpack(">ih", request[:6])
    if (size, key) == (len(request) - 4, 18):
        connection.sendall(struct.pack(">i", 10) + request[8:12] + bytes(6))


def options(server: str, protocol: str | None) -> dict[str, str]:
    """Options of a client."""
    given = {"kafka.security.protocol": protocol} if protocol else {}
    return {"kafka.bootstrap.servers": server} | given


@pytest.mark.parametrize("protocol", [None, "PLAINTEXT", "SASL_PLAINTEXT"])
@pytest.mark.parametrize("answer", [alert])
def test_a_client_without_tls_at_a_tls_port_is_refused(
    answer: Callable[[socket.socket], None], protocol: str | None
) -> None:
    """The sentence names the server and what to set."""
    with listener(answer) as server, pytest.raises(OutsideRefused) as raised:
        is_met(options(server, protocol))

    assert (
        raised.value.what == f"Kafka at {server} speaks TLS, and kafka.security.protocol is {protocol or 'PLAINTEXT'}."
    )
    assert raised.value.hint == 'set "kafka.security.protocol" to SSL or SASL_SSL, or name a port without TLS.'


@pytest.mark.parametrize("protocol", ["SSL", "SASL_SSL"])
def test_a_client_with_tls_at_a_port_without_is_refused(protocol: str) -> None:
    """The listener hangs up on TLS and answers a request of Kafka."""
    with listener(kafka_alone) as server, pytest.raises(OutsideRefused, match=f"{server} does not speak TLS, and"):
        is_met(options(server, protocol))


@pytest.mark.parametrize(("answer", "protocol"), [(kafka_alone, "PLAINTEXT"), (alert, "SSL")])
def test_a_listener_that_speaks_as_the_client_is_met(answer: Callable[[socket.socket], None], protocol: str) -> None:
    """An alert is TLS, too: which certificates fit is for Kafka's client to say."""
    with listener(answer) as server:
        assert is_met(options(server, protocol))


@pytest.mark.parametrize("protocol", ["SSL", "PLAINTEXT"])
def test_a_listener_that_hangs_up_may_be_one_that_starts(protocol: str) -> None:
    """Nothing is known then, as of one that is not there: Kafka's client waits for it."""
    with listener(hang_up) as server:
        assert not is_met(options(server, protocol))
    assert not is_met(options("127.0.0.1:9", protocol))


@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes the server's certificate")
def test_a_server_with_a_certificate_is_known_by_both(tmp_path: Path) -> None:
    """A real handshake, and a real refusal of what is none."""
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=x"]
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    subprocess.run([*command, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)

    def shake(connection: socket.socket) -> None:
        with context.wrap_socket(connection, server_side=True):
            pass

    with listener(shake) as server:
        assert is_met(options(server, "SSL"))
        with pytest.raises(OutsideRefused, match="speaks TLS"):
            is_met(options(server, "PLAINTEXT"))


def test_a_broker_without_tls_is_known(kafka: Broker) -> None:
    """A real one answers the request, and refuses TLS."""
    assert is_met(options(kafka.bootstrap, None))
    with pytest.raises(OutsideRefused, match="does not speak TLS"):
        is_met(options(kafka.bootstrap, "SSL"))
