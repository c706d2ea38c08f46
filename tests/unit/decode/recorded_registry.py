"""The schemas of a recording, as a decoder asks for them: no server, no traffic."""

from __future__ import annotations

from applier.decode.registry import RegistrySchema
from applier.errors import RegistryError
from tests import recordings


class RecordedRegistry:
    """What the schema registry of a recorded changefeed held.

    Args:
        scenario: Name of the scenario.
        variant: Name of the variant.
    """

    def __init__(self, scenario: str, variant: str) -> None:
        self.schemas = {
            entry["id"]: RegistrySchema(entry["schema"]) for entry in recordings.registry(scenario, variant)
        }

    def schema(self, schema_id: int) -> RegistrySchema:
        """The schema of an id."""
        if schema_id not in self.schemas:
            msg = f"Schema id {schema_id} is unknown."
            raise RegistryError(msg)
        return self.schemas[schema_id]
