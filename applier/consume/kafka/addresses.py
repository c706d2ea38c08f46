"""Looks whether the brokers of a configuration can be reached: Kafka's client takes half a minute to say so."""

from __future__ import annotations

import os
import re
import socket
from concurrent.futures import ThreadPoolExecutor, as_completed

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
    places = [place for part in servers.split(",") if (place := part.strip())]
    matches = [match for match in map(_ADDRESS.fullmatch, places) if match and 0 < int(match[2]) <= 65_535]
    if not matches or len(matches) < len(places):
        raise OutsideRefused(f"Kafka at {servers} cannot be asked.", f"write each address in {_KEY} as HOST:PORT.")
    pool, reasons = ThreadPoolExecutor(len(matches)), dict[str, str]()
    try:
        asked = {pool.submit(_reason, match[1], int(match[2])): f"{match[1]}:{match[2]}" for match in matches}
        for answer in as_completed(asked):
            if not (reason := answer.result()):
                return
            reasons[asked[answer]] = reason
    finally:
        # A broker that is slow to refuse keeps nobody waiting.
        pool.shutdown(wait=False, cancel_futures=True)
    if {*reasons.values()} == {_UNKNOWN}:
        hosts = " or ".join(dict.fromkeys(match[1] for match in matches))
        hint = f"check the host in {_KEY}, and the name service of this machine."
        raise Unreachable(f"The address of Kafka does not resolve: no host {hosts} is known.", hint)
    told = "; ".join(f"{at}: {reason}" if len(reasons) > 1 else reason for at, reason in sorted(reasons.items()))
    hint = f"check host and port ({' or '.join(sorted(reasons))}) in {_KEY}, and whether a broker listens there."
    raise Unreachable(f"Kafka at {servers} does not answer: {told}.", hint)


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
