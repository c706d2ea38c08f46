"""A Kafka broker with every kind of listener: TLS, mutual TLS, a log-in by SASL in both, and rights for each user."""

from __future__ import annotations

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

from tests.services.certificates import STORE_PASSWORD, Authority, authority
from tests.services.kafka import Broker
from tests.services.process import free_ports

PASSWORDS = {"alice": "alice-secret", "bob": "bob-secret"}
"""Users of SASL: alice by PLAIN, bob by SCRAM-SHA-512."""

_MODULE = "org.apache.kafka.common.security"

_SETTINGS = """\
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,TLS:SSL,OLD:SSL,MUTUAL:SSL,LOGIN:SASL_SSL,BOTH:SASL_SSL
ssl.keystore.type=PEM
ssl.keystore.location={server}
ssl.truststore.type=PEM
ssl.truststore.location={authority}
listener.name.old.ssl.keystore.type=PEM
listener.name.old.ssl.keystore.location={old}
listener.name.mutual.ssl.client.auth=required
listener.name.both.ssl.client.auth=required
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-512
listener.name.login.plain.sasl.jaas.config={plain}
listener.name.login.scram-sha-512.sasl.jaas.config={scram}
listener.name.both.plain.sasl.jaas.config={plain}
listener.name.both.scram-sha-512.sasl.jaas.config={scram}
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS
"""


class SecuredBroker(Broker):
    """A broker whose listener PLAINTEXT may do all, and that has others by name.

    TLS takes TLS, MUTUAL also wants the client's certificate, LOGIN a log-in by SASL, BOTH the two of them, and OLD has
    a certificate that ran out.

    Attributes:
        trusted: The authority of the broker and of its clients.
        foreign: One that the broker does not know.
    """

    def __init__(self, folder: Path) -> None:
        self.trusted: Authority = authority("trusted", folder)
        self.foreign: Authority = authority("foreign", folder)
        names = ("TLS", "OLD", "MUTUAL", "LOGIN", "BOTH")
        self._ports = dict(zip(names, free_ports(len(names)), strict=True))
        settings = _SETTINGS.format(
            server=self.trusted.issue("server"),
            old=self.trusted.issue("old-server", expired=True),
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
