"""A broker with TLS, mutual TLS, log-ins and rights: what is right is read, and what is wrong ends with its reason."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from confluent_kafka.admin import AclOperation

from applier.changefeed.window import Window
from applier.commands.before_spark import refuse
from applier.config import settings
from applier.config.settings import Config
from applier.consume.spark import topics_alone
from applier.errors import OutsideRefused
from tests import recordings
from tests.few import few
from tests.integration.test_kafka_source import produce
from tests.integration.test_systems import configured, told
from tests.recovery.process import Applier, once
from tests.replay import Replay, differences, replay
from tests.services.certificates import STORE_PASSWORD
from tests.services.secured_kafka import (
    PASSWORDS,
    SecuredBroker,
    as_jks,
    as_pkcs12,
    login,
    secured_broker,
    with_locked_key,
    with_older_lock,
)

pytestmark = pytest.mark.kafka

TOPIC = "secured-golden-pk"
"""The recording's one, with a prefix."""

TRUST = "Hint: check the server's certificate: kafka.ssl.truststore.* must hold the authority that issued it"
KEY_STORE = "Hint: the broker ended the TLS handshake: check kafka.ssl.keystore.*"
OPTIONS = "Hint: check the kafka.* options under [source.kafka]"
RIGHT = "Hint: give this user the right Read on the topic, which includes Describe; no other right is needed."
LOGIN = "Hint: check the log-in and the rights that the configuration gives for it."
DATES = "Hint: the server's certificate is out of its dates: renew it there, or set the clock of this machine."
PROTOCOL = 'Hint: write "kafka.security.protocol" = '

PATH = "unable to find valid certification path to requested target"
ALERT = "Received fatal alert: "
TAKES, TLS = "does not take kafka.security.protocol", "this listener takes TLS"

Way = Callable[[SecuredBroker], dict[str, str]]
ALICE, BOB = login("PLAIN", "alice"), login("SCRAM-SHA-512", "bob")


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    """A broker with one topic, on which a client's certificate, alice and bob have the right Read."""
    with secured_broker(tmp_path_factory.mktemp("secured")) as running:
        produce(running.bootstrap, recordings.records("pk", "simple-json"), topic_prefix="secured-")
        for user in ("CN=client", "alice", "bob"):
            running.allow(user, AclOperation.READ, TOPIC)
        yield running


def client(folder: Path, servers: str, options: Mapping[str, str]) -> Config:
    """A changefeed that reads the topic with options of Kafka's clients."""
    raw = configured(folder, servers, [TOPIC], "simple").model_dump(exclude_unset=True)
    raw["source"]["kafka"].update(options)
    return settings.parse(raw)


def read(config: Config) -> int:
    """Messages that Kafka's consumer reads of the whole topic."""
    with topics_alone(config, 60) as topics:
        found = topics.collect(Window(topics.bounds()))
    return sum(table.num_rows for table in found.values())


WAYS: dict[str, tuple[str, Way]] = {
    "both": ("BOTH", lambda it: it.trusting() | it.certified("client") | BOB),
    "PLAIN": ("LOGIN", lambda it: it.trusting() | ALICE),
    "SCRAM": ("LOGIN", lambda it: it.trusting() | BOB),
    "PEM": ("MUTUAL", lambda it: it.trusting() | it.certified("client")),
    "PKCS12": ("MUTUAL", lambda it: it.trusting() | as_pkcs12(it.certified("client"))),
    "JKS": ("MUTUAL", lambda it: as_jks(it.trusting() | it.certified("client"))),
    "an encrypted key": ("MUTUAL", lambda it: it.trusting() | with_older_lock(it.certified("client"), STORE_PASSWORD)),
    "SCRAM without TLS": ("OPEN", lambda _: BOB | {"kafka.security.protocol": "SASL_PLAINTEXT"}),
}
"""Each way in that is right: the listener, and the options of the client."""


@pytest.mark.parametrize("way", few(WAYS))
def test_a_right_way_in_needs_the_right_read_alone(secured: SecuredBroker, tmp_path: Path, way: str) -> None:
    """Neither the cluster nor a consumer group is asked for."""
    name, options = WAYS[way]

    count = len(list(recordings.records("pk", "simple-json")))
    assert read(client(tmp_path, secured.at(name), options(secured))) == count


WRONG: dict[str, tuple[str, Way, str, str]] = {
    "no login": (
        "LOGIN",
        SecuredBroker.trusting,
        f"{TAKES} SSL: {TLS}, and a log-in by SASL.",
        PROTOCOL + '"SASL_SSL"',
    ),
    "no TLS": ("TLS", lambda _: {}, f"{TAKES} PLAINTEXT: {TLS}, without SASL.", PROTOCOL + '"SSL"'),
    "no mutual TLS": ("MUTUAL", lambda _: {}, f"{TAKES} PLAINTEXT: {TLS}.", PROTOCOL + '"SSL"'),
    "TLS where there is none": (
        "PLAINTEXT",
        SecuredBroker.trusting,
        f"{TAKES} SSL: this listener takes plain text, without SASL.",
        PROTOCOL + '"PLAINTEXT"',
    ),
    "a login where there is none": (
        "TLS",
        lambda it: it.trusting() | BOB,
        "Unexpected handshake request with client mechanism SCRAM-SHA-512, enabled mechanisms are []",
        "Hint: this listener takes no log-in by SASL: write SSL or PLAINTEXT to kafka.security.protocol.",
    ),
    "no authority": ("TLS", lambda _: {"kafka.security.protocol": "SSL"}, PATH, TRUST),
    "a foreign authority": (
        "TLS",
        lambda it: it.trusting() | {"kafka.ssl.truststore.location": str(it.foreign.file)},
        PATH,
        TRUST,
    ),
    "no file": (
        "TLS",
        lambda it: it.trusting() | {"kafka.ssl.truststore.location": "/none.pem"},
        "there is no file /none.pem",
        OPTIONS,
    ),
    "an expired server": ("OLD", SecuredBroker.trusting, "NotAfter: ", DATES),
    "a server of another host": ("OTHER", SecuredBroker.trusting, "No subject alternative names matching IP", TRUST),
    "TLS where the log-in has none": (
        "OPEN",
        lambda it: it.trusting() | BOB,
        f"{TAKES} SASL_SSL: this listener takes plain text, and a log-in by SASL.",
        PROTOCOL + '"SASL_PLAINTEXT"',
    ),
    "a password without TLS": (
        "OPEN",
        lambda _: login("SCRAM-SHA-512", "bob", "wrong-secret") | {"kafka.security.protocol": "SASL_PLAINTEXT"},
        "invalid credentials with SASL mechanism SCRAM-SHA-512",
        LOGIN,
    ),
    "a key without its password": (
        "MUTUAL",
        lambda it: it.trusting() | with_older_lock(it.certified("client")),
        "client.locked.pem is encrypted.",
        "Hint: write its password as kafka.ssl.key.password.",
    ),
    "a key with another password": (
        "MUTUAL",
        lambda it: it.trusting() | with_older_lock(it.certified("client"), "wrong-secret"),
        "a bad key is used during decryption",
        OPTIONS,
    ),
    "a key that OpenSSL encrypted": (
        "MUTUAL",
        lambda it: it.trusting() | with_locked_key(it.certified("client"), STORE_PASSWORD),
        "client.locked.pem, whose encryption is PBES2.",
        "Hint: convert it by `openssl pkcs12 -export -in ",
    ),
    "an authority as PEM without its type": (
        "TLS",
        lambda it: it.trusting() | {"kafka.ssl.truststore.type": "JKS"},
        "trusted.pem of kafka.ssl.truststore.location is PEM.",
        'Hint: write "kafka.ssl.truststore.type" = "PEM".',
    ),
    "no certificate": ("MUTUAL", SecuredBroker.trusting, ALERT, KEY_STORE),
    "a foreign certificate": (
        "MUTUAL",
        lambda it: it.trusting() | it.certified("stranger", it.foreign),
        ALERT,
        KEY_STORE,
    ),
    "an expired certificate": (
        "MUTUAL",
        lambda it: it.trusting() | it.certified("old-client", expired=True),
        ALERT,
        KEY_STORE,
    ),
    "the password of the store": (
        "MUTUAL",
        lambda it: it.trusting() | as_pkcs12(it.certified("client"), "wrong-secret"),
        "keystore password was incorrect",
        OPTIONS,
    ),
    "a password by PLAIN": (
        "LOGIN",
        lambda it: it.trusting() | login("PLAIN", "alice", "wrong-secret"),
        "Authentication failed: Invalid username or password",
        LOGIN,
    ),
    "a password by SCRAM": (
        "LOGIN",
        lambda it: it.trusting() | login("SCRAM-SHA-512", "bob", "wrong-secret"),
        "invalid credentials with SASL mechanism SCRAM-SHA-512",
        LOGIN,
    ),
    "a mechanism that is off": (
        "LOGIN",
        lambda it: it.trusting() | login("SCRAM-SHA-256", "bob"),
        "'SCRAM-SHA-256' not enabled in the server, enabled mechanisms are [PLAIN, SCRAM-SHA-512]",
        OPTIONS,
    ),
    "no right": (
        "MUTUAL",
        lambda it: it.trusting() | it.certified("unknown"),
        f"cannot be asked about {TOPIC}: Topic authorization failed.",
        RIGHT,
    ),
}
"""Each wrong way in: the listener, the options, and what the sentence has of what happened and of the way out."""


@pytest.mark.parametrize("case", few(WRONG))
def test_a_wrong_way_in_ends_with_its_reason_before_spark(secured: SecuredBroker, tmp_path: Path, case: str) -> None:
    """One sentence says what the broker or the client refuses, and which option to look at."""
    name, options, what, hint = WRONG[case]

    with pytest.raises(OutsideRefused) as raised:
        refuse(client(tmp_path, secured.at(name), options(secured)))
    sentence = str(raised.value)
    assert what in sentence
    assert hint in sentence
    assert "secret" not in sentence


def test_the_way_out_of_a_key_that_openssl_encrypted(secured: SecuredBroker, tmp_path: Path) -> None:
    """The command of the hint makes a store that the client reads."""
    locked = with_locked_key(secured.certified("client"), STORE_PASSWORD)
    with pytest.raises(OutsideRefused) as raised:
        refuse(client(tmp_path, secured.at("MUTUAL"), secured.trusting() | locked))
    [command] = re.findall("`(openssl [^`]*)`", str(raised.value))
    answers = ["-passin", f"pass:{STORE_PASSWORD}", "-passout", f"pass:{STORE_PASSWORD}"]

    subprocess.run([*command.split(), *answers], check=True, capture_output=True)

    assert read(client(tmp_path, secured.at("MUTUAL"), secured.trusting() | as_pkcs12(locked))) > 0


def test_a_pattern_finds_what_the_user_may_describe(secured: SecuredBroker, tmp_path: Path) -> None:
    """Other topics are as good as not there; where there is none, `check` and `run` end as for a topic by name."""
    secured.create_topic("secured-hidden")
    found = feed(secured, tmp_path, "PEM")
    kafka = found.raw["source"]["kafka"]
    del kafka["topics"]
    kafka["topic_pattern"] = "secured-.*"

    with topics_alone(settings.parse(found.raw), 60) as topics:
        assert {place.topic for place in topics.bounds()} == {TOPIC}
    kafka |= secured.certified("unknown")
    [(_, verdict, result)] = told(settings.parse(found.raw))
    ran = once(found.raw, tmp_path)

    assert (verdict, result) == ("does not fit", "No topic of Kafka matches secured-.*.")
    assert ran.code == 3, ran.everything
    assert f"{result} Hint: check source.kafka.topic_pattern, and that this user has the right Describe" in ran.said
    assert "Spark is started" not in {event["event"] for event in ran.events}


def feed(secured: SecuredBroker, folder: Path, way: str) -> Replay:
    """The recording by one of `WAYS`, into a catalog of its own."""
    lake = {"type": "jdbc", "uri": f"jdbc:sqlite:{folder}/catalog.db", "warehouse": f"{folder}/tables"}
    found = replay("pk", "simple-json", lake, folder, "simple")
    name, options = WAYS[way]
    found.raw["source"] = {
        "kafka": {"topics": [TOPIC], "kafka.bootstrap.servers": secured.at(name), **options(secured)}
    }
    return found


@pytest.mark.parametrize("engine", few(["spark", "driver"], 0))
def test_commands_of_a_user_with_the_right_read_alone(secured: SecuredBroker, tmp_path: Path, engine: str) -> None:
    """By TLS, the client's certificate and SCRAM: `check`, `run` and `backfill`; no password is in what they print."""
    found = feed(secured, tmp_path, "both")
    found.raw["source"]["engine"] = engine

    checked = Applier(found.raw, tmp_path, command="check").wait()
    ran = once(found.raw, tmp_path)
    assert differences(found, recordings.expected("pk")[-1]) == []
    again = Applier(found.raw, tmp_path, "--from", "beginning", "--repair", command="backfill").wait()

    assert [ended.code for ended in (checked, ran, again)] == [0, 0, 0], checked.everything + again.everything
    assert "It answers: " in checked.everything
    assert not any(PASSWORDS["bob"] in ended.everything for ended in (checked, ran, again))


def test_the_right_describe_shows_the_topic_and_not_its_messages(secured: SecuredBroker, tmp_path: Path) -> None:
    """The refusal names the topic and the right that is missing."""
    secured.allow("CN=describing", AclOperation.DESCRIBE, TOPIC)
    options = secured.trusting() | secured.certified("describing")

    with pytest.raises(
        OutsideRefused, match=re.escape(f"Messages cannot be read: Not authorized to access topics: [{TOPIC}]. {RIGHT}")
    ):
        read(client(tmp_path, secured.at("MUTUAL"), options))


def test_a_command_refuses_a_wrong_way_in(secured: SecuredBroker, tmp_path: Path) -> None:
    """An option that cannot work is wrong configuration, with its line; what the broker refuses ends the run."""
    found = feed(secured, tmp_path, "PLAIN")
    kafka = found.raw["source"]["kafka"]

    wrong = once(found.raw | {"source": {"kafka": kafka | {"kafka.sasl.mechanism": "SCRAM-SHA-513"}}}, tmp_path)
    raw = found.raw | {"source": {"kafka": kafka | login("PLAIN", "alice", "wrong-secret")}}
    denied = once(raw, tmp_path)
    checked = Applier(raw, tmp_path, command="check").wait()
    server = {"kafka.bootstrap.servers": secured.at("OTHER"), **secured.trusting()}
    other = once(found.raw | {"source": {"kafka": {"topics": [TOPIC], **server}}}, tmp_path)
    [(_, verdict, result)] = told(settings.parse(raw))

    sentence = "source.kafka.kafka.sasl.mechanism: must be PLAIN with the PlainLoginModule of kafka.sasl.jaas.config."
    assert wrong.code == 2
    assert re.search(rf"applier\.toml:\d+: {re.escape(sentence)}", wrong.everything)
    assert (denied.code, checked.code) == (3, 1), checked.everything
    assert "Authentication failed: Invalid username or password" in denied.everything
    assert other.code == 3
    assert "No subject alternative names matching IP address 127.0.0.1 found" in other.everything
    assert "Spark is started" not in {event["event"] for event in (*denied.events, *other.events)}
    assert verdict == "does not fit"
    assert "Authentication failed: Invalid username or password" in result
