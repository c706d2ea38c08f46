"""A folder in, certificates out: authorities, and certificates of theirs as PEM and PKCS12, also some that ran out."""

from __future__ import annotations

import ipaddress
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12

STORE_PASSWORD = "store-password"

_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Authority:
    """An authority that issues certificates.

    Attributes:
        name: Its common name, and that of its file.
        folder: Where its files and those of its certificates go.
    """

    name: str
    folder: Path
    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @property
    def file(self) -> Path:
        """Its own certificate, as PEM."""
        return self.folder / f"{self.name}.pem"

    def issue(self, name: str, *, expired: bool = False, host: str = "127.0.0.1") -> Path:
        """A key and a certificate for CN=`name` and an IP address, in one file of PEM.

        Beside it is the same as `.p12`, and as `.locked.pem`, whose key is encrypted as OpenSSL does it; the password
        of both is `STORE_PASSWORD`.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        end = datetime.now(UTC) + (-_DAY if expired else _DAY)
        here = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(host))])
        unsigned = _unsigned(name, self.certificate.subject, key, end).add_extension(here, critical=False)
        certificate = unsigned.sign(self.key, hashes.SHA256())
        lock = serialization.BestAvailableEncryption(STORE_PASSWORD.encode())
        file = self.folder / f"{name}.pem"
        file.with_suffix(".p12").write_bytes(
            pkcs12.serialize_key_and_certificates(name.encode(), key, certificate, [self.certificate], lock)
        )
        shown = certificate.public_bytes(serialization.Encoding.PEM)
        file.with_suffix(".locked.pem").write_bytes(_pem(key, lock) + shown)
        file.write_bytes(_pem(key, serialization.NoEncryption()) + shown)
        return file


def context(file: Path) -> ssl.SSLContext:
    """What a server in Python wraps its sockets with, to show a certificate of `Authority.issue`."""
    found = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    found.load_cert_chain(file)
    return found


def authority(name: str, folder: Path) -> Authority:
    """A new authority; its certificate is in a file."""
    key = ec.generate_private_key(ec.SECP256R1())
    own = _named(name)
    unsigned = _unsigned(name, own, key, datetime.now(UTC) + _DAY)
    unsigned = unsigned.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    made = Authority(name, folder, key, unsigned.sign(key, hashes.SHA256()))
    made.file.write_bytes(made.certificate.public_bytes(serialization.Encoding.PEM))
    return made


def _unsigned(name: str, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, end: datetime) -> x509.CertificateBuilder:
    builder = x509.CertificateBuilder(issuer, _named(name), key.public_key(), x509.random_serial_number())
    return builder.not_valid_before(end - 9 * _DAY).not_valid_after(end)


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])


def _pem(key: ec.EllipticCurvePrivateKey, lock: serialization.KeySerializationEncryption) -> bytes:
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, lock)
