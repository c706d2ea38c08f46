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
        is_soft: A row that upstream deletes stays, with the time of its delete.
        where: The filter that a row passes to be in the table, as `RowFilter` reads it; "" where each is.
    """

    pattern: str = field(default="", compare=False)
    exclude: frozenset[str] = frozenset()
    where: str = ""
    is_soft: bool = False

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

    def is_reached_from(self, record: str) -> bool:
        """Whether a table of another record gets this shape by a change of its metadata: it loses columns, or rows that
        are deleted from now on stay.
        """
        former = json.loads(record or "{}")
        exclude, is_soft = frozenset(former.get("exclude", ())), former.get("is_soft", False)
        is_more = exclude <= self.exclude and is_soft <= self.is_soft and record != self.record
        return is_more and replace(self, exclude=exclude, is_soft=is_soft).record == record

    @property
    def record(self) -> str:
        """What a table keeps of the shape of its rows: "" for that of upstream. No secret is in it."""
        plain = Shape()
        own = [each.name for each in fields(self) if each.compare]
        kept = {name: getattr(self, name) for name in own if getattr(self, name) != getattr(plain, name)}
        return json.dumps(kept, sort_keys=True, default=_plain) if kept else ""


def _plain(value: object) -> object:
    return dict(value) if isinstance(value, Mapping) else sorted(value) if isinstance(value, frozenset) else str(value)
