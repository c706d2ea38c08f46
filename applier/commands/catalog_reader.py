"""Reads the tables of the configured catalog with PyIceberg, without Spark; writes nothing."""

from __future__ import annotations

import math
import re
import socket
import sqlite3
import ssl
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, cast
from urllib.parse import parse_qsl, quote, urlencode

import pyiceberg.table.snapshots
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError, NotInstalledError
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.table import Table

from applier.config.settings import CatalogSection
from applier.errors import ConfigError, TransientError, is_overload, reason_of
from applier.sink.commit.stamp import EPOCH
from applier.sink.format.types import TableSchema
from applier.sink.iceberg.snapshot import Figures, Snapshot
from applier.wording import WAY_TO_MOVED_FILES

_JAVA_ONLY = ("io-impl", "catalog-impl", "cache-enabled", "cache.", "jdbc.", "metrics-reporter-impl")
"""Properties that name Java classes, or settings of Spark's catalog."""

_DRIVERS = {"postgresql": "postgresql+psycopg2", "mysql": "mysql+pymysql", "mariadb": "mysql+pymysql"}
"""SQLAlchemy's names of JDBC subprotocols."""

_LIBPQ = {key: key for key in ("user", "password", "sslmode", "sslrootcert", "sslcert", "sslkey", "options")} | {
    "ApplicationName": "application_name",
    "loginTimeout": "connect_timeout",
}
"""By parameter of PostgreSQL's JDBC driver the one of its library in C; the others steer the driver alone."""

_UNRESOLVED = re.compile(
    r"(?:Failed to resolve|could not translate host name|[Cc]ould(?: not|n't) resolve host(?: name)?|"
    r"server on(?= '[^']*' \(\[Errno -))(?: ['\"]([\w.-]+)['\"])?"
)
"""What libraries say of a host that does not resolve, with its name where they give it."""

_NO_LOGIN = re.compile(
    r"password authentication failed|no password supplied|Access denied for user|\(1045,|"
    r"AWS Error (?:ACCESS_DENIED|INVALID_ACCESS_KEY_ID|SIGNATURE_DOES_NOT_MATCH)|HTTP status 40[13]\b|"
    r"\((?:AccessDenied\w*|InvalidAccessKeyId|SignatureDoesNotMatch|InvalidSignature\w*|UnrecognizedClientException|ExpiredToken\w*|"
    r"InvalidClientTokenId)\)"
)
"""What databases and storages say of a log-in that they refuse."""

_GONE = re.compile(r"(?:does not exist: |local file ')([^']+)")
"""What PyIceberg and Arrow say of a file that is not there."""

_NO_DATABASE = re.compile(r"database \"([^\"]+)\" does not exist|Unknown database '([^']+)'")
"""What databases say of a log-in to one that is not there."""

_NO_TABLES = re.compile(r"relation \"iceberg_\w+\" does not exist|\(1146,.*iceberg_")
"""What databases say of the tables of a JDBC catalog before Iceberg has made them."""

_DENIED = ("UnauthorizedError", "ForbiddenError", "AuthorizationExpiredError", "OAuthError", "NoCredentialsError")
"""Errors of PyIceberg and boto3 that say the same."""

_DOWN = ("ServerError", "ServiceUnavailableError")
"""Errors of PyIceberg for an answer 5xx of a REST catalog, or of the OAuth2 server that it logs in to."""

_EXTRAS = {
    "psycopg2": "postgres",
    "pymysql": "mysql",
    "boto3": "glue",
    "thrift": "hive",
    "s3fs": "s3",
    "gcsfs": "gcs",
    "adlfs": "azure",
}
"""By the module that is missing: the extra of pyproject.toml that installs it."""

_WAY_TO_TRUST = (
    "name the PEM file of its authority in the environment variable REQUESTS_CA_BUNDLE, and give Spark a trust store "
    "(docs/storage.md)."
)

_TLS_REQUIRED = re.compile("no pg_hba.conf entry")

_UNTRUSTED = re.compile(r"root certificate file \S+ does not exist|certificate verify failed|server certificate for ")

_NO_TLS = "server does not support SSL"
"""What libpq says where the server takes no such connection, or the client takes no other, or trusts nobody."""

_LOCKED = ("SQLITE_BUSY", "SQLITE_LOCKED")

_LOOK_SECONDS = 1.0
"""Time that a reader waits for a lock of SQLite; PyIceberg asks twice."""

_GLUE_RETRIES, _FEW_RETRIES = "glue.max-retries", 2
"""The property, and its value where it is not given: PyIceberg's ten take a minute in an outage."""

_READS = ("rest", "hive", "glue", "sql", "jdbc", "dynamodb", "bigquery")

_DATABASES = ("jdbc", "sql")
"""Those that keep their tables in a database."""


@dataclass(frozen=True, slots=True)
class LakeTable:
    """One Iceberg table as its newest metadata describes it.

    `may_hold_rows` is false for a table that certainly holds none, nor rows that were deleted and are in its files.
    `figures` are those of its head, None for a table without one; `snapshots` are all that are kept, by id,
    `times` when each was made, and `log` the heads that it has had, oldest first, with the time of each (in Unix
    milliseconds both). Its files begin with `location`, and `metadata` is the newest of metadata.
    """

    identifier: tuple[str, ...]
    schema: TableSchema
    format_version: int
    properties: Mapping[str, str]
    may_hold_rows: bool
    figures: Figures | None = None
    snapshots: Mapping[int, Snapshot] = field(default_factory=dict)
    times: Mapping[int, int] = field(default_factory=dict)
    log: Sequence[tuple[int, int]] = ()
    location: str = ""
    metadata: str = ""

    def __str__(self) -> str:
        return ".".join(self.identifier)

    @property
    def snapshot_id(self) -> int | None:
        """Its head."""
        return self.figures.snapshot_id if self.figures else None

    def shows(self, head: int, at: int, *, is_by_log: bool) -> bool:
        """Whether an engine that is asked for the table as of a time shows a snapshot, or another one of the same rows.

        It goes by the heads that the table has had, or by the times of all snapshots, those of branches included.
        """
        if is_by_log:
            found = next((snapshot for time, snapshot in reversed(self.log) if time <= at), None)
        else:
            found = max((it for it in self.times.items() if it[1] <= at), key=lambda it: it[1], default=(None,))[0]
        return self._has_rows_of(found, head) or self._has_rows_of(head, found)

    def _has_rows_of(self, newer: int | None, older: int | None) -> bool:
        """Whether a snapshot was made on another one, and nothing in between has changed rows."""
        for snapshot in self.history(newer):
            if snapshot.id == older or _changes_rows(snapshot):
                return snapshot.id == older
        return False

    def history(self, start: int | None) -> Iterator[Snapshot]:
        """A snapshot and those that it was made on, newest first, as far as they are kept."""
        while start is not None and (found := self.snapshots.get(start)) is not None:
            yield found
            start = found.parent_id


def _changes_rows(snapshot: Snapshot) -> bool:
    """Whether a snapshot shows other rows than the one that it was made on: no compaction, and no fence of applier."""
    is_ours = EPOCH in snapshot.summary
    has_files = any(key.startswith(("added-", "deleted-", "removed-")) for key in snapshot.summary)
    return snapshot.operation != "replace" and (has_files or not is_ours)


@dataclass(frozen=True, slots=True)
class Lake:
    """Reads tables of one catalog; PyIceberg's is None where its database does not exist yet, so there are no tables.

    An identifier has the namespace levels and the name of a table. Every method raises TransientError if the catalog or
    its storage does not answer, and ConfigError if a library or a property is missing that reaching them needs.
    """

    name: str
    catalog: Catalog | None
    place: str = ""
    section: CatalogSection | None = None

    def __str__(self) -> str:
        missing = f", whose file {self.place} does not exist" if self.catalog is None else ""
        return f"catalog {self.name}{missing}"

    def namespaces(self) -> int | None:
        """How many namespaces of one level there are; None without a catalog."""
        if self.catalog is None:
            return None
        with reported(f"list the namespaces of catalog {self.name}"):
            return len(self.catalog.list_namespaces())

    def tables(self, namespace: tuple[str, ...]) -> list[tuple[str, ...]]:
        """The identifiers of the tables of a namespace; none if the namespace is missing."""
        if self.catalog is None:
            return []
        with reported(f"list the tables of namespace {'.'.join(namespace)} of catalog {self.name}"):
            try:
                return [tuple(found) for found in self.catalog.list_tables(namespace)]
            except NoSuchNamespaceError:
                return []

    def holds(self, identifier: tuple[str, ...], snapshot_id: int) -> bool:
        """Whether there is a table of that name which has a snapshot."""
        table = self.table(identifier)
        return table is not None and snapshot_id in table.snapshots

    def table(self, identifier: tuple[str, ...]) -> LakeTable | None:
        """A table; None if the catalog has no table of that name."""
        found = self._load(identifier)
        return None if found is None else _described(identifier, found)

    def rows(
        self,
        identifier: tuple[str, ...],
        columns: tuple[str, ...],
        only: str = "true",
        most_bytes: int | None = None,
    ) -> list[dict[str, Any]]:
        """Rows of a table that fit into memory, by a filter of PyIceberg such as `step = 7`; [] without a table.

        Files of more than `most_bytes` bytes are left out.
        """
        found = self._load(identifier)
        if found is None:
            return []
        with reported(f"read table {'.'.join(identifier)} of catalog {self.name}"):
            scan = found.scan(only, selected_fields=columns)
            files = [task for task in scan.plan_files() if task.file.file_size_in_bytes <= (most_bytes or math.inf)]
            rows = ArrowScan(found.metadata, found.io, scan.projection(), scan.row_filter).to_table(files)
            return list(rows.to_pylist())

    def metadata_of(self, identifier: tuple[str, ...]) -> str:
        """The newest metadata file of a table; "" where the catalog has no such table."""
        found = self._load(identifier)
        return "" if found is None else found.metadata_location

    def recorded(self, identifier: tuple[str, ...]) -> str:
        """The newest metadata file of a table as the database of a catalog has it: the file need not be there.

        "" where there is no such table, and for catalogs that are no database.
        """
        if self.section is None or self.section.type not in _DATABASES:
            return ""
        from pyiceberg.catalog.sql import IcebergTables, SqlCatalog  # noqa: PLC0415 - other catalogs do not need it
        from sqlalchemy import select  # noqa: PLC0415

        catalog, kind = cast("SqlCatalog", self.catalog), IcebergTables
        here = (kind.catalog_name == catalog.name, kind.table_namespace == ".".join(identifier[:-1]))
        query = select(kind.metadata_location).where(*here, kind.table_name == identifier[-1])
        with (
            reported(f"load table {'.'.join(identifier)} of catalog {self.name}"),
            catalog.engine.connect() as database,
        ):
            return database.scalar(query) or ""

    def _load(self, identifier: tuple[str, ...]) -> Table | None:
        if self.catalog is None:
            return None
        with reported(f"load table {'.'.join(identifier)} of catalog {self.name}"):
            try:
                return self.catalog.load_table(identifier)
            except (NoSuchTableError, NoSuchNamespaceError):
                return None


@contextmanager
def open_lake(section: CatalogSection) -> Iterator[Lake]:
    """The catalog of a configuration, open for reading until the block ends.

    Raises:
        TransientError: The catalog does not answer.
        ConfigError: PyIceberg has no catalog of this type, or a library or a property is missing.
    """
    if section.type not in _READS:
        known = ", ".join(_READS)
        raise ConfigError([f"catalog.type: {section.type} can be read through Spark alone; without it: {known}."])
    file = section.sqlite_file
    if file is not None and not file.exists():
        yield Lake(section.name, None, str(file.absolute()))
        return
    properties = catalog_properties(section)
    if file is not None:
        properties["uri"] += f"&timeout={_LOOK_SECONDS}"
    with reported(f"open catalog {section.name}", section.type):
        retries = _retries(properties)
        catalog = load_catalog(section.name, **properties, **retries)
    try:
        yield Lake(section.name, catalog, section=section)
    finally:
        catalog.close()


def catalog_properties(section: CatalogSection, *, is_read_only: bool = True) -> dict[str, str]:
    """Properties that PyIceberg takes, for a catalog that Spark is configured for."""
    given = section.properties
    properties = {key: value for key, value in given.items() if not key.startswith(_JAVA_ONLY)}
    if section.type in _DATABASES:
        # PyIceberg makes its own tables in a database that has none; a reader must not.
        uri = _database(section, "ro" if is_read_only else "rw")
        properties |= {"type": "sql", "uri": uri, "init_catalog_tables": "false"}
    return properties


def _retries(properties: dict[str, str]) -> dict[str, Any]:
    """How often a client of Glue asks again, taken out of the properties: its library needs a number."""
    given = properties.pop(_GLUE_RETRIES, _FEW_RETRIES)
    return {_GLUE_RETRIES: int(given)} if properties["type"] == "glue" else {}


def _database(section: CatalogSection, mode: str) -> str:
    properties = section.properties
    uri = properties.get("uri", "").removeprefix("jdbc:")
    if (file := section.sqlite_file) is not None:
        return f"sqlite:///file:{quote(str(file.absolute()))}?mode={mode}&uri=true"
    scheme, mark, rest = uri.partition("://")
    user, password = (quote(properties.get(f"jdbc.{name}", ""), safe="") for name in ("user", "password"))
    login = f"{user}:{password}@" if user and "@" not in rest.partition("/")[0] else ""
    address, _, given = rest.partition("?")
    options = _libpq(dict(parse_qsl(given))) if scheme == "postgresql" else given
    return f"{_DRIVERS.get(scheme, scheme)}{mark}{login}{address}{'?' if options else ''}{options}"


def _libpq(given: Mapping[str, str]) -> str:
    """Parameters of the JDBC driver of PostgreSQL as its library in C has them, which refuses any that it lacks."""
    options = {_LIBPQ[key]: value for key, value in given.items() if key in _LIBPQ}
    if given.get("ssl", "false") in ("", "true"):
        options.setdefault("sslmode", "verify-full")
    if schema := given.get("currentSchema"):
        options["options"] = f"-csearch_path={schema}"
    return urlencode(options)


def _described(identifier: tuple[str, ...], table: Table) -> LakeTable:
    head = table.current_snapshot()
    summary = head.summary.additional_properties if head and head.summary else {}
    return LakeTable(
        identifier=identifier,
        schema=TableSchema.parse(table.schema().model_dump_json(), table.properties),
        format_version=table.format_version,
        properties=dict(table.properties),
        may_hold_rows=head is not None and summary.get("total-records") != "0",
        figures=Figures.of(head.snapshot_id, summary, head.timestamp_ms, head.sequence_number or 0) if head else None,
        snapshots={snapshot.snapshot_id: _snapshot(snapshot) for snapshot in table.metadata.snapshots},
        times={snapshot.snapshot_id: snapshot.timestamp_ms for snapshot in table.metadata.snapshots},
        log=[(entry.timestamp_ms, entry.snapshot_id) for entry in table.metadata.snapshot_log],
        location=table.metadata.location,
        metadata=table.metadata_location,
    )


def _snapshot(found: pyiceberg.table.snapshots.Snapshot) -> Snapshot:
    said = found.summary
    operation, summary = (said.operation.value, said.additional_properties) if said else ("", {})
    return Snapshot(found.snapshot_id, operation, summary, found.parent_snapshot_id)


@contextmanager
def reported(what: str, kind: str = "") -> Iterator[None]:
    """Raise what PyIceberg and its libraries do as TransientError, or as ConfigError where a library is missing.

    Their own texts may show addresses with passwords.
    The type of the catalog names the extra where PyIceberg does not name the module that it misses.
    """
    try:
        yield
    except (ConfigError, TransientError):
        raise
    except (ImportError, NotInstalledError) as error:
        raise ConfigError([f"Cannot {what} without Spark: {_missing(error, kind)}"]) from error
    except Exception as error:
        if _is_locked(error):
            hint = "a program writes to it, or keeps a transaction open: give the command again when that has ended."
            raise TransientError(f"Cannot {what}: its SQLite file is locked.", hint) from error
        reason, hint = _answered(error)
        raise TransientError(f"Cannot {what} ({reason}).", hint) from error


def _answered(error: Exception) -> tuple[str, str]:
    """Why a call failed, and what to look at: the host, the log-in, or both where the error shows neither."""
    causes = list(_causes(error))
    if any(isinstance(cause, socket.gaierror) or _UNRESOLVED.search(str(cause)) for cause in causes):
        named = next((found for cause in causes if (found := _UNRESOLVED.search(str(cause))) and found[1]), None)
        host = f"host {named[1]}" if named else "the host"
        return f"{host} does not resolve", "correct the host in [catalog], or see to the name service of this machine."
    if any(type(cause).__name__ in _DENIED or _NO_LOGIN.search(str(cause)) for cause in causes):
        said = reason_of(error)
        reason = said if said.startswith("the storage") else "the log-in is refused"
        return reason, "correct the log-in in [catalog] (user, password or key), or give it the rights."
    if address := _misaddressed(causes):
        return address
    if any(isinstance(cause, FileNotFoundError) for cause in causes):
        gone = next((found[1] for cause in causes if (found := _GONE.search(str(cause)))), "a file of it")
        return f"the catalog names {gone}, which is not there", WAY_TO_MOVED_FILES
    if base := next((found for cause in causes if (found := _NO_DATABASE.search(str(cause)))), None):
        hint = "create it in the database server, or correct its name in catalog.uri."
        return f"there is no database {base[1] or base[2]}", hint
    if any(_NO_TABLES.search(str(cause)) for cause in causes):
        return "its database has no tables of a catalog yet", "the first `applier run` or `applier load` makes them."
    if any(isinstance(cause, ConnectionRefusedError) or "Connection refused" in str(cause) for cause in causes):
        return "the connection is refused", "correct host and port in [catalog], or start the server that is to listen."
    if any(type(cause).__name__ in _DOWN for cause in causes):
        hint = "give the command again when both answer, or correct uri and oauth2-server-uri in [catalog]."
        return "the REST server, or the OAuth2 server of its log-in, answers that it is out of order", hint
    if is_overload(error):
        hint = "the storage is out of order or overloaded for now: give the command again when it answers."
    else:
        hint = "check [catalog]: its address, its log-in, and whether it and its storage can be reached from here."
    return reason_of(error), hint


def _misaddressed(causes: Sequence[BaseException]) -> tuple[str, str] | None:
    """The same where a connection is not made for want of TLS, or of trust, or of a path, or of a region."""
    if any(_TLS_REQUIRED.search(str(cause)) for cause in causes):
        hint = "set sslmode=require, or verify-full, in catalog.uri; or let the server take this user from this host."
        return "the server takes no such connection: its pg_hba.conf may ask for TLS", hint
    if any(type(cause).__name__ == "NoRegionError" for cause in causes):
        return "no region of AWS is set", 'set "client.region" in [catalog], or AWS_REGION in the environment.'
    if any(isinstance(cause, ssl.SSLCertVerificationError) for cause in causes):
        return "its certificate is not trusted, or is for another host", _WAY_TO_TRUST
    if any(_UNTRUSTED.search(str(cause)) for cause in causes):
        hint = "name the PEM file of its authority as sslrootcert in catalog.uri, or correct the host in it."
        return "its certificate is not trusted, or is for another host", hint
    if any(isinstance(cause, ssl.SSLError) or _NO_TLS in str(cause) for cause in causes):
        return (
            "the server does not speak TLS there",
            "correct http and https, or sslmode, in the addresses of [catalog].",
        )
    if any(getattr(getattr(cause, "response", None), "status_code", 0) == HTTPStatus.NOT_FOUND for cause in causes):
        return "the server knows no catalog there", "correct the path of uri, and warehouse, in [catalog]."
    return None


def _causes(error: BaseException) -> Iterator[BaseException]:
    """An error and those that it comes from, also where a library hands them over in its own way."""
    found: list[BaseException] = [error]
    for one in found:
        inner = one.__cause__, one.__context__, getattr(one, "orig", None), getattr(one, "reason", None), *one.args
        found += [it for it in inner if isinstance(it, BaseException) and not any(it is known for known in found)]
    yield from found


def _is_locked(error: Exception) -> bool:
    cause = getattr(error, "orig", None)
    return isinstance(cause, sqlite3.OperationalError) and cause.sqlite_errorname.startswith(_LOCKED)


def _missing(error: Exception, kind: str) -> str:
    cause = error.__cause__ if isinstance(error.__cause__, ImportError) else error
    module = (getattr(cause, "name", None) or "").partition(".")[0]
    extra = _EXTRAS.get(module, kind if kind in _EXTRAS.values() else "")
    what = module or (f"the library for catalogs of type {kind}" if kind else "a library of PyIceberg")
    return f"{what} is not installed. " + (f"Run `pip install 'applier[{extra}]'`." if extra else "Install it.")
