"""What a user wants the rows of an Iceberg table to be where that is not what upstream has."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Literal

from applier.changefeed.event import Op
from applier.changefeed.mask import Mask
from applier.changefeed.table import fold

if TYPE_CHECKING:
    from applier.changefeed.row_filter import RowFilter

SHAPE = "applier-shape"
"""Table property: the shape that the rows of a table have, as `Shape.record`. It outlives the changefeed, whose own
properties begin with `applier.`."""


METADATA_COLUMNS = frozenset(
    ("_file", "_pos", "_deleted", "_spec_id", "_partition", "_row_id", "_last_updated_sequence_number")
)
"""Iceberg's own columns (`MetadataColumns`): Spark refuses to read columns of these names, or takes one for the other
where their letters alone differ."""

_KEPT = (frozenset[Op](), frozenset({Op.DELETE}), frozenset({Op.DELETE, Op.UPDATE, Op.UPSERT}))
"""Kinds of changes whose old rows are kept without a history, in one of changes, and in one of images."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The shape of the rows of one table; the default leaves them as they are upstream.

    Names of columns are those of upstream, in small letters, as TiDB compares them.

    Attributes:
        pattern: The pattern under [tables] that it stands in, for messages.
        exclude: Columns that the table does not get.
        where: The filter that a row passes to be in the table, as `RowFilter` reads it; "" where each is.
        is_soft: A row that upstream deletes stays, with the time of its delete.
        casts: Types that columns are cast to, as Iceberg names them. The columns of a table show them.
        types: The same of all columns of a TiDB type, which may end in ` unsigned`.
        tinyint1: As in `TypeRules`; None for what counts for all tables.
        zero_dates: The same.
        masks: How columns are masked.
        mask_key: What shows that the key of `hash` is another one; "" without such a mask.
        secret: That key.
        history: Whether a table of changes is kept beside it.
        keeps_old: Whether that has the old row of each update as well.
        rename: Names of columns in Iceberg that are not those of upstream.
        history_days: For how many days that keeps a change; None for good.
    """

    pattern: str = field(default="", compare=False)
    exclude: frozenset[str] = frozenset()
    where: str = ""
    is_soft: bool = False
    casts: Mapping[str, str] = field(default_factory=dict, compare=False)
    types: Mapping[str, str] = field(default_factory=dict, compare=False)
    tinyint1: Literal["int", "boolean"] | None = field(default=None, compare=False)
    zero_dates: Literal["null", "stop", "string"] | None = field(default=None, compare=False)
    masks: Mapping[str, Mask] = field(default_factory=dict)
    mask_key: str = ""
    secret: bytes = field(default=b"", compare=False, repr=False)
    history: bool = field(default=False, compare=False)
    keeps_old: bool = field(default=False, compare=False)
    rename: Mapping[str, str] = field(default_factory=dict, compare=False)
    history_days: int | None = field(default=None, compare=False)

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

    def renamed(self, column: str) -> str:
        """The name that a column of upstream has in Iceberg."""
        return self.rename.get(fold(column), column) if self.rename else column

    @property
    def is_plain(self) -> bool:
        """Whether it leaves rows, and their types, as they are upstream."""
        plain = Shape(pattern=self.pattern)
        return all(getattr(self, each.name) == getattr(plain, each.name) for each in fields(self))

    @property
    def old_rows(self) -> frozenset[Op]:
        """Kinds of changes whose old rows go into the table of changes."""
        return _KEPT[self.history + (self.history and self.keeps_old)]

    @property
    def hides(self) -> bool:
        """Whether values of upstream must not be found here."""
        return bool(self.masks or self.exclude)

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
