"""Looks at PEM files of keys that Kafka's client refuses, for what its own sentence does not show."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from applier.errors import OutsideRefused

_ENCRYPTED = re.compile(rb"-----BEGIN ENCRYPTED PRIVATE KEY-----([^-]+)-----END")
_PBES2 = bytes.fromhex("06092a864886f70d01050d")
"""The object identifier of the encryption that OpenSSL uses since 1.1, which Kafka's client cannot undo."""


def refused_store(options: Mapping[str, str]) -> OutsideRefused | None:
    """The error for a store in a file of PEM that a client with these options cannot read; None where there is none.

    It is for a client that was not made: one that needs no TLS reads none of them.
    """
    if "SSL" not in options.get("security.protocol", "").upper():
        return None
    for kind in ("truststore", "keystore"):
        key, file = f"kafka.ssl.{kind}", options.get(f"ssl.{kind}.location", "")
        content = b""
        with suppress(OSError):
            content = Path(file).read_bytes()
        if b"-----BEGIN " not in content:
            continue
        if options.get(f"ssl.{kind}.type", "JKS") != "PEM":
            return OutsideRefused(f"The file {file} of {key}.location is PEM.", f'write "{key}.type" = "PEM".')
        if (locked := _ENCRYPTED.search(content)) is None:
            continue
        if _is_pbes2(locked[1]):
            what = f"Kafka's client cannot decrypt the key in {file}, whose encryption is PBES2."
            convert = f"openssl pkcs12 -export -in {file} -out {Path(file).with_suffix('.p12')}"
            ways = f'"{key}.type" = "PKCS12", the new file as {key}.location and its password as {key}.password'
            return OutsideRefused(what, f"convert it by `{convert}`, and write {ways}.")
        if not options.get("ssl.key.password"):
            return OutsideRefused(f"The key in {file} is encrypted.", "write its password as kafka.ssl.key.password.")
    return None


def _is_pbes2(body: bytes) -> bool:
    try:
        return _PBES2 in base64.b64decode(body)
    except ValueError:
        return False  # It is damaged, which Kafka's client reports.
