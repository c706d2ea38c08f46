"""Files of PEM that Kafka's client cannot read are named, with what makes them readable."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from applier.consume.kafka.stores import refused_store
from tests.services.certificates import STORE_PASSWORD, Authority, authority


@pytest.fixture(scope="module")
def trusted(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """An authority that has issued a certificate."""
    made = authority("trusted", tmp_path_factory.mktemp("authority"))
    made.issue("client")
    return made


def options(kind: str, file: Path, **others: str) -> dict[str, str]:
    """Those of a client with one store."""
    given = {f"ssl.{key.replace('_', '.')}": value for key, value in others.items()}
    return {"security.protocol": "SASL_SSL", f"ssl.{kind}.location": str(file), **given}


def test_pem_without_its_type(trusted: Authority) -> None:
    """Kafka's client takes a store for Java's own form, and a refusal of it for a broker that is down."""
    refused = refused_store(options("truststore", trusted.file))

    assert str(refused) == (
        f"The file {trusted.file} of kafka.ssl.truststore.location is PEM. "
        'Hint: write "kafka.ssl.truststore.type" = "PEM".'
    )


def test_a_key_as_openssl_encrypts_it(trusted: Authority) -> None:
    """No password opens it; the command makes a store of it that the client takes."""
    file = trusted.folder / "client.locked.pem"

    refused = refused_store(options("keystore", file, keystore_type="PEM", key_password=STORE_PASSWORD))

    made = trusted.folder / "client.locked.p12"
    assert str(refused) == (
        f"Kafka's client cannot decrypt the key in {file}, whose encryption is PBES2. "
        f"Hint: convert it by `openssl pkcs12 -export -in {file} -out {made}`, and write "
        '"kafka.ssl.keystore.type" = "PKCS12", the new file as kafka.ssl.keystore.location and its password as '
        "kafka.ssl.keystore.password."
    )


def test_an_encrypted_key_needs_its_password(tmp_path: Path) -> None:
    """Of another encryption the client takes it."""
    file = tmp_path / "client.pem"
    body = base64.encodebytes(b"any other encryption " * 9).decode()
    file.write_text(f"-----BEGIN ENCRYPTED PRIVATE KEY-----\n{body}-----END ENCRYPTED PRIVATE KEY-----\n")
    given = options("keystore", file, keystore_type="PEM")

    refused = refused_store(given)

    assert str(refused) == f"The key in {file} is encrypted. Hint: write its password as kafka.ssl.key.password."
    assert refused_store({**given, "ssl.key.password": "any"}) is None
    file.write_text("-----BEGIN ENCRYPTED PRIVATE KEY-----\ncut off\n-----END ENCRYPTED PRIVATE KEY-----\n")
    assert refused_store({**given, "ssl.key.password": "any"}) is None


def test_what_is_right_and_what_no_client_reads(trusted: Authority) -> None:
    """PEM with its type, PKCS12, a file that is not there, which Kafka's client names, and a store without TLS."""
    for name, kind in {"client.pem": "PEM", "client.p12": "PKCS12", "none.pem": "PEM"}.items():
        assert refused_store(options("keystore", trusted.folder / name, keystore_type=kind)) is None
    assert refused_store({**options("truststore", trusted.file), "security.protocol": "SASL_PLAINTEXT"}) is None
