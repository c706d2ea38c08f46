"""What a table says of itself in its own properties: its upstream name, and whether it holds every row.

The commit that changes rows writes it in the same step, so it is true where the rows are. A checkpoint is a copy of it
that is quick to read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import msgspec

from applier.changefeed.completeness import Completeness
from applier.changefeed.table import TableName
from applier.sink.control.checkpoint_form import built, plain

RECORD = "applier.state"
"""Table property: the record of the table as JSON."""


@dataclass(frozen=True, slots=True)
class TableRecord:
    """What a table says of itself.

    Attributes:
        name: The upstream table.
        known: Whether it holds every row, and why it does not. Offsets are left out where a resolved ts shows the
            place: there may be one for each partition of each topic.
        job: The job that says so of its copy; "" for the changefeed.
    """

    name: TableName
    known: Completeness
    job: str = ""

    def to_text(self) -> str:
        """The record as the property has it."""
        known, place = replace(self.known, origin=None), self.known.position
        if place is not None and place.ts:
            known = replace(known, position=replace(place, readings={}))
        places: list[dict[str, object]] = []
        written = {"table": list(self.name), "state": plain(Completeness, known, places)}
        more = {"job": self.job, "places": places}
        return msgspec.json.encode(written | {key: value for key, value in more.items() if value}).decode()

    @staticmethod
    def told_by(properties: Mapping[str, str]) -> TableRecord | None:
        """The record in the properties of a table; None where it has none that can be read."""
        text = properties.get(RECORD)
        if text is None:
            return None
        try:
            written = msgspec.json.decode(text, type=dict)
            known = msgspec.convert(built(Completeness, written["state"], written.get("places", [])), Completeness)
            return TableRecord(TableName(*written["table"]), known, written.get("job", ""))
        except (msgspec.MsgspecError, KeyError, AttributeError, IndexError, TypeError):
            return None
