"""Asks the name service for the brokers of a configuration."""

from __future__ import annotations

import socket


def unresolved(servers: str) -> list[str]:
    """Hosts of `kafka.bootstrap.servers` without an address; [] if one has any, as that one leads to the rest."""
    hosts = [_host(server) for part in servers.split(",") if (server := part.strip())]
    lost = [host for host in hosts if host and not _is_known(host)]
    return list(dict.fromkeys(lost)) if len(lost) == len(hosts) else []


def _host(server: str) -> str:
    return server.rpartition("://")[2].rpartition(":")[0].strip("[]")


def _is_known(host: str) -> bool:
    try:
        return bool(socket.getaddrinfo(host, None))
    except (OSError, UnicodeError):
        return False
