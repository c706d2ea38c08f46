"""The recorded changefeeds of `tests/golden`: name of a scenario and a variant in, records and expected tables out."""

from __future__ import annotations

import base64
import gzip
import json
import tarfile
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).parent / "golden"


def scenarios() -> list[str]:
    """Names of all scenarios."""
    return sorted(path.parent.name for path in GOLDEN.glob("*/expected.jsonl.gz"))


def variants(scenario: str, prefix: str = "") -> list[str]:
    """Names of the variants of a scenario that start with a prefix, such as `simple-json`."""
    names = (path.name.removesuffix(".jsonl.gz") for path in (GOLDEN / scenario).glob(f"{prefix}*.jsonl.gz"))
    return sorted(name for name in names if name != "expected")


def records(scenario: str, variant: str) -> Iterator[dict[str, Any]]:
    """The Kafka records in the order of sending: topic, partition, offset, timestamp (ms), key and value as bytes."""
    for record in _lines(f"{scenario}/{variant}.jsonl.gz"):
        key, value = record["key"], record["value"]
        record["key"] = None if key is None else base64.b64decode(key)
        record["value"] = None if value is None else base64.b64decode(value)
        yield record


@lru_cache(maxsize=4)
def expected(scenario: str) -> list[dict[str, Any]]:
    """Contents of all tables at watermarks, as `golden/README.md` describes them."""
    return list(_lines(f"{scenario}/expected.jsonl.gz"))


def config(scenario: str, variant: str) -> dict[str, Any]:
    """How TiCDC was set up."""
    found: dict[str, Any] = _object(f"{scenario}/{variant}.config.json.gz")
    return found


def registry(scenario: str, variant: str) -> Any:
    """What the schema registry held at the end."""
    return _object(f"{scenario}/{variant}.registry.json.gz")


def manifest(scenario: str) -> dict[str, Any]:
    """What was recorded, and the known deviations of each variant."""
    found: dict[str, Any] = _object(f"{scenario}/manifest.json.gz")
    return found


def script(scenario: str) -> str:
    """The SQL that was run upstream, with commit timestamps and watermarks as comments."""
    return gzip.decompress((GOLDEN / f"{scenario}/script.sql.gz").read_bytes()).decode()


def claim_check(scenario: str, variant: str, folder: Path) -> Path:
    """Unpack the claim-check files of a variant into a folder."""
    with tarfile.open(GOLDEN / scenario / f"{variant}.claimcheck.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    return folder


def _object(path: str) -> Any:
    return json.loads(gzip.decompress((GOLDEN / path).read_bytes()))


def _lines(path: str) -> Iterator[dict[str, Any]]:
    with gzip.open(GOLDEN / path, "rt", encoding="utf-8") as lines:
        yield from map(json.loads, lines)
