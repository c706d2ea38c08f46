"""A REST catalog on 127.0.0.1 (HTTP or HTTPS, in this process) with an OAuth2 server and vended credentials.

PyIceberg's own catalog keeps the tables, and its code checks the requirements of commits and applies their updates.
"""

from __future__ import annotations

import json
import ssl
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from urllib.parse import parse_qs, unquote, urlsplit

from pydantic import TypeAdapter
from pyiceberg.catalog.rest import CreateTableRequest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NamespaceNotEmptyError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.io import FileIO
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import TableRequirement, TableUpdate
from pyiceberg.typedef import IcebergBaseModel

CLIENT_ID, SECRET = "applier", "a-long-secret"

_COMMIT = TypeAdapter(dict[str, Any])
_REQUIREMENTS, _UPDATES = TypeAdapter(tuple[TableRequirement, ...]), TypeAdapter(tuple[TableUpdate, ...])

_ERRORS: Mapping[type[Exception], tuple[int, str]] = {
    NoSuchNamespaceError: (404, "NoSuchNamespaceException"),
    NoSuchTableError: (404, "NoSuchTableException"),
    NamespaceAlreadyExistsError: (409, "AlreadyExistsException"),
    TableAlreadyExistsError: (409, "AlreadyExistsException"),
    NamespaceNotEmptyError: (409, "NamespaceNotEmptyException"),
    CommitFailedException: (409, "CommitFailedException"),
    ValueError: (400, "BadRequestException"),
}
"""What the protocol answers for what PyIceberg raises."""

_LIST, _ONE = "/v1/{prefix}/namespaces", "/v1/{prefix}/namespaces/{namespace}"
_TABLES, _TABLE = f"{_ONE}/tables", f"{_ONE}/tables/{{table}}"
_ENDPOINTS = [
    *(f"{method} {_LIST}" for method in ("GET", "POST")),
    *(f"{method} {_ONE}" for method in ("GET", "HEAD", "DELETE")),
    *(f"{method} {_TABLES}" for method in ("GET", "POST")),
    *(f"{method} {_TABLE}" for method in ("GET", "HEAD", "POST", "DELETE")),
    f"GET {_TABLE}/credentials",
    f"POST {_TABLE}/metrics",
    f"POST {_ONE}/register",
    "POST /v1/{prefix}/tables/rename",
]


def metadata_json(metadata: TableMetadata) -> str:
    """Metadata as a file has it; PyIceberg applies updates to tables of format 3, and writes none."""
    written = json.loads(IcebergBaseModel.model_dump_json(metadata))
    if metadata.format_version == 3:
        written.setdefault("next-row-id", 0)
    return json.dumps(written)


class _Behind(SqlCatalog):
    """Keeps tables, those of format 3 as well."""

    @staticmethod
    def _write_metadata(metadata: TableMetadata, io: FileIO, metadata_path: str) -> None:
        with io.new_output(metadata_path).create(overwrite=False) as file:
            file.write(metadata_json(metadata).encode())


class RestCatalog(ThreadingHTTPServer):
    """One catalog, and the OAuth2 server of its log-ins at `/v1/oauth/tokens`.

    Attributes:
        address: What clients take as `uri`.
        tokens: Those that are valid now.
        token_seconds: What the OAuth2 server says of the life of a token. It ends when a test takes it out of `tokens`.
        vend: Makes the storage credentials of a table. None for a catalog that gives none.
        vends_in: The place of them in an answer: `config` or `storage-credentials`.
        defaults: Properties that it gives every client.
        out: Statuses that it answers to paths that begin so, instead of all else; 404 as a gateway does, in HTML.
        asked: Requests so far, by method and kind of path.
    """

    daemon_threads = True

    def __init__(self, folder: Path, properties: Mapping[str, str], context: ssl.SSLContext | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.context = context
        self.address = f"{'https' if context else 'http'}://127.0.0.1:{self.server_port}"
        self.catalog = _Behind("behind", **{"uri": f"sqlite:///{folder}/rest.db", **properties})
        self.tokens: set[str] = set()
        self.token_seconds = 3600
        self.vend: Callable[[], dict[str, str]] | None = None
        self.vends_in = "config"
        self.defaults: dict[str, str] = {}
        self.out: dict[str, int] = {}
        self.asked: Counter[str] = Counter()
        self.lock = threading.Lock()

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Speak TLS in the thread of the client, which may not."""
        if self.context is None:
            super().finish_request(request, client_address)
            return
        with self.context.wrap_socket(request, server_side=True) as secured:
            super().finish_request(cast("Any", secured), client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that trusts nobody leaves."""

    def new_token(self) -> str:
        """A token that is valid until a test takes it out of `tokens`."""
        token = uuid.uuid4().hex
        self.tokens.add(token)
        return token

    @property
    def login(self) -> dict[str, str]:
        """Properties of a client that logs in by id and secret."""
        own = {"credential": f"{CLIENT_ID}:{SECRET}", "oauth2-server-uri": f"{self.address}/v1/oauth/tokens"}
        return {"type": "rest", "uri": self.address, **own}

    def table(self, table: Table, *, is_vended: bool) -> dict[str, Any]:
        """A table as the protocol shows it."""
        answer: dict[str, Any] = {"metadata": json.loads(metadata_json(table.metadata)), "config": {}}
        if table.metadata_location:
            answer["metadata-location"] = table.metadata_location
        if is_vended and self.vend is not None:
            if self.vends_in == "config":
                answer["config"] = self.vend()
            else:
                answer["storage-credentials"] = self.credentials(table)
        return answer

    def credentials(self, table: Table) -> list[dict[str, Any]]:
        """The credentials for the files of a table."""
        return [{"prefix": table.metadata.location, "config": self.vend()}] if self.vend else []


class _Refused(Exception):
    """An answer that is an error."""

    def __init__(self, status: int, kind: str, what: str) -> None:
        super().__init__(what)
        self.status, self.kind = status, kind


class _Gateway(Exception):
    """An answer that is none of the catalog."""


@dataclass(slots=True)
class VendedKeys:
    """The keys that a catalog gives, as `RestCatalog.vend`, until a test lets them expire.

    Args:
        refused: The keys that the storage does not take, with what it answers: `FaultyStorage.refused`.
        seconds: The life that the catalog promises; None for one that says nothing of it.
    """

    refused: dict[str, str]
    seconds: float | None = None
    _number: int = 1

    def __call__(self) -> dict[str, str]:
        """The keys of now."""
        said = {} if self.seconds is None else {"s3.session-token-expires-at-ms": str(_ms_in(self.seconds))}
        given = {"s3.access-key-id": self._name, "s3.secret-access-key": "secret", "s3.session-token": "of the table"}
        return given | said

    def expire(self, answer: str) -> None:
        """Let the storage refuse the keys of now, and give others from now on."""
        self.refused[self._name] = answer
        self._number += 1

    @property
    def _name(self) -> str:
        return f"VENDED{self._number}"


def _ms_in(seconds: float) -> int:
    return int((time.time() + seconds) * 1000)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: RestCatalog

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name of the library
        """Nothing."""

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        url = urlsplit(self.path)
        version, *parts = [unquote(part) for part in url.path.strip("/").split("/")]
        try:
            self._refuse(url.path, [version, *parts])
            with self.server.lock:
                status, answer = self._answer(parts, parse_qs(url.query), body)
        except _Gateway:
            self.send_error(404)
            return
        except _Refused as error:
            status, answer = error.status, _error(error.status, error.kind, str(error))
            if parts[:1] == ["oauth"] and error.kind == "invalid_client":
                answer = {"error": error.kind, "error_description": str(error)}
        except Exception as error:  # noqa: BLE001 - a client is to see what went wrong
            known = next((kind for kind in _ERRORS if isinstance(error, kind)), None)
            status, kind = _ERRORS[known] if known else (500, "InternalServerError")
            answer = _error(status, kind, f"{type(error).__name__}: {error}")
        text = b"" if answer is None else json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(text)

    do_GET = do_POST = do_HEAD = do_DELETE = _serve  # noqa: N815 - the names of the library

    def _refuse(self, path: str, parts: list[str]) -> None:
        """Raise for a path that is out of order or is none, and for a client that is not known."""
        for start, status in self.server.out.items():
            if path.startswith(start) and status == 404:
                raise _Gateway
            if path.startswith(start):
                raise _Refused(status, "ServiceUnavailableException", "it is out of order")
        if parts[0] != "v1" or parts[1] not in ("config", "oauth", "namespaces", "tables"):
            raise _Refused(404, "NoSuchPathException", f"there is no {path}")
        if parts[1] != "oauth" and self.headers.get("Authorization", "")[len("Bearer ") :] not in self.server.tokens:
            raise _Refused(401, "NotAuthorizedException", "the token is unknown or has expired")

    def _answer(self, parts: list[str], query: Mapping[str, list[str]], body: bytes) -> tuple[int, Any]:
        kind = parts[-1] if parts[-1] in ("config", "tokens", "credentials", "metrics", "rename") else parts[0]
        self.server.asked[f"{self.command} {kind}"] += 1
        if parts == ["oauth", "tokens"]:
            return 200, self._log_in({key: value[0] for key, value in parse_qs(body.decode()).items()})
        sent = _COMMIT.validate_json(body) if body else {}
        match parts:
            case ["config"]:
                return 200, {"defaults": self.server.defaults, "overrides": {}, "endpoints": _ENDPOINTS}
            case ["tables", "rename"]:
                source, target = (_identifier(sent[key]) for key in ("source", "destination"))
                self.server.catalog.rename_table(source, target)
                return 204, None
            case ["namespaces"]:
                return self._namespaces(query, sent)
            case ["namespaces", namespace]:
                return self._namespace(_levels(namespace))
            case ["namespaces", namespace, "register"]:
                name = (*_levels(namespace), sent["name"])
                return 200, self._shown(self.server.catalog.register_table(name, sent["metadata-location"]))
            case ["namespaces", namespace, "tables"]:
                return self._tables(_levels(namespace), sent)
            case ["namespaces", namespace, "tables", table, *rest]:
                return self._table((*_levels(namespace), table), rest, query, sent)
        raise _Refused(404, "NoSuchPathException", f"there is no {self.path}")

    def _log_in(self, form: Mapping[str, str]) -> dict[str, Any]:
        """By client credentials; or by the exchange of a token that is valid, as Iceberg's client renews its own."""
        if form.get("grant_type", "").endswith("token-exchange"):
            is_known = form.get("subject_token") in self.server.tokens
        else:
            is_known = (form.get("client_id"), form.get("client_secret")) == (CLIENT_ID, SECRET)
        if not is_known:
            raise _Refused(401, "invalid_client", "the client or its secret is wrong")
        token = {"access_token": self.server.new_token(), "expires_in": self.server.token_seconds}
        return {**token, "token_type": "bearer", "issued_token_type": "urn:ietf:params:oauth:token-type:access_token"}

    def _namespaces(self, query: Mapping[str, list[str]], sent: Mapping[str, Any]) -> tuple[int, Any]:
        if self.command == "POST":
            self.server.catalog.create_namespace(tuple(sent["namespace"]), sent.get("properties") or {})
            return 200, {"namespace": sent["namespace"], "properties": sent.get("properties") or {}}
        parent = _levels(query["parent"][0]) if "parent" in query else ()
        return 200, {"namespaces": self.server.catalog.list_namespaces(parent)}

    def _namespace(self, namespace: tuple[str, ...]) -> tuple[int, Any]:
        if self.command == "DELETE":
            self.server.catalog.drop_namespace(namespace)
            return 204, None
        properties = self.server.catalog.load_namespace_properties(namespace)
        return 204 if self.command == "HEAD" else 200, {"namespace": namespace, "properties": properties}

    def _tables(self, namespace: tuple[str, ...], sent: Mapping[str, Any]) -> tuple[int, Any]:
        catalog = self.server.catalog
        if self.command == "GET":
            names = [{"namespace": namespace, "name": name[-1]} for name in catalog.list_tables(namespace)]
            return 200, {"identifiers": names}
        request = CreateTableRequest.model_validate(sent)
        layout: dict[str, Any] = {"partition_spec": request.partition_spec, "sort_order": request.write_order}
        create = catalog._create_staged_table if request.stage_create else catalog.create_table
        made = create(
            (*namespace, request.name),
            request.table_schema,
            location=request.location,
            properties=request.properties,
            **{key: value for key, value in layout.items() if value is not None},
        )
        answer = self._shown(made)
        if request.stage_create:
            del answer["metadata-location"]
        return 200, answer

    def _table(
        self, name: tuple[str, ...], rest: list[str], query: Mapping[str, list[str]], sent: dict[str, Any]
    ) -> tuple[int, Any]:
        catalog = self.server.catalog
        if rest == ["metrics"]:
            return 204, None
        if rest == ["credentials"]:
            return 200, {"storage-credentials": self.server.credentials(catalog.load_table(name))}
        if self.command == "DELETE":
            drop = catalog.purge_table if query.get("purgeRequested") == ["true"] else catalog.drop_table
            drop(name)
            return 204, None
        if self.command == "POST":
            requirements = _REQUIREMENTS.validate_python(sent["requirements"])
            updates = _UPDATES.validate_python(sent["updates"])
            table = cast("Table", SimpleNamespace(name=lambda: name))
            done = catalog.commit_table(table, requirements, updates)
            metadata = json.loads(metadata_json(done.metadata))
            return 200, {"metadata-location": done.metadata_location, "metadata": metadata}
        found = catalog.load_table(name)
        return (204, None) if self.command == "HEAD" else (200, self._shown(found))

    def _shown(self, table: Table) -> dict[str, Any]:
        delegation = self.headers.get("X-Iceberg-Access-Delegation", "")
        return self.server.table(table, is_vended="vended-credentials" in delegation)


def _levels(namespace: str) -> tuple[str, ...]:
    return tuple(namespace.split("\x1f"))


def _identifier(sent: Mapping[str, Any]) -> tuple[str, ...]:
    return (*sent["namespace"], sent["name"])


def _error(status: int, kind: str, what: str) -> dict[str, Any]:
    return {"error": {"message": what, "type": kind, "code": status}}


@contextmanager
def rest_catalog(
    folder: Path, properties: Mapping[str, str], context: ssl.SSLContext | None = None
) -> Iterator[RestCatalog]:
    """A running, empty catalog.

    Args:
        folder: Where its database goes.
        properties: Its warehouse, and what PyIceberg takes for the files there.
        context: For HTTPS.
    """
    server = RestCatalog(folder, properties, context)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
        server.catalog.close()
