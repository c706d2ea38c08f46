"""The schema registry client against a scripted server."""

from __future__ import annotations

import base64
import pickle
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
import requests
from pydantic import ValidationError

from applier.config.registry import RegistrySection
from applier.config.settings import parse
from applier.decode.registry.client import (
    Compatibility,
    RegistrySchema,
    SchemaRegistry,
    SubjectVersion,
)
from applier.decode.registry.wire_format import RegistryReader
from applier.errors import ConfigError, RegistryError, SchemaUnknown, TransientError
from tests.fake_registry import Answer, FakeRegistry, fake_registry

SCHEMA = '{"type":"int"}'
FOUND = Answer(200, {"schema": SCHEMA})
BUSY = Answer(503, {"message": "starting"})


@pytest.fixture
def server() -> Iterator[FakeRegistry]:
    """One running server."""
    with fake_registry() as running:
        yield running


class Sleeps(list[float]):
    """Takes the pauses instead of making them."""

    def __call__(self, seconds: float) -> None:
        """Take one."""
        self.append(seconds)


def client(url: Any, sleep: Sleeps | None = None, /, **keys: Any) -> SchemaRegistry:
    """A client that never sleeps."""
    return SchemaRegistry(RegistrySection(url=url, **keys), sleep=sleep if sleep is not None else Sleeps())


def refused_port() -> int:
    """A port that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_a_schema_is_asked_for_once(server: FakeRegistry) -> None:
    """However often an id comes, the registry sees one request."""
    server.on("/schemas/ids/7", FOUND)
    reader = RegistryReader(client(server.url))

    assert len({reader.writer(7).fingerprint for _ in range(1000)}) == 1
    assert len(server.requests) == 1


def test_building_a_client_connects_to_nothing() -> None:
    """A client for an address that nobody listens on can be built; only a question fails."""
    registry = client(f"http://127.0.0.1:{refused_port()}")

    with pytest.raises(TransientError, match="could not be reached in 5 attempts"):
        registry.schema(1)


def test_an_unknown_id_is_not_asked_for_again_at_once(server: FakeRegistry) -> None:
    """A thousand messages with an unknown id cause one request in thirty seconds or in a pass, and then another."""
    missing = Answer(404, {"error_code": 40403, "message": "Schema not found"})
    server.on("/schemas/ids/9", missing, missing, FOUND)
    now = [0.0]
    reader = RegistryReader(client(server.url), clock=lambda: now[0])
    for seconds in (0.0, 31.0):
        now[0] = seconds
        for _ in range(1000):
            with pytest.raises(SchemaUnknown, match="Schema not found") as refusal:
                reader.writer(9)
            assert refusal.value.schema_id == 9

    assert len(server.requests) == 2
    reader.restart()
    assert reader.writer(9).schema == {"type": "int"}


def test_references_are_resolved_each_once_and_needed_ones_first(server: FakeRegistry) -> None:
    """A schema comes with all schemas that it names, directly or through others, in an order that can be parsed."""
    inner = {"name": "b", "subject": "sub/b", "version": 1}
    server.on(
        "/schemas/ids/1",
        Answer(200, {"schema": "top", "references": [{"name": "a", "subject": "a", "version": 3}, inner]}),
    )
    server.on("/subjects/a/versions/3", Answer(200, {"schema": "A", "references": [inner]}))
    server.on("/subjects/sub%2Fb/versions/1", Answer(200, {"schema": "B", "schemaType": "AVRO"}))

    schema = client(server.url).schema(1)

    assert schema == RegistrySchema("top", "AVRO", (RegistrySchema("B"), RegistrySchema("A")))
    assert len(server.requests) == 3


def test_references_in_a_circle_are_refused(server: FakeRegistry) -> None:
    """Schemas that need each other end in an error, not in endless requests."""
    server.on("/schemas/ids/1", Answer(200, {"schema": "x", "references": [{"subject": "a", "version": 1}]}))
    server.on("/subjects/a/versions/1", Answer(200, {"schema": "x", "references": [{"subject": "a", "version": 1}]}))

    with pytest.raises(RegistryError, match="in a circle"):
        client(server.url).schema(1)


def test_subjects_versions_and_one_version(server: FakeRegistry) -> None:
    """Subjects, their versions and one version come as Confluent's interface gives them; slashes are quoted."""
    server.on("/subjects", Answer(200, ["a", "b/c"])).on("/subjects/b%2Fc/versions", Answer(200, [2, 1]))
    server.on("/subjects/b%2Fc/versions/2", Answer(200, {"version": 2, "id": 5, "schema": SCHEMA}))
    registry = client(server.url)

    assert registry.subjects() == ["a", "b/c"]
    assert registry.versions("b/c") == [1, 2]
    assert registry.version("b/c", 2) == SubjectVersion(5, RegistrySchema(SCHEMA))
    assert len(server.requests) == 3


def test_the_subjects_of_an_id(server: FakeRegistry) -> None:
    """Confluent's interface lists the versions that hold an id, each with its subject."""
    server.on("/schemas/ids/7/versions", Answer(200, [{"subject": "a-value", "version": 3}]))
    registry = client(server.url)

    assert registry.subjects_of(7) == ["a-value"]
    with pytest.raises(RegistryError):
        registry.subjects_of(8)


def test_the_level_of_a_subject_falls_back_to_the_registry(server: FakeRegistry) -> None:
    """A subject without a level of its own has the registry's, and a registry without one has none."""
    registry = client(server.url)

    assert registry.compatibility_level("a") == "NONE"
    server.on("/config", Answer(200, {"compatibilityLevel": "FULL"}))
    assert registry.compatibility_level("a") == "FULL"
    server.on("/config/a", Answer(200, {"compatibilityLevel": "BACKWARD"}))
    assert registry.compatibility_level("a") == "BACKWARD"


def test_a_registry_without_modes_is_writable(server: FakeRegistry) -> None:
    """Apicurio has no /mode or an empty one; a registry that tells its mode is believed."""
    registry = client(server.url)

    assert registry.mode("a") == "READWRITE"
    server.on("/mode", Answer(204, b""))
    assert registry.mode("a") == "READWRITE"
    server.on("/mode", Answer(200, {"mode": "READONLY"}))
    assert registry.mode("a") == "READONLY"


def test_the_compatibility_check_sends_the_schema_and_returns_the_reasons(server: FakeRegistry) -> None:
    """A coming schema is posted with verbose=true; verdict and messages come back."""
    path = "/compatibility/subjects/a/versions/1"
    server.on(path, Answer(200, {"is_compatible": False, "messages": ["READER_FIELD_MISSING_DEFAULT_VALUE"]}))
    registry = client(server.url)

    assert registry.check("a", SCHEMA, 1) == Compatibility(False, ("READER_FIELD_MISSING_DEFAULT_VALUE",))
    assert (server.requests[0].path, server.requests[0].body) == (f"{path}?verbose=true", {"schema": SCHEMA})


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({}, None),
        ({"username": "ann", "password": "p:w"}, "Basic " + base64.b64encode(b"ann:p:w").decode()),
        ({"username": "ann", "password": "p\u00e4ss"}, "Basic " + base64.b64encode("ann:p\u00e4ss".encode()).decode()),
        ({"bearer_token": "tok"}, "Bearer tok"),
    ],
)
def test_the_client_logs_in_as_it_is_told(server: FakeRegistry, keys: dict[str, str], expected: str | None) -> None:
    """Nothing, basic authentication in UTF-8, or a bearer token."""
    server.on("/subjects", Answer(200, []))

    client(server.url, **keys).subjects()

    assert server.requests[0].authorization == expected


def test_user_and_password_may_stand_in_the_url_encoded(server: FakeRegistry) -> None:
    """`user:p%40ss%2Fword@` logs in as user with password `p@ss/word`, as TiCDC's own schema-registry takes it."""
    server.on("/subjects", Answer(200, []))

    client(server.url.replace("http://", "http://us%3Aer:p%40ss%2Fword@")).subjects()

    assert server.requests[0].authorization == "Basic " + base64.b64encode(b"us:er:p@ss/word").decode()


def test_netrc_is_not_asked(server: FakeRegistry, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """Without credentials in the configuration none are sent, whatever ~/.netrc holds."""
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login a password b\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    server.on("/subjects", Answer(200, []))

    client(server.url).subjects()

    assert server.requests[0].authorization is None


@pytest.mark.parametrize(
    ("status", "body", "sentence", "hint"),
    [
        (
            401,
            {"error_code": 40101, "message": "Unauthorized"},
            "answers 401 (40101): Unauthorized.",
            "user and password",
        ),
        (403, b"<html>", "answers 403: no message.", "right to read"),
        (
            404,
            {"error_code": 40403, "message": "Schema 7 not found."},
            "answers 404 (40403): Schema 7 not found.",
            "another registry",
        ),
        (409, {"error_code": 409, "message": "Incompatible"}, "answers 409: Incompatible.", "compatibility level"),
        (
            422,
            {"error_code": 42201, "message": "Invalid\n schema"},
            "answers 422 (42201): Invalid schema.",
            "does not accept",
        ),
    ],
)
def test_a_refusal_is_one_sentence_and_not_repeated(
    server: FakeRegistry, status: int, body: Any, sentence: str, hint: str
) -> None:
    """An answer that will not change is raised at once, with status, code, message and a way out."""
    server.on("/schemas/ids/7", Answer(status, body))
    sleeps = Sleeps()

    with pytest.raises(RegistryError) as caught:
        client(server.url, sleeps).schema(7)

    assert caught.value.what == f"Schema registry {server.url} {sentence}"
    assert hint in caught.value.hint
    assert (len(server.requests), sleeps) == (1, [])


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_a_passing_failure_is_tried_again(server: FakeRegistry, status: int) -> None:
    """Two bad answers and a good one make a good one, after two growing pauses."""
    server.on("/schemas/ids/7", Answer(status, b""), Answer(status, b""), FOUND)
    sleeps = Sleeps()

    assert client(server.url, sleeps).schema(7).text == SCHEMA
    assert len(sleeps) == 2
    assert 0.5 <= sleeps[0] <= 1.0 <= sleeps[1] <= 1.5


@pytest.mark.parametrize("attempts", [None, 1, 3])
def test_attempts_are_bounded(server: FakeRegistry, attempts: int | None) -> None:
    """A registry that stays busy ends in a TransientError after five attempts, or as many as were asked for."""
    server.on("/schemas/ids/7", BUSY)
    sleeps, count = Sleeps(), attempts or 5
    settings = RegistrySection.model_validate({"url": server.url} | ({"attempts": attempts} if attempts else {}))

    told = rf"could not be reached in {count} attempts: http://127.0.0.1:\d+ answers 503\."
    with pytest.raises(TransientError, match=told):
        SchemaRegistry(settings, sleep=sleeps).schema(7)

    assert (len(server.requests), len(sleeps)) == (count, count - 1)


def test_the_wait_for_an_answer_is_bounded(server: FakeRegistry) -> None:
    """A registry that takes a connection and says nothing is given up after the seconds that were asked for."""
    with socket.create_server(("127.0.0.1", 0)) as mute:
        url = f"http://127.0.0.1:{mute.getsockname()[1]}"
        settings = RegistrySection(url=f"{url},{server.url}", timeout_seconds=0.05, attempts=1)
        server.on("/subjects", Answer(200, ["shop-value"]))

        assert SchemaRegistry(settings, sleep=Sleeps()).subjects() == ["shop-value"]


def test_an_answer_that_drips_is_given_up(server: FakeRegistry) -> None:
    """A registry that sends a byte now and then is left for the next address: each byte renews no wait."""
    stop = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as slow:

        def drip() -> None:
            connection, _ = slow.accept()
            with connection, suppress(OSError):
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
                while not stop.wait(0.05):
                    connection.sendall(b" ")

        thread = threading.Thread(target=drip, daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{slow.getsockname()[1]}"
        settings = RegistrySection(url=f"{url},{server.url}", timeout_seconds=0.2, attempts=1)
        server.on("/subjects", Answer(200, ["shop-value"]))
        try:
            assert SchemaRegistry(settings, sleep=Sleeps()).subjects() == ["shop-value"]
        finally:
            stop.set()
            thread.join()


def test_retry_after_is_honoured_up_to_a_bound(server: FakeRegistry) -> None:
    """Seconds and dates of Retry-After are waited for, nonsense is not, and an hour is too long."""
    moment = format_datetime(datetime.now(UTC) + timedelta(seconds=10), usegmt=True)
    waits = [{"Retry-After": value} for value in ("3", moment, "soon", "3600")]
    server.on("/schemas/ids/7", *(Answer(429, b"", headers) for headers in waits), FOUND)
    sleeps = Sleeps()

    client(server.url, sleeps).schema(7)

    assert sleeps[0] == 3.0
    assert 7.0 <= sleeps[1] <= 10.0
    assert sleeps[2] < 5.0
    assert sleeps[3] == 30.0


def test_another_address_takes_over(server: FakeRegistry) -> None:
    """Where one address does not answer the next one does, at once, and stays the first to be asked."""
    sleeps = Sleeps()
    with fake_registry() as other:
        server.on("/schemas/ids/7", BUSY).on("/schemas/ids/8", BUSY)
        other.on("/schemas/ids/7", FOUND).on("/schemas/ids/8", FOUND)
        registry = client(f"http://127.0.0.1:{refused_port()}, {server.url},{other.url}", sleeps)

        assert (registry.schema(7).text, registry.schema(8).text) == (SCHEMA, SCHEMA)
        assert ([r.path for r in server.requests], len(other.requests), sleeps) == (["/schemas/ids/7"], 2, [])


def test_an_answer_that_is_no_json_is_refused(server: FakeRegistry) -> None:
    """A web page in place of a schema names the likely mistake: a path that is missing in the URL."""
    server.on("/schemas/ids/7", Answer(200, b"<html>"))

    with pytest.raises(RegistryError, match="not JSON") as caught:
        client(server.url).schema(7)

    assert "/apis/ccompat/v7" in caught.value.hint


@pytest.mark.parametrize(
    "body", [[], "text", {"schema": 1}, {}, {"schema": "x", "references": {"a": 1}}, {"schema": "x", "references": [1]}]
)
def test_an_answer_of_another_shape_is_refused(server: FakeRegistry, body: Any) -> None:
    """Whatever JSON comes in place of a schema, the error is ours."""
    server.on("/schemas/ids/7", Answer(200, body))

    with pytest.raises(RegistryError, match="is none of Confluent's interface"):
        client(server.url).schema(7)


def test_an_endless_answer_is_cut_off(server: FakeRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer beyond the size of any schema is refused while it is read."""
    monkeypatch.setattr("applier.decode.registry.client.MAX_ANSWER_BYTES", 1000)
    server.on("/schemas/ids/7", Answer(200, b"x" * 100_000))

    with pytest.raises(RegistryError, match="more than 1000 bytes"):
        client(server.url).schema(7)


def test_a_missing_certificate_file_is_our_error(server: FakeRegistry) -> None:
    """A CA file that is not there is named as a matter of the configuration, not as an OSError."""
    server.on("/subjects", Answer(200, []))

    with pytest.raises(RegistryError, match="cannot be asked") as caught:
        client(server.url.replace("http", "https"), ca="/nowhere/ca.pem").subjects()

    assert "ca, client_cert" in caught.value.hint


def test_secrets_are_never_printed(server: FakeRegistry) -> None:
    """Neither repr nor an error shows user, password or token, and settings survive pickling with them."""
    url = server.url.replace("http://", "http://ann:s3cret@")
    settings = RegistrySection(url=url)
    bearer = RegistrySection(url=server.url, bearer_token="t0ken")
    server.on("/subjects", Answer(401, {"message": "no"}))

    with pytest.raises(RegistryError) as caught:
        SchemaRegistry(settings).subjects()

    assert "s3cret" not in f"{settings!r} {caught.value} {caught.value!r}"
    assert "t0ken" not in repr(bearer)
    assert pickle.loads(pickle.dumps(settings)) == settings  # noqa: S301 - as Spark sends them to its workers
    assert (settings.endpoints[0].url, settings.endpoints[0].password) == (server.url, "s3cret")


@pytest.mark.parametrize(
    ("url", "keys", "problem"),
    [
        ("", {}, "registry.url: names no address."),
        ("registry:8081", {}, "must look like https://host:port"),
        ("http://u:pass@:8081", {}, "must look like https://host:port"),
        ("http://h:port", {}, "must look like https://host:port"),
        ("http://h", {"password": "x"}, "registry: password is set without username."),
        ("http://u:pass@h", {"bearer_token": "x"}, "registry: a bearer token and a user name exclude each other."),
        ("http://h", {"client_key": "k.pem"}, "registry: client_key is set without client_cert."),
    ],
)
def test_wrong_settings_are_refused_without_showing_them(url: str, keys: dict[str, Any], problem: str) -> None:
    """A wrong address or combination is a ConfigError that repeats nothing of what may be a secret."""
    raw = {
        "changefeed": {"name": "shop", "protocol": "avro"},
        "source": {"archive": "topic"},
        "catalog": {"name": "lake", "type": "hadoop", "warehouse": "lake"},
        "registry": {"url": url, **keys},
    }
    with pytest.raises(ConfigError) as caught:
        parse(raw)
    with pytest.raises(ValidationError) as direct:
        RegistrySection(url=url, **keys)

    assert problem in str(caught.value)
    for told in (str(caught.value), str(direct.value)):
        assert "pass" not in told.replace("password URL-encoded", "").replace("password is set", "")


@pytest.mark.parametrize(
    ("keys", "verify", "cert"),
    [
        ({"ca": "ca.pem", "client_cert": "c.pem", "client_key": "k.pem"}, "ca.pem", ("c.pem", "k.pem")),
        ({"client_cert": "c.pem"}, True, "c.pem"),
    ],
)
def test_mutual_tls_files_go_to_the_request(
    keys: dict[str, str], verify: object, cert: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CA, certificate and key are handed on; without a CA the machine's list counts."""
    given: dict[str, Any] = {}

    def request(_self: requests.Session, _method: str, _url: str, **options: Any) -> None:
        given.update(options)
        raise requests.ConnectionError

    monkeypatch.setattr(requests.Session, "request", request)
    with pytest.raises(TransientError):
        client("https://h", attempts=1, **keys).subjects()

    assert (given["verify"], given["cert"]) == (verify, cert)


def test_a_registry_that_lets_nobody_in_is_an_outage(server: FakeRegistry) -> None:
    """401 and 403 are tried again like any outage, and an id that was refused so is asked for again at once."""
    server.on("/schemas/ids/9", Answer(403, {"message": "no"}), FOUND)
    client = SchemaRegistry(RegistrySection(url=server.url))

    with pytest.raises(TransientError, match="answers 403: no"):
        client.schema(9)
    assert client.schema(9).text
