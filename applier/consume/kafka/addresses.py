"""Looks whether the brokers of a configuration can be reached: Kafka's client takes half a minute to say so."""

from __future__ import annotations

import os
import re
import socket
from concurrent.futures import ThreadPoolExecutor, as_completed

from applier.consume.kafka.listener import listener_at
from applier.errors import OutsideRefused, Unreachable

_SECONDS = 3.0
"""How long a broker may take to accept a connection."""

_ADDRESS = re.compile(r"(?:[\w.%-]*://)?\[?([^\[\]/]+?)\]?:(\d{1,5})")

_UNKNOWN = "no such host is known"

_KEY = "source.kafka.kafka.bootstrap.servers"


def refuse_unreachable(servers: str) -> None:
    """Refuse `kafka.bootstrap.servers` where no broker accepts a connection; one that does leads to the rest.

    Raises:
        OutsideRefused: One of them is no host and port, which Kafka's client would refuse as well.
        Unreachable: No host has an address, or no broker accepts a connection.
    """
    addresses = _addresses(servers)
    pool, reasons = ThreadPoolExecutor(len(addresses)), dict[str, str]()
    try:
        asked = {pool.submit(_reason, host, port): f"{host}:{port}" for host, port in addresses}
        for answer in as_completed(asked):
            if not (reason := answer.result()):
                return
            reasons[asked[answer]] = reason
    finally:
        # A broker that is slow to refuse keeps nobody waiting.
        pool.shutdown(wait=False, cancel_futures=True)
    if {*reasons.values()} == {_UNKNOWN}:
        hosts = " or ".join(dict.fromkeys(host for host, _ in addresses))
        hint = f"check the host in {_KEY}, and the name service of this machine."
        raise Unreachable(f"The address of Kafka does not resolve: no host {hosts} is known.", hint)
    told = "; ".join(f"{at}: {reason}" if len(reasons) > 1 else reason for at, reason in sorted(reasons.items()))
    hint = f"check host and port ({' or '.join(sorted(reasons))}) in {_KEY}, and whether a broker listens there."
    raise Unreachable(f"Kafka at {servers} does not answer: {told}.", hint)


def other_protocol(servers: str, protocol: str) -> OutsideRefused | None:
    """The error for a broker that does not take a client of `kafka.security.protocol`; None where none shows that.

    It is for a client that found no broker: one that is down, or busy, shows nothing.
    """
    for host, port in _addresses(servers):
        found = listener_at(host, port)
        if found is None:
            continue
        if found.fits(protocol):
            return None
        what = f"Kafka at {host}:{port} does not take kafka.security.protocol {protocol}: {found}."
        return OutsideRefused(what, f'write "kafka.security.protocol" = "{found.protocols[0]}" under [source.kafka].')
    return None


def _addresses(servers: str) -> list[tuple[str, int]]:
    """Host and port of each broker. Raises OutsideRefused where one is none."""
    places = [place for part in servers.split(",") if (place := part.strip())]
    matches = [match for match in map(_ADDRESS.fullmatch, places) if match and 0 < int(match[2]) <= 65_535]
    if not matches or len(matches) < len(places):
        raise OutsideRefused(f"Kafka at {servers} cannot be asked.", f"write each address in {_KEY} as HOST:PORT.")
    return [(match[1], int(match[2])) for match in matches]


def _reason(host: str, port: int) -> str:
    """Why no connection comes about; "" where one does."""
    try:
        socket.create_connection((host, port), _SECONDS).close()
    except TimeoutError:
        return f"no connection within {_SECONDS:g} seconds"
    except (socket.gaierror, UnicodeError):
        return _UNKNOWN
    except OSError as error:
        return os.strerror(error.errno) if error.errno else type(error).__name__
    return ""
