"""Where a TiDB is and how to log in; picklable, and nothing secret is printed."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_ADDRESS = re.compile(
    r"mysql://(?P<user>[^:@/]+)(?::(?P<password>.*))?@(?P<host>[^@:/?\[\]]+|\[[^@/?\[\]]+\])(?::(?P<port>\d{1,5}))?/?",
    re.DOTALL,
)
"""The password ends at the last @, so it may hold any character as it is."""

SHAPE = "must be mysql://USER:PASSWORD@HOST:4000, with no database or options behind it"


@dataclass(frozen=True, slots=True)
class Login:
    """A TiDB, a user, and PEM files for TLS; without `ca`, no certificate is checked.

    Its text form is the same for all: where rows were read does not change how they were.
    """

    host: str = field(repr=False)
    port: int = field(repr=False)
    user: str = field(repr=False)
    password: str = field(repr=False)
    ca: str | None = field(repr=False, default=None)
    cert: str | None = field(repr=False, default=None)
    key: str | None = field(repr=False, default=None)

    @property
    def address(self) -> str:
        """For people."""
        return f"{self.host}:{self.port}"

    @staticmethod
    def parse(url: str, ca: str | None = None, cert: str | None = None, key: str | None = None) -> Login:
        """The login of an address; ValueError for one of another form, with no part of it in the text."""
        match = _ADDRESS.fullmatch(url)
        if match is None or not 0 < int(match["port"] or 4000) < 1 << 16:
            scheme = re.match(r"[A-Za-z][A-Za-z0-9+.-]*(?=:)", url)
            was = f", and its scheme is {scheme[0]}" if scheme and scheme[0] != "mysql" else ""
            raise ValueError(SHAPE + was)
        own = (match["host"].strip("[]"), int(match["port"] or 4000), match["user"], match["password"] or "")
        return Login(*own, ca, cert, key)
