"""The schemas of a recording, as a decoder asks for them: no server, no traffic."""

from __future__ import annotations

from applier.decode.registry.client import RegistrySchema, SubjectVersion
from applier.errors import RegistryError
from tests import recordings


class RecordedRegistry:
    """What the schema registry of a recorded changefeed held.

    Args:
        scenario: Name of the scenario.
        variant: Name of the variant.
    """

    def __init__(self, scenario: str, variant: str) -> None:
        self.entries = recordings.registry(scenario, variant)
        self.schemas = {entry["id"]: RegistrySchema(entry["schema"]) for entry in self.entries}

    def schema(self, schema_id: int) -> RegistrySchema:
        """The schema of an id."""
        if schema_id not in self.schemas:
            msg = f"Schema id {schema_id} is unknown."
            raise RegistryError(msg)
        return self.schemas[schema_id]

    def subjects_of(self, schema_id: int) -> list[str]:
        """Subjects that hold a schema id."""
        return list(dict.fromkeys(entry["subject"] for entry in self.entries if entry["id"] == schema_id))

    def versions(self, subject: str) -> list[int]:
        """Versions of a subject."""
        found = sorted(entry["version"] for entry in self.entries if entry["subject"] == subject)
        if not found:
            msg = f"Subject {subject} is unknown."
            raise RegistryError(msg)
        return found

    def version(self, subject: str, version: int) -> SubjectVersion:
        """One version of a subject."""
        (found,) = [entry for entry in self.entries if (entry["subject"], entry["version"]) == (subject, version)]
        return SubjectVersion(found["id"], self.schemas[found["id"]])
