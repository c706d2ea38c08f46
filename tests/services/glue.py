"""Glue beside the S3 of tests/services/s3.py (moto), with the check of versions that moto leaves out, and refusals."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from unittest.mock import patch

from moto.core.common_types import TYPE_RESPONSE
from moto.glue.responses import GlueResponse

from tests.services.s3 import REGION, ObjectStore


@dataclass
class GlueServer:
    """What Glue answers.

    Attributes:
        lake: Properties of a catalog there, without keys: both clients find those in the environment.
        refused: Codes of errors that it answers with, by operation; "" stands for every operation.
        before: What happens before the next request for an operation is answered, once.
        asked: How often an operation was asked for, those that were refused included.
    """

    lake: Mapping[str, str]
    refused: dict[str, str] = field(default_factory=dict)
    before: dict[str, Callable[[], None]] = field(default_factory=dict)
    asked: Counter[str] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, request: GlueResponse) -> TYPE_RESPONSE:
        """The answer to a request; one is answered at a time."""
        operation = request._get_action()
        if (happens := self.before.pop(operation, None)) is not None:
            happens()
        with self._lock:
            self.asked[operation] += 1
            if code := self.refused.get(operation) or self.refused.get(""):
                return _error(code)
            if operation == "UpdateTable" and _is_stale(request):
                return _error("ConcurrentModificationException")
            if operation == "ListSchemas":
                return _schemas(request)
            return _ANSWER(request)


_ANSWER = GlueResponse.call_action


def _error(code: str) -> TYPE_RESPONSE:
    return 400, {"x-amzn-errortype": code}, json.dumps({"__type": code, "message": f"Refused with {code}."})


def _schemas(request: GlueResponse) -> TYPE_RESPONSE:
    """The schemas of a registry, two at a time, which moto cannot list.

    As https://docs.aws.amazon.com/glue/latest/webapi/API_ListSchemas.html has them.
    """
    registry = request.parameters["RegistryId"]["RegistryName"]
    begin = int(request.parameters.get("NextToken", "0"))
    found = [
        {"RegistryName": registry, "SchemaName": name} for name in request.glue_backend.registries[registry].schemas
    ]
    more = {"NextToken": str(begin + 2)} if len(found) > begin + 2 else {}
    return 200, {}, json.dumps({"Schemas": found[begin : begin + 2], **more})


def _is_stale(request: GlueResponse) -> bool:
    """Whether an update is meant for another version of a table than the newest one.

    As https://docs.aws.amazon.com/glue/latest/webapi/API_UpdateTable.html has it of `VersionId`.
    """
    asked = request.parameters
    table = request.glue_backend.get_table(asked["DatabaseName"], asked["TableInput"]["Name"])
    newest = str(table.as_dict()["VersionId"])
    return str(asked.get("VersionId", newest)) != newest


@contextmanager
def glue_server(store: ObjectStore, warehouse: str) -> Iterator[GlueServer]:
    """Glue at the address of an object store, with its files there, until the block ends."""
    files = {"s3.endpoint": store.endpoint, "s3.path-style-access": "true"}
    place = {"warehouse": warehouse, "glue.endpoint": store.endpoint, "client.region": REGION}
    server = GlueServer({"type": "glue", **place, **files})
    with patch.object(GlueResponse, "call_action", lambda request: server.answer(request)):  # noqa: PLW0108 - a bound method would not get the request
        yield server
