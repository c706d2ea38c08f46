"""Refuses a Kafka listener that speaks TLS where the client does not, and the reverse.

Kafka's clients cannot distinguish such a listener from a broker that is down: the connection ends without an error.
"""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Mapping

from applier.errors import OutsideRefused

_SECONDS = 2.0
"""Longest wait for a listener; one that does not answer is left to Kafka's clients and their time-outs."""

_MOST_SERVERS = 3

_CORRELATION = 0x61_70_70_6C
_API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, _CORRELATION, -1)
"""Kafka's request ApiVersions, version 0, without a client id: answered before any log-in."""

_ALERT = b"\x15\x03"
"""How a TLS server begins its refusal: content type alert, and the major version."""


def is_met(options: Mapping[str, str]) -> bool:
    """Whether a bootstrap server speaks as the options say; False where none answers.

    Args:
        options: `kafka.*` options.

    Raises:
        OutsideRefused: A listener speaks TLS and `kafka.security.protocol` has none, or the other way round.
    """
    protocol = options.get("kafka.security.protocol", "PLAINTEXT").upper()
    servers = [server.strip() for server in options.get("kafka.bootstrap.servers", "").split(",") if server.strip()]
    for server in servers[:_MOST_SERVERS]:
        host, _, port = server.rpartition(":")
        host = host.rpartition("//")[2].strip("[]")
        if not host or not port.isdecimal():
            continue
        found = _speaks(host, int(port), first=protocol.endswith("SSL"))
        if found is not None and found != protocol.endswith("SSL"):
            raise _refusal(server, protocol, is_tls=found)
        if found is not None:
            return True
    return False


def _refusal(server: str, protocol: str, *, is_tls: bool) -> OutsideRefused:
    if is_tls:
        what = f"Kafka at {server} speaks TLS, and kafka.security.protocol is {protocol}."
        return OutsideRefused(what, 'set "kafka.security.protocol" to SSL or SASL_SSL, or name a port without TLS.')
    what = f"Kafka at {server} does not speak TLS, and kafka.security.protocol is {protocol}."
    return OutsideRefused(
        what, 'name a port with TLS, or set "kafka.security.protocol" to PLAINTEXT or SASL_PLAINTEXT.'
    )


def _speaks(host: str, port: int, *, first: bool) -> bool | None:
    """Whether a listener speaks TLS; None where that cannot be found out. Asked first as the client will ask."""
    for is_tls in (first, not first):
        found = _answers_tls(host, port) if is_tls else _answers_plain(host, port)
        if found is not None:
            return found
    return None


def _answers_tls(host: str, port: int) -> bool | None:
    """True where a TLS hello is answered in TLS, False where in something else."""
    # What the server is shows nothing but itself: nothing is sent, and Kafka's client checks certificates.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with socket.create_connection((host, port), _SECONDS) as plain, context.wrap_socket(plain):
            return True
    except (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError):
        return None
    except ssl.SSLError as error:
        reason = error.reason or ""
        return True if "ALERT" in reason else False if reason == "WRONG_VERSION_NUMBER" else None
    except OSError:
        return None


def _answers_plain(host: str, port: int) -> bool | None:
    """False where a request of Kafka is answered, True where a TLS alert comes."""
    answer = b""
    try:
        with socket.create_connection((host, port), _SECONDS) as plain:
            plain.sendall(_API_VERSIONS)
            while len(answer) < 8 and (part := plain.recv(8 - len(answer))):
                answer += part
    except OSError:
        pass
    if answer.startswith(_ALERT):
        return True
    return False if answer[4:] == struct.pack(">i", _CORRELATION) else None
