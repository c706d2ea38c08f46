"""Looks how a broker's listener is secured: Kafka's client takes a wrong guess for a broker that is down.

A listener says so before any log-in: it answers a TLS handshake, or Kafka's `SaslHandshake` request in plain text.
"""

from __future__ import annotations

import socket
import ssl
import struct
from dataclasses import dataclass

_SECONDS = 3.0
"""How long each of the listener's two answers may take."""

_CORRELATION = 7_041_776
_API_SASL_HANDSHAKE, _VERSION = 17, 1
_ILLEGAL_SASL_STATE = 34
"""Kafka's error code for a log-in at a listener that takes none."""

_LARGEST_ANSWER = 2**16
_CLIENT, _MECHANISM = b"applier", b"PLAIN"


@dataclass(frozen=True, slots=True)
class Listener:
    """How one listener is secured.

    Attributes:
        has_tls: Whether it takes TLS.
        has_sasl: Whether it asks for a log-in by SASL; None where it does not show that.
    """

    has_tls: bool
    has_sasl: bool | None

    def __str__(self) -> str:
        """How it is secured, in words."""
        login = {True: ", and a log-in by SASL", False: ", without SASL", None: ""}[self.has_sasl]
        return f"this listener takes {'TLS' if self.has_tls else 'plain text'}{login}"

    def fits(self, protocol: str) -> bool:
        """Whether a client of this `security.protocol` can talk to it, as far as it shows."""
        return protocol.upper() in self.protocols

    @property
    def protocols(self) -> tuple[str, ...]:
        """The values of `security.protocol` that it may take."""
        base = "SSL" if self.has_tls else "PLAINTEXT"
        return tuple(
            prefix + base for prefix, with_sasl in (("", False), ("SASL_", True)) if self.has_sasl in {None, with_sasl}
        )


def listener_at(host: str, port: int) -> Listener | None:
    """How the listener at an address is secured; None where it gives no answer that proves it, as one that is down."""
    try:
        with socket.create_connection((host, port), _SECONDS) as plain:
            has_sasl = _secured(plain, host)
    except _Unproven:
        pass
    except OSError:
        return None
    else:
        return Listener(has_tls=True, has_sasl=has_sasl)
    try:
        with socket.create_connection((host, port), _SECONDS) as plain:
            return Listener(has_tls=False, has_sasl=_asks_login(plain))
    except (OSError, ValueError):
        return None


class _Unproven(Exception):
    """The other side did not show that it takes TLS."""


def _secured(plain: socket.socket, host: str) -> bool | None:
    """`Listener.has_sasl` of a listener that takes TLS."""
    # Nothing secret is sent, and whether the certificate may be trusted is for Kafka's client to say.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        secured = context.wrap_socket(plain, server_hostname=host)
    except ssl.SSLError as error:
        if "ALERT" in (error.reason or ""):  # Its own alert: it speaks TLS, and refuses this client.
            return None
        raise _Unproven from error
    except OSError as error:
        raise _Unproven from error
    with secured:
        try:
            return _asks_login(secured)
        except (OSError, ValueError):
            return None


def _asks_login(connection: socket.socket) -> bool:
    """Whether the listener takes a log-in by SASL. Raises ValueError where what answers is no broker of Kafka."""
    header = struct.pack(">hhih", _API_SASL_HANDSHAKE, _VERSION, _CORRELATION, len(_CLIENT)) + _CLIENT
    request = header + struct.pack(">h", len(_MECHANISM)) + _MECHANISM
    connection.sendall(struct.pack(">i", len(request)) + request)
    (size,) = struct.unpack(">i", _received(connection, 4))
    if not 6 <= size <= _LARGEST_ANSWER:
        raise ValueError(size)
    correlation, code = struct.unpack(">ih", _received(connection, 6))
    if correlation != _CORRELATION:
        raise ValueError(correlation)
    return bool(code != _ILLEGAL_SASL_STATE)


def _received(connection: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        if not (more := connection.recv(size - len(found))):
            raise ConnectionResetError
        found += more
    return found
