"""What a user wants the rows of an Iceberg table to be where that is not what upstream has."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING

from applier.changefeed.table import fold

if TYPE_CHECKING:
    from applier.changefeed.row_filter import RowFilter

SHAPE = "applier-shape"
"""Table property: the shape that the rows of a table have, as `Shape.record`. It outlives the changefeed, whose own
properties begin with `applier.`."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The shape of the rows of one table; the default leaves them as they are upstream.

    Names of columns are those of upstream, as the configuration writes them; TiDB takes them for one in any letters.

    Attributes:
        pattern: The pattern under [tables] that it stands in, for messages.
        exclude: Columns that the table does not get, as TiDB compares names.
        where: The filter that a row passes to be in the table, as `RowFilter` reads it; "" where each is.
    """

    pattern: str = field(default="", compare=False)
    exclude: frozenset[str] = frozenset()
    where: str = ""

    @property
    def filter(self) -> RowFilter | None:
        """What admits rows; None where each is admitted."""
        if not self.where:
            return None
        from applier.changefeed.row_filter import RowFilter  # noqa: PLC0415 - it takes half a second to import

        return RowFilter(self.where)

    def excludes(self, column: str) -> bool:
        """Whether the table does not get a column of upstream."""
        return bool(self.exclude) and fold(column) in self.exclude

    def only_lacks_more(self, record: str) -> bool:
        """Whether a table of another record gets this shape if columns are dropped."""
        former = frozenset(json.loads(record or "{}").get("exclude", ()))
        return former < self.exclude and replace(self, exclude=former).record == record

    @property
    def record(self) -> str:
        """What a table keeps of the shape of its rows: "" for that of upstream. No secret is in it."""
        plain = Shape()
        own = [each.name for each in fields(self) if each.compare]
        kept = {name: getattr(self, name) for name in own if getattr(self, name) != getattr(plain, name)}
        return json.dumps(kept, sort_keys=True, default=_plain) if kept else ""


def _plain(value: object) -> object:
    return dict(value) if isinstance(value, Mapping) else sorted(value) if isinstance(value, frozenset) else str(value)
