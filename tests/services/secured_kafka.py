"""A Kafka broker with every kind of listener: TLS, mutual TLS, a log-in by SASL with and without, and users' rights."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from applier.runtime.jvm import java_home
from tests.services.certificates import STORE_PASSWORD, Authority, authority
from tests.services.kafka import Broker
from tests.services.process import free_ports

PASSWORDS = {"alice": "alice-secret", "bob": "bob-secret"}
"""Users of SASL: alice by PLAIN, bob by SCRAM-SHA-512."""

_MODULE = "org.apache.kafka.common.security"

_SETTINGS = """\
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,TLS:SSL,OLD:SSL,OTHER:SSL,MUTUAL:SSL,LOGIN:SASL_SSL,BOTH:SASL_SSL,OPEN:SASL_PLAINTEXT
ssl.keystore.type=PEM
ssl.keystore.location={server}
ssl.truststore.type=PEM
ssl.truststore.location={authority}
listener.name.old.ssl.keystore.type=PEM
listener.name.old.ssl.keystore.location={old}
listener.name.other.ssl.keystore.type=PEM
listener.name.other.ssl.keystore.location={other}
listener.name.mutual.ssl.client.auth=required
listener.name.both.ssl.client.auth=required
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-512
listener.name.login.plain.sasl.jaas.config={plain}
listener.name.login.scram-sha-512.sasl.jaas.config={scram}
listener.name.both.plain.sasl.jaas.config={plain}
listener.name.both.scram-sha-512.sasl.jaas.config={scram}
listener.name.open.sasl.enabled.mechanisms=SCRAM-SHA-512
listener.name.open.scram-sha-512.sasl.jaas.config={scram}
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS
"""


class SecuredBroker(Broker):
    """A broker whose listener PLAINTEXT may do all, and that has others by name.

    TLS takes TLS, MUTUAL also wants the client's certificate, LOGIN a log-in by SASL, BOTH the two of them, and OPEN
    the log-in without TLS. OLD has a certificate that ran out, OTHER one of another host.

    Attributes:
        trusted: The authority of the broker and of its clients.
        foreign: One that the broker does not know.
    """

    def __init__(self, folder: Path) -> None:
        self.trusted: Authority = authority("trusted", folder)
        self.foreign: Authority = authority("foreign", folder)
        names = ("TLS", "OLD", "OTHER", "MUTUAL", "LOGIN", "BOTH", "OPEN")
        self._ports = dict(zip(names, free_ports(len(names)), strict=True))
        settings = _SETTINGS.format(
            server=self.trusted.issue("server"),
            old=self.trusted.issue("old-server", expired=True),
            other=self.trusted.issue("other-server", host="192.0.2.1"),
            authority=self.trusted.file,
            plain=f'{_MODULE}.plain.PlainLoginModule required user_alice="{PASSWORDS["alice"]}";',
            scram=f"{_MODULE}.scram.ScramLoginModule required;",
        )
        super().__init__(folder, listeners=self._ports, settings=settings)

    def at(self, name: str) -> str:
        """Value for `bootstrap.servers` of a listener."""
        return f"127.0.0.1:{self._ports[name]}" if name in self._ports else self.bootstrap

    def add_users(self) -> None:
        """Make the users whose passwords the broker holds itself."""
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        one = UserScramCredentialUpsertion("bob", info, PASSWORDS["bob"].encode())
        # A temporary client would be collected while its futures are waited for.
        admin = self._admin()
        for done in admin.alter_user_scram_credentials([one]).values():
            done.result(30)

    def allow(self, user: str, operation: AclOperation, topic: str) -> None:
        """Give a user, "CN=…" for that of a certificate, a right on a topic."""
        kind, place = ResourceType.TOPIC, ResourcePatternType.LITERAL
        binding = AclBinding(kind, topic, place, f"User:{user}", "*", operation, AclPermissionType.ALLOW)
        admin = self._admin()
        for done in admin.create_acls([binding]).values():
            done.result(30)

    def trusting(self) -> dict[str, str]:
        """Options of a client with TLS that trusts the broker."""
        return {
            "kafka.security.protocol": "SSL",
            "kafka.ssl.truststore.type": "PEM",
            "kafka.ssl.truststore.location": str(self.trusted.file),
        }

    def certified(self, name: str, by: Authority | None = None, *, expired: bool = False) -> dict[str, str]:
        """Options of a client that shows a certificate, as PEM."""
        file = (by or self.trusted).issue(name, expired=expired)
        return {"kafka.ssl.keystore.type": "PEM", "kafka.ssl.keystore.location": str(file)}


def as_pkcs12(options: dict[str, str], password: str = STORE_PASSWORD) -> dict[str, str]:
    """Options of `SecuredBroker.certified` with the other form of the same certificate."""
    file = Path(options["kafka.ssl.keystore.location"]).with_suffix(".p12")
    return {
        "kafka.ssl.keystore.type": "PKCS12",
        "kafka.ssl.keystore.location": str(file),
        "kafka.ssl.keystore.password": password,
    }


def with_locked_key(options: dict[str, str], password: str = "") -> dict[str, str]:
    """Options of `SecuredBroker.certified` with its key encrypted as OpenSSL does it, and a password for it."""
    file = Path(options["kafka.ssl.keystore.location"]).with_suffix(".locked.pem")
    given = {"kafka.ssl.key.password": password} if password else {}
    return options | {"kafka.ssl.keystore.location": str(file)} | given


def with_older_lock(options: dict[str, str], password: str = "") -> dict[str, str]:
    """Those of `with_locked_key` with the encryption that Kafka's client can undo."""
    locked = with_locked_key(options, password)
    file, made = (Path(found["kafka.ssl.keystore.location"]) for found in (options, locked))
    encrypt = ["openssl", "pkcs8", "-topk8", "-v1", "PBE-SHA1-3DES", "-passout", f"pass:{STORE_PASSWORD}"]
    key = subprocess.run([*encrypt, "-in", file], check=True, capture_output=True).stdout
    made.write_bytes(key + file.read_bytes().partition(b"-----END PRIVATE KEY-----")[2])
    return locked


def as_jks(options: dict[str, str]) -> dict[str, str]:
    """PEM or PKCS12 stores of options as Java's own ones, which is what Kafka takes a store without a type for."""
    stores = dict(options)
    for kind in ("truststore", "keystore"):
        if stores.pop(f"kafka.ssl.{kind}.type", None) is None:
            continue
        file = Path(options[f"kafka.ssl.{kind}.location"])
        made = file.with_suffix(".jks")
        made.unlink(missing_ok=True)
        _keytool(file if kind == "truststore" else file.with_suffix(".p12"), made)
        stores |= {f"kafka.ssl.{kind}.location": str(made), f"kafka.ssl.{kind}.password": STORE_PASSWORD}
    return stores


def _keytool(file: Path, made: Path) -> None:
    """Write a certificate, or a store of type PKCS12, into a new store of type JKS."""
    if file.suffix == ".p12":
        given = ["-importkeystore", "-srckeystore", str(file), "-srcstorepass", STORE_PASSWORD]
        given += ["-destkeystore", str(made), "-deststoretype", "JKS", "-deststorepass", STORE_PASSWORD]
    else:
        given = ["-importcert", "-noprompt", "-alias", "authority", "-file", str(file)]
        given += ["-keystore", str(made), "-storetype", "JKS", "-storepass", STORE_PASSWORD]
    subprocess.run([java_home.find() / "bin" / "keytool", *given], check=True, capture_output=True)


def login(mechanism: str, user: str, password: str = "") -> dict[str, str]:
    """Options of a client that logs in over TLS; without a password with the right one."""
    module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
    secret = password or PASSWORDS[user]
    return {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": mechanism,
        "kafka.sasl.jaas.config": f'{_MODULE}.{module} required username="{user}" password="{secret}";',
    }


@contextmanager
def secured_broker(folder: Path) -> Iterator[SecuredBroker]:
    """A running broker that is stopped at the end."""
    running = SecuredBroker(folder)
    try:
        running.start()
        running.add_users()
        yield running
    finally:
        running.stop()
