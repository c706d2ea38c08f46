"""Which columns of an Iceberg table hold upstream values: others may drop one, and give its name to another."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass

from applier.sink.format.types import Field, TableSchema

COLUMNS = "applier.columns"
"""Table property: its `OwnColumns`; the commit that changes them sets it. "" until the first commit to a new table."""


@dataclass(frozen=True, slots=True)
class OwnColumns:
    """The columns of a table that applier writes, by their field ids, which no other column gets.

    Attributes:
        last: Highest id of a column when they were written down: those above are of others.
        digest: 48 bits of a hash of their ids and names.
        others: Ids up to `last` that are of others.
    """

    last: int
    digest: str
    others: frozenset[int] = frozenset()

    @staticmethod
    def of(schema: TableSchema, others: Iterable[int] = ()) -> OwnColumns:
        """The upstream columns of a table but some: a user may drop what was added to them."""
        ids = {field.id for field in schema.fields}
        but = ids - {field.id for field in schema.upstream} | ids.intersection(others)
        found = OwnColumns(max(ids, default=0), "", frozenset(but))
        return OwnColumns(found.last, found._digest(schema), found.others)

    @staticmethod
    def read(text: str) -> OwnColumns:
        """Read the property.

        Raises:
            ValueError: It was edited.
        """
        last, digest, *others = text.split()
        return OwnColumns(int(last), digest, frozenset(map(int, others)))

    def to_text(self) -> str:
        """The property."""
        return " ".join([str(self.last), self.digest, *map(str, sorted(self.others))])

    def behind(self, before: TableSchema, after: TableSchema) -> OwnColumns:
        """What they are behind a change that applier makes."""
        return OwnColumns.of(after, [field.id for field in before.fields if not self._has(field)])

    def fit(self, schema: TableSchema) -> bool:
        """Whether a table has them all, under their names."""
        return self._digest(schema) == self.digest

    def lost(self, schema: TableSchema, former: Iterable[TableSchema]) -> list[str]:
        """Names of those that a table has no longer, by the schemas that it had; [] where those are not kept."""
        was = next(filter(self.fit, former), None)
        there = {(field.id, field.name) for field in schema.fields}
        own = () if was is None else filter(self._has, was.fields)
        return [field.name for field in own if (field.id, field.name) not in there]

    def _has(self, field: Field) -> bool:
        return field.id <= self.last and field.id not in self.others

    def _digest(self, schema: TableSchema) -> str:
        named = sorted((field.id, field.name) for field in schema.fields if self._has(field))
        return base64.urlsafe_b64encode(hashlib.blake2b(json.dumps(named).encode(), digest_size=6).digest()).decode()
