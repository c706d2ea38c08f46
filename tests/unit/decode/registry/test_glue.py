"""The client of AWS Glue Schema Registry against moto's, and the framing of its messages."""

from __future__ import annotations

import pickle
import sys
import uuid
from collections.abc import Iterator
from itertools import starmap
from typing import Any

import pytest
from moto.glue.models import glue_backends

from applier.config.registry import RegistrySection
from applier.config.settings import parse
from applier.decode.avro.decoder import AvroDecoder, build
from applier.decode.debezium.avro_decoder import DebeziumAvroDecoder
from applier.decode.decoder import Decoder
from applier.decode.options import DecoderOptions
from applier.decode.protocols import build as decoder_of
from applier.decode.registry.client import Compatibility
from applier.decode.registry.framing import CONFLUENT, GLUE, Framing, GlueId
from applier.decode.registry.glue import GlueRegistry
from applier.decode.registry.wire_format import RegistryReader
from applier.errors import ConfigError, DecodeError, RegistryDenied, RegistryError, SchemaUnknown, TransientError
from tests import recordings
from tests.services.glue_registry import RegistryInGlue, glue_registry
from tests.services.s3 import REGION
from tests.unit.decode.recorded_registry import RecordedRegistry

pytestmark = pytest.mark.slow

INT, TEXT = '"int"', '"string"'
NOWHERE = uuid.UUID(int=7)


@pytest.fixture(scope="module")
def _running() -> Iterator[RegistryInGlue]:
    with glue_registry() as running:
        yield running


@pytest.fixture
def registry(_running: RegistryInGlue) -> RegistryInGlue:
    """A registry that refuses nothing yet; use names of your own."""
    _running.glue.refused.clear()
    _running.glue.asked.clear()
    return _running


class Sleeps(list[float]):
    """Takes the pauses instead of making them."""

    def __call__(self, seconds: float) -> None:
        """Take one."""
        self.append(seconds)


def client(registry: RegistryInGlue, sleep: Sleeps | None = None, /, **keys: Any) -> GlueRegistry:
    """A client that never sleeps."""
    section = RegistrySection(**{**registry.section, **keys})
    return GlueRegistry(section, sleep=sleep if sleep is not None else Sleeps())


def test_a_schema_is_found_by_its_version_id(registry: RegistryInGlue) -> None:
    """And by name and number, as `check` asks; an id knows its name."""
    first, second = registry.register("ids-value", INT), registry.register("ids-value", TEXT)
    asked = client(registry)

    assert asked.schema(GlueId(second.int)).text == TEXT
    assert asked.versions("ids-value") == [1, 2]
    assert [asked.version("ids-value", n).schema_id for n in (1, 2)] == [first.int, second.int]
    assert str(asked.version("ids-value", 1).schema_id) == str(first)
    assert asked.subjects_of(first.int) == ["ids-value"]
    assert client(registry, registry_name="another").subjects_of(first.int) == []


def test_all_names_are_listed(registry: RegistryInGlue) -> None:
    """Also those of later pages."""
    names = [f"many{n}-value" for n in range(5)]
    for name in names:
        registry.register(name, INT)

    assert set(names) <= set(client(registry).subjects())


def test_a_version_that_was_deleted_is_left_out(registry: RegistryInGlue) -> None:
    """The numbers of the others stay."""
    for text in (INT, TEXT, '"long"'):
        registry.register("gaps-value", text)
    held = glue_backends["123456789012"][REGION].registries[registry.section["registry_name"]]
    versions = held.schemas["gaps-value"].schema_versions
    del versions[next(iter(versions))]

    assert client(registry).versions("gaps-value") == [2, 3]


@pytest.mark.parametrize(
    ("level", "named", "mode"),
    [("BACKWARD_ALL", "BACKWARD_TRANSITIVE", "READWRITE"), ("DISABLED", "DISABLED", "READONLY")],
)
def test_a_level_that_may_refuse_gets_no_verdict(registry: RegistryInGlue, level: str, named: str, mode: str) -> None:
    """Glue compares at the registration alone; the sentence has the command that sets the level."""
    name = f"level-{level}-value"
    registry.register(name, INT, level)
    asked = client(registry)

    assert (asked.compatibility_level(name), asked.mode(name)) == (named, mode)
    with pytest.raises(RegistryError, match=rf"only at the registration .* level {named} of schema {name}\. .*--comp"):
        asked.check(name, TEXT, 1)


def test_the_level_that_ticdc_sets_takes_every_schema(registry: RegistryInGlue) -> None:
    """One to come has it, too."""
    registry.register("free-value", INT)

    assert client(registry).check("free-value", TEXT, 1) == Compatibility(is_compatible=True)
    assert client(registry).compatibility_level("to-come-value") == "NONE"
    assert client(registry).mode("free-value") == "READWRITE"


def test_an_id_that_is_not_there_may_come_yet(registry: RegistryInGlue) -> None:
    """The hint names the keys of a registry in another region."""
    with pytest.raises(
        SchemaUnknown, match=r"us-east-1 answers EntityNotFoundException: .* check region and registry_"
    ):
        client(registry).schema(NOWHERE.int)


@pytest.mark.parametrize("code", ["AccessDeniedException", "UnrecognizedClientException", "ExpiredTokenException"])
def test_a_log_in_that_is_refused_makes_no_message_bad(registry: RegistryInGlue, code: str) -> None:
    """It is asked once, and named with the rights that it takes."""
    registry.glue.refused["GetSchemaVersion"] = code

    with pytest.raises(RegistryDenied, match=rf"answers {code}: Refused with {code}\. .* rights glue:GetSchemaVersion"):
        client(registry).schema(NOWHERE.int)
    assert registry.glue.asked["GetSchemaVersion"] == 1


def test_a_wrong_question_is_refused(registry: RegistryInGlue) -> None:
    """It is no outage."""
    registry.glue.refused["GetSchemaVersion"] = "InvalidInputException"

    with pytest.raises(RegistryError, match="answers InvalidInputException") as caught:
        client(registry).schema(NOWHERE.int)
    assert not isinstance(caught.value, TransientError | SchemaUnknown)


@pytest.mark.parametrize("code", ["ThrottlingException", "InternalServiceException"])
def test_a_registry_that_is_busy_is_asked_again(registry: RegistryInGlue, code: str) -> None:
    """As often as the section has attempts, with growing pauses; then it is an outage."""
    registry.glue.refused["GetSchemaVersion"], sleeps = code, Sleeps()

    with pytest.raises(TransientError, match=rf"could not be reached in 3 attempts: it answers {code}\. .* endpoint"):
        client(registry, sleeps, attempts=3).schema(NOWHERE.int)
    assert registry.glue.asked["GetSchemaVersion"] == 3
    assert len(sleeps) == 2


def test_an_address_that_does_not_answer_is_an_outage(registry: RegistryInGlue) -> None:
    """Nothing listens on port 1."""
    with pytest.raises(TransientError, match="could not be reached in 2 attempts: it gives EndpointConnectionError"):
        client(registry, attempts=2, endpoint="http://127.0.0.1:1").schema(NOWHERE.int)


def test_without_keys_nothing_is_asked(registry: RegistryInGlue, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sentence names where they may be."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")

    with pytest.raises(RegistryDenied, match=r"cannot be asked: there are no keys\. .* check access_key_id"):
        client(registry, access_key_id=None, secret_access_key=None).schema(NOWHERE.int)


def test_a_library_that_is_missing_is_named(registry: RegistryInGlue, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the command that installs it."""
    monkeypatch.setitem(sys.modules, "boto3", None)

    with pytest.raises(ConfigError, match=r"needs the package boto3, .* Install it: pip install 'applier\[glue\]'"):
        client(registry).schema(NOWHERE.int)


def test_a_schema_is_asked_for_once(registry: RegistryInGlue) -> None:
    """An id of Glue never means another schema, so later passes need not ask."""
    number = registry.register("once-value", INT).int
    reader = RegistryReader(client(registry), framing=GLUE)
    for _ in range(3):
        reader.restart()
        assert reader.read(number, b"\3\0" + uuid.UUID(int=number).bytes + b"\x02") == 1

    assert registry.glue.asked["GetSchemaVersion"] == 1


def test_an_id_travels_to_workers_as_it_is() -> None:
    """Its text stays the UUID."""
    found = pickle.loads(pickle.dumps(GlueId(NOWHERE.int)))  # noqa: S301 - our own

    assert (found, f"{found}") == (NOWHERE.int, str(NOWHERE))


_UUID = b"\3\0" + NOWHERE.bytes
_TO_GLUE = (
    r'header of AWS Glue Schema Registry, but \[registry\] type is "confluent"\. .* set \[registry\] type = "glue"'
)
_TO_CONFLUENT = r'Confluent schema registry, but \[registry\] type is "glue"\. .* set \[registry\] type = "confluent"'


@pytest.mark.parametrize(
    ("framing", "value", "said"),
    [
        (CONFLUENT, _UUID + b"\2", _TO_GLUE),
        (GLUE, b"\0\0\0\0\1\2", _TO_CONFLUENT),
        (GLUE, b"\3\5" + NOWHERE.bytes + b"\2", "Its Avro is compressed, .* keep other writers out of the topics"),
        (GLUE, b"\3\0\1", "does not begin with the header of AWS Glue Schema Registry, but with 0300"),
        (GLUE, b"\4\0\1", "begins with 0400 and has 3 bytes, which is no message of TiCDC's avro"),
    ],
)
def test_a_message_of_another_framing_is_refused(framing: Framing, value: bytes, said: str) -> None:
    """The sentence names the key to set, where one would read it."""
    decoder = AvroDecoder(RecordedRegistry("types", "avro-precise"), framing=framing)

    with pytest.raises(DecodeError, match=said):
        decoder.decode(value, value)


def test_debezium_avro_names_the_framing_as_well() -> None:
    """TiCDC writes both protocols with both registries."""
    decoder = decoder_of("debezium-avro", DecoderOptions(registry=RegistrySection(url="http://127.0.0.1:1")))

    with pytest.raises(DecodeError, match=_TO_GLUE):
        decoder.decode(_UUID, _UUID)


@pytest.mark.parametrize("variant", ["avro-precise", "avro-before-value", "debezium-avro"])
def test_recorded_messages_mean_the_same_in_both_framings(registry: RegistryInGlue, variant: str) -> None:
    """Rows, DDL, watermarks and deletes of nine bytes are those of the recording."""
    protocol = "debezium-avro" if variant == "debezium-avro" else "avro"
    framed = build if protocol == "avro" else lambda options: decoder_of("debezium-avro", options)
    glue: Decoder = framed(DecoderOptions(registry=RegistrySection(**registry.section)))
    recorded = RecordedRegistry("pk", variant)
    if protocol == "avro":
        plain: Decoder = AvroDecoder(recorded, subjects=recorded)
    else:
        plain = DebeziumAvroDecoder(recorded)
    pairs = zip(recordings.records("pk", variant), registry.reframed("pk", variant), strict=True)
    seen = [(_meaning(plain, one), _meaning(glue, other)) for one, other in pairs]

    assert [mine for mine, _ in seen] == [other for _, other in seen]
    assert any("DELETE" in text for mine, _ in seen for text in mine)


def _meaning(decoder: Decoder, record: dict[str, Any]) -> list[str]:
    """The events of a message without the numbers of versions; a refusal as its sentence."""
    try:
        events = decoder.decode(record["key"], record["value"])
    except DecodeError as error:
        return [str(error)]
    return list(starmap(_text, enumerate(events)))


def _text(_: int, event: Any) -> str:
    parts = ("name", "op", "commit_ts", "before", "after", "resolved_ts", "sql")
    found = {part: getattr(event, part) for part in parts if hasattr(event, part)}
    columns = getattr(getattr(event, "version", None), "columns", None)
    return f"{type(event).__name__} {found} {columns}"


@pytest.mark.parametrize(
    ("keys", "problems"),
    [
        (
            {},
            ['registry.region: is needed with type = "glue".', 'registry.registry_name: is needed with type = "glue".'],
        ),
        (
            {"region": "us-east-1", "registry_name": "r", "url": "http://x:1", "ca": "x.pem"},
            ['registry.url: is for type = "confluent".', 'registry.ca: is for type = "confluent".'],
        ),
        (
            {"region": "us-east-1", "registry_name": "r", "access_key_id": "a"},
            ["access_key_id and secret_access_key go"],
        ),
        (
            {"region": "us-east-1", "registry_name": "r", "session_token": "a"},
            ["session_token is set without access_key"],
        ),
        ({"region": "us-east-1", "registry_name": "r", "endpoint": "glue"}, ["an address must look like https://"]),
        ({"type": "confluent", "url": "http://x:1", "region": "r"}, ['registry.region: is for type = "glue".']),
        ({"type": "confluent"}, ["registry.url: missing."]),
    ],
)
def test_keys_that_do_not_go_together_are_named(keys: dict[str, Any], problems: list[str]) -> None:
    """Each with the type that it is for."""
    raw = {
        "changefeed": {"name": "x", "protocol": "avro"},
        "source": {"archive": "x"},
        "catalog": {"name": "x", "type": "hadoop", "warehouse": "x"},
        "registry": {"type": "glue", **keys},
    }
    with pytest.raises(ConfigError) as caught:
        parse(raw)

    assert len(caught.value.problems) == len(problems)
    for problem, text in zip(caught.value.problems, problems, strict=True):
        assert text in problem


def test_secrets_are_not_shown() -> None:
    """Neither the secret key nor the token."""
    section = RegistrySection(
        type="glue",
        region="us-east-1",
        registry_name="r",
        access_key_id="me",
        secret_access_key="hidden",
        session_token="hidden",
    )

    assert "hidden" not in repr(section)


def test_numbers_show_which_schema_is_newer(registry: RegistryInGlue) -> None:
    """Although ids do not; the numbers of a schema that was made anew are others."""
    ids = [registry.register("order-value", text).int for text in (INT, TEXT, '"long"')]
    reader = RegistryReader(client(registry), framing=GLUE)

    numbers = [reader.number(GlueId(each)) for each in ids]

    assert numbers == sorted(numbers)
    assert max(numbers) < 1 << 31
    assert reader.number(0) == 0
    assert GLUE.number(GlueId(1), 1) != GLUE.number(GlueId(2), 1)
    with pytest.raises(RegistryError, match="is version 32768 of its schema, which is beyond 32767"):
        GLUE.number(GlueId(1), 1 << 15)
