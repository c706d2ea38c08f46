"""A session of TiDB that shows everything as of one moment and can write nothing."""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from applier.config.login import Login
from applier.errors import ApplierError, ConfigError, OutsideRefused, TerminalError, TransientError, Unreachable

SYSTEM = "other"
"""What TiDB is among the systems that do not answer (`outages.SYSTEMS`)."""

_CONNECT_SECONDS = 10

_ANSWER_SECONDS = 300
"""Longest wait for the next bytes of an answer: TiDB may look through a large range for its first row."""

_SETTINGS = {
    # In other modes names come in other quotes, and a comparison with a zero date fits no row.
    "sql_mode": "''",
    "time_zone": "'+00:00'",
    # The server may have a limit for all sessions: the rows behind it would be lost.
    "sql_select_limit": str((1 << 64) - 1),
    "max_execution_time": "0",
    # TiFlash prints some values as other texts than TiDB and TiKV do, and which of them answers may change.
    "tidb_isolation_read_engines": "'tikv,tidb'",
}

_TIMES = {"tidb_enable_external_ts_read": "OFF", "tidb_read_staleness": "0"}
"""Settings, which old versions lack, of another moment that TiDB reads as of, whatever tidb_snapshot says."""

_LOGIN = "Check user and password in upstream.url, and upstream.cert where the user needs a certificate."

_NO_TIDB = "Name a TiDB from v5.0 on in upstream.url."

_GRANT = "Let the user read the tables: GRANT SELECT ON DATABASE.* TO USER. Or leave them out in tables.include."

_MEANS = {
    1044: ("the user may not read a database", _GRANT),
    1045: ("it refuses user or password", _LOGIN),
    1130: ("it refuses log-ins from this host", "Let the user of upstream.url come from this host."),
    1142: ("the user may not read a table", _GRANT),
    1143: ("the user may not read a column of a table", _GRANT),
    1193: ("it is no TiDB, or an old one", _NO_TIDB),
    1227: ("the user lacks a right", _GRANT),
    1305: ("it is no TiDB, or an old one", _NO_TIDB),
    1698: ("it refuses user or password", _LOGIN),
    2026: ("it offers no TLS", "Remove upstream.ca, or let TiDB have a certificate."),
    8175: ("a query takes more memory than it may", "Raise tidb_mem_quota_query of TiDB."),
    3159: ("it takes no connection without TLS", "Set upstream.ca."),
}
"""By the number of an error that passes for no time: what it means for a user."""

_PASSING = (1040, 1053, 1203, 1317)
"""Too many connections, a server that ends, and a query that was killed: another try may find it otherwise."""

_OWN = 3000
"""From here on numbers are those of servers; those below, from 2000 on, are of the connection."""

_GONE = (8055, 9006)
"""The moment lies before what garbage collection has left."""

KEEP = "SET GLOBAL tidb_gc_life_time = '24h'"
"""Lets TiDB keep what was there before, for long enough."""


class MomentGone(TerminalError):
    """TiDB holds nothing of a moment any more."""


class MomentAhead(ConfigError):
    """TiDB has not come to a moment."""


@dataclass(frozen=True, slots=True)
class Session:
    """A connection; cells come as the bytes that the server prints, and None for NULL."""

    connection: Any
    login: Login

    def rows(self, query: str) -> list[tuple[bytes | None, ...]]:
        """All rows that a query shows.

        Raises:
            OutsideRefused, TransientError: TiDB refuses it, or was lost.
        """
        with meaning(self.login), self.connection.cursor() as cursor:
            cursor.execute(query)
            return list(cursor.fetchall())

    def as_of(self, tso: int) -> None:
        """Show everything as of a TSO from here on; the server then refuses to write as well.

        Raises:
            MomentGone, ConfigError, OutsideRefused, TransientError: As `session`.
        """
        self.rows(f"SET @@tidb_snapshot = '{tso}'")

    def texts(self, query: str) -> list[list[str]]:
        """The same as text, for rows without NULL."""
        return [[(cell or b"").decode("utf-8") for cell in row] for row in self.rows(query)]

    @contextmanager
    def streamed(self, query: str) -> Iterator[Any]:
        """A cursor that fetches rows while TiDB sends them; one at a time in a session."""
        from pymysql.cursors import SSCursor  # noqa: PLC0415 - an optional package

        cursor = SSCursor(self.connection)
        with meaning(self.login):
            cursor.execute(query)
        result = self.connection._result  # noqa: SLF001 - see below
        try:
            yield cursor
        finally:
            # A reader that stops early ends the connection: PyMySQL would read what is left of the answer.
            self.connection._force_close()  # noqa: SLF001
            result.unbuffered_active, cursor.connection = False, None


@contextmanager
def session(login: Login, tso: int | None = None) -> Iterator[Session]:
    """A session in UTC, as of a TSO if one is given.

    Raises:
        MomentGone: TiDB no longer holds the moment.
        ConfigError: The moment is yet to come, or PyMySQL is not installed.
        OutsideRefused: TiDB refuses the log-in.
        TransientError: TiDB is not there, or was lost.
    """
    connection = _connected(login)
    try:
        found = Session(connection, login)
        found.rows("SET NAMES utf8mb4")
        own = ", ".join(f"'{name}'" for name in _TIMES)
        known = [name for name, _ in found.texts(f"SHOW VARIABLES WHERE variable_name IN ({own})")]
        settings = _SETTINGS | {name: _TIMES[name] for name in known}
        found.rows(f"SET {', '.join(f'{name} = {value}' for name, value in settings.items())}")
        if tso is not None:
            found.as_of(tso)
        yield found
    finally:
        connection._force_close()  # noqa: SLF001 - what is left of an answer may be long


def _connected(login: Login) -> Any:
    try:
        import pymysql  # noqa: PLC0415 - an optional package
    except ImportError:
        what = "upstream.url needs the package PyMySQL, which is not installed."
        raise ConfigError([f"{what} Install it: pip install 'applier[mysql]'."]) from None
    tls = None if login.ca is None else _tls(login.ca, login.cert, login.key)
    with meaning(login):
        return pymysql.connect(
            host=login.host,
            port=login.port,
            user=login.user,
            password=login.password.encode("utf-8"),
            autocommit=True,
            charset="utf8mb4",
            use_unicode=False,
            conv={},
            connect_timeout=_CONNECT_SECONDS,
            read_timeout=_ANSWER_SECONDS,
            ssl=tls,
        )


def _tls(ca: str, cert: str | None, key: str | None) -> ssl.SSLContext:
    named = "upstream.ca"
    try:
        context = ssl.create_default_context(cafile=ca)
        if cert is not None:
            named = "upstream.cert or upstream.key"
            context.load_cert_chain(cert, key)
    except OSError as error:
        is_read = isinstance(error, ssl.SSLError)
        reason = "it holds no such PEM text" if is_read else error.strerror or type(error).__name__
        raise ConfigError([f"The file of {named} cannot be read: {reason}."]) from None
    return context


@contextmanager
def meaning(login: Login) -> Iterator[None]:
    """Raise what an error of PyMySQL means; its own text may hold values."""
    import pymysql  # noqa: PLC0415 - an optional package

    try:
        yield
    except pymysql.MySQLError as error:
        raise _placed(_meaning(login, error)) from None
    except ssl.SSLError:
        raise _untrusted(login) from None
    except OSError:
        raise _placed(TransientError(f"The connection to TiDB {login.address} was lost.")) from None
    except RuntimeError:
        what = f"TiDB {login.address} asks for a password in a form that PyMySQL sends with TLS alone."
        raise OutsideRefused(what, "Set upstream.ca, or install the package cryptography.") from None


def _placed(error: ApplierError) -> ApplierError:
    """The same as an error of TiDB: the stage in which it arose has another system behind it."""
    if isinstance(error, TransientError):
        error.system = SYSTEM
    return error


def _untrusted(login: Login) -> OutsideRefused:
    what = f"The certificate of TiDB {login.address} is not one that upstream.ca signed for this host."
    return OutsideRefused(what, "Name its certificate authority in upstream.ca, and the host as its certificate does.")


def _meaning(login: Login, error: Exception) -> ApplierError:
    number, text = (*error.args, 0, "")[:2]
    cause = getattr(error, "original_exception", None)
    if isinstance(cause, ssl.SSLError):
        return _untrusted(login)
    if number == 2003:
        reason = getattr(cause, "strerror", None) or "it does not answer"
        what = f"TiDB {login.address} cannot be reached: {reason}."
        return Unreachable(what, "Check host and port in upstream.url.")
    if number in _GONE:
        left = re.search(r"safe point (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)", str(text))
        what = f"TiDB {login.address} no longer holds that moment"
        hint = f"Let TiDB keep more, with {KEEP}, and load as of a later moment (without --at)."
        return MomentGone(f"{what}: garbage collection has come to {left[1]} UTC." if left else f"{what}.", hint)
    if "future time" in str(text):
        what = f"The moment lies after the newest TSO of TiDB {login.address}: give an earlier --at, or another url."
        return MomentAhead([what])
    if number in _MEANS:
        meant, hint = _MEANS[number]
        return OutsideRefused(f"TiDB {login.address} cannot be read: {meant}.", hint)
    if isinstance(number, int) and 0 < number < 2000 and number not in _PASSING:
        what = f"TiDB {login.address} refuses to be read with error {number}."
        return OutsideRefused(what, "The log of TiDB says more.")
    if isinstance(number, int) and number >= _OWN:
        return TransientError(f"TiDB {login.address} answers with error {number}.", "The log of TiDB says more.")
    said = f" (error {number})" if number else ""
    return TransientError(f"The connection to TiDB {login.address} was lost{said}.")
