"""A private certificate authority, and a server's certificate for 127.0.0.1 that it has signed."""

from __future__ import annotations

import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path

from applier.runtime.jvm import java_home


@dataclass(frozen=True, slots=True)
class Authority:
    """Files of an authority that no machine trusts.

    Attributes:
        folder: Where they are.
    """

    folder: Path

    @property
    def pem(self) -> Path:
        """The authority's certificate, as clients in Python and libpq take it."""
        return self.folder / "authority.pem"

    @property
    def certificate(self) -> Path:
        """The server's certificate."""
        return self.folder / "server.pem"

    @property
    def key(self) -> Path:
        """The server's private key."""
        return self.folder / "server.key"

    @property
    def java_options(self) -> str:
        """Options of a JVM that trusts this authority alone."""
        return f"-Djavax.net.ssl.trustStore={self.folder}/trust.p12 -Djavax.net.ssl.trustStorePassword=changeit"

    def context(self) -> ssl.SSLContext:
        """What a server in Python wraps its sockets with."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate, self.key)
        return context


def private_authority(folder: Path) -> Authority:
    """Make an authority and a certificate that are valid for two days."""
    made = Authority(folder)
    authority_key, request = folder / "authority.key", folder / "server.csr"
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n", encoding="utf-8")
    new = ["openssl", "req", "-newkey", "rsa:2048", "-nodes", "-batch"]
    sign = ["openssl", "x509", "-req", "-in", f"{request}", "-days", "2", "-extfile", f"{folder}/names"]
    keytool = [str(java_home.find() / "bin" / "keytool"), "-importcert", "-noprompt", "-alias", "authority"]
    for command in (
        [*new, "-x509", "-days", "2", "-subj", "/CN=authority", "-keyout", f"{authority_key}", "-out", f"{made.pem}"],
        [*new, "-subj", "/CN=127.0.0.1", "-keyout", f"{made.key}", "-out", f"{request}"],
        [*sign, "-CA", f"{made.pem}", "-CAkey", f"{authority_key}", "-CAcreateserial", "-out", f"{made.certificate}"],
        [*keytool, "-file", f"{made.pem}", "-keystore", f"{folder}/trust.p12", "-storepass", "changeit"],
    ):
        subprocess.run(command, check=True, capture_output=True)
    made.key.chmod(0o600)
    return made
