"""The schemas that `--ddl` derives, against those that TiCDC registered when the recorded DDL ran."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from applier.commands.check.avro import Registrations
from applier.commands.check.registry_side import RegistrySubjects
from applier.ddl.parser import parse
from applier.decode.registry.client import Compatibility, RegistrySchema, SubjectVersion
from tests import recordings
from tests.unit.commands.check.world import column, nullable, record

pytestmark = pytest.mark.slow

_DDL = re.compile(r"^(CREATE|ALTER|DROP|RENAME|TRUNCATE) .*?; --", re.IGNORECASE)
_UNREPLICATED = ("CREATE VIEW", "DROP VIEW")

CASES = [
    (scenario, variant) for scenario in recordings.scenarios() for variant in recordings.variants(scenario, "avro")
]


@dataclass
class MemoryRegistry:
    """A registry in memory that refuses nothing; what `applier check` asks of one."""

    texts: dict[str, list[str]] = field(default_factory=dict)
    ids: list[str] = field(default_factory=list)

    def register(self, subject: str, text: str) -> None:
        """Make a schema the next version of a subject, unless it is one already."""
        versions = self.texts.setdefault(subject, [])
        if text not in versions:
            versions.append(text)
            self.ids.append(text)

    def subjects(self) -> list[str]:
        """Names of all subjects."""
        return list(self.texts)

    def versions(self, subject: str) -> list[int]:
        """Version numbers of a subject."""
        return list(range(1, len(self.texts[subject]) + 1))

    def version(self, subject: str, version: int) -> SubjectVersion:
        """One version of a subject."""
        text = self.texts[subject][version - 1]
        return SubjectVersion(self.ids.index(text), RegistrySchema(text))

    def schema(self, schema_id: int) -> RegistrySchema:
        """The schema of an id."""
        return RegistrySchema(self.ids[schema_id])

    def compatibility_level(self, subject: str) -> str:
        """No level."""
        return "NONE"

    def mode(self, subject: str | None = None) -> str:
        """Writable."""
        return "READWRITE"

    def check(self, subject: str, text: str, version: int | None = None) -> Compatibility:
        """Whatever comes fits."""
        return Compatibility(True)


def _statements(scenario: str) -> Iterator[str]:
    for line in recordings.script(scenario).splitlines():
        if _DDL.match(line) and not line.startswith(_UNREPLICATED):
            yield line.partition("; --")[0]


def _seeded(scenario: str, variant: str) -> MemoryRegistry:
    """A registry that shows how the changefeed is set, and holds nothing of its tables."""
    registered = recordings.registry(scenario, variant)
    values = next(json.loads(entry["schema"]) for entry in registered if entry["subject"].endswith("-value"))
    own = [item for item in values["fields"] if item["name"].startswith("_ti")]
    is_text = "string" in variant
    digits = {} if is_text else {"logicalType": "decimal", "precision": 10, "scale": 2}
    decimal = nullable("d", "string" if is_text else "bytes", "DECIMAL", **digits)
    unsigned = nullable("u", "string" if is_text else "long", "BIGINT UNSIGNED")
    seed = json.loads(record(column("id"), decimal, unsigned, table="seed", extension=False))
    for item in own:
        if item["name"] == "_ticdc_before":
            item["type"] = ["null", dict(seed, name="seed_before")]
    seed["fields"] = [*seed["fields"], *own]
    registry = MemoryRegistry()
    registry.register("golden_shop_seed-value", json.dumps(seed))
    return registry


@pytest.mark.parametrize(("scenario", "variant"), CASES)
def test_the_recorded_ddl_lead_to_the_registered_schemas(scenario: str, variant: str) -> None:
    """From an empty registry, one DDL after the other gives every text that TiCDC registered, under its subject."""
    registry = _seeded(scenario, variant)
    for statement in _statements(scenario):
        client = RegistrySubjects(registry, "avro")  # type: ignore[arg-type]
        client.load()
        for answer in list(Registrations(client).answers(parse(statement, ""))):
            if answer.outcome != "refused":
                registry.register(answer.subject, answer.avro)

    for entry in recordings.registry(scenario, variant):
        assert entry["schema"] in registry.texts[entry["subject"]], entry["subject"]
