"""How a user wants an Iceberg table to lie: its partitions, the order of its rows, and its properties."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal, get_args

from pydantic import Field, model_validator

from applier.changefeed.history import IMAGE
from applier.changefeed.mask import fingerprint_of
from applier.changefeed.shape import METADATA_COLUMNS, Shape
from applier.changefeed.table import fold
from applier.config.section import Section, nearest, refuse
from applier.config.table_columns import ColumnsSection, misfits

_TIMES = ("year", "month", "day", "hour")
_WIDE = ("bucket", "truncate")
TRANSFORMS = ("identity", *_TIMES, *_WIDE)

ROW_IDS = "applier-row-ids"
"""Table property: whether updated rows keep their ids."""

RowMetadata = Literal["_commit_ts", "_commit_time", "_op", "_source_table"]
"""A column that applier adds to a table: what is known of the last change of each row."""

DELETED_AT = "_deleted_at"
"""The column that it adds where rows that upstream deletes stay."""

_QUOTED = r"`(?:[^`]|``)+`"
_CALL = re.compile(rf"(\w+)\s*\(\s*(?:(\d+)\s*,\s*)?({_QUOTED}|[^`(),]+?)\s*\)")
_COLUMN = re.compile(rf"{_QUOTED}|[^`(),\s]+")
_SORTED = re.compile(rf"({_QUOTED}|[^`(),\s]+)(?:\s+(asc|desc))?", re.IGNORECASE)
_WIDEST = 2**31 - 1


@dataclass(frozen=True, slots=True)
class PartitionField:
    """One partition field: a column, and its transform as Iceberg writes it.

    Transforms are `identity`, `bucket[16]`, `truncate[4]`, `year`, `month`, `day`, `hour`.
    """

    column: str
    transform: str = "identity"

    def __str__(self) -> str:
        kind, _, width = self.transform.rstrip("]").partition("[")
        if kind == "identity":
            return self.column
        return f"{kind}({width}, {self.column})" if width else f"{kind}({self.column})"


@dataclass(frozen=True, slots=True)
class SortField:
    """One column of a sort order; NULL comes first where it is ascending, else last."""

    column: str
    descending: bool = False

    def __str__(self) -> str:
        return f"{self.column} desc" if self.descending else self.column


@dataclass(frozen=True, slots=True)
class TableLayout:
    """A layout, by the pattern of its section; None leaves partitions or order as they are, () is for none."""

    partition: tuple[PartitionField, ...] | None = None
    sort: tuple[SortField, ...] | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    metadata: tuple[str, ...] = ()
    pattern: str = ""
    shape: Shape = field(default_factory=Shape)


def partition_fields(texts: Sequence[str]) -> tuple[PartitionField, ...]:
    """Read partition fields such as `day(created)`, `bucket(16, id)` and `region`.

    It raises ValueError for a malformed one, and for two that say the same.
    """
    fields = tuple(_partition_field(text.strip()) for text in texts)
    # Iceberg takes one of the transforms of time for each column, as a day lies in one month.
    kinds = [(fold(each.column), "time" if each.transform in _TIMES else each.transform) for each in fields]
    _refuse_twice(fields, kinds, "partition_by")
    return fields


def sort_fields(texts: Sequence[str]) -> tuple[SortField, ...]:
    """Read sort columns such as `created` and `id desc`; ValueError for a malformed one, or one that comes twice."""
    fields = []
    for text in texts:
        match = _SORTED.fullmatch(text.strip())
        if match is None:
            msg = f"sort_by {text!r} is not of the form `column`, `column asc` or `column desc`"
            raise ValueError(msg)
        fields.append(SortField(_name(match[1]), (match[2] or "").lower() == "desc"))
    _refuse_twice(fields, [fold(each.column) for each in fields], "sort_by")
    return tuple(fields)


def _partition_field(text: str) -> PartitionField:
    if _COLUMN.fullmatch(text):
        return PartitionField(_name(text))
    match = _CALL.fullmatch(text)
    if match is None:
        msg = f"partition_by {text!r} is not of the form `column`, `day(column)` or `bucket(16, column)`"
        raise ValueError(msg)
    kind = match[1].lower()
    if kind not in TRANSFORMS:
        near = nearest(kind, TRANSFORMS)
        hint = f"did you mean {near}?" if near else f"transforms are {', '.join(TRANSFORMS)}"
        msg = f"partition_by {text!r} has the unknown transform {kind}, {hint}"
        raise ValueError(msg)
    if (kind in _WIDE) != (match[2] is not None) or not 1 <= int(match[2] or 1) <= _WIDEST:
        form = f"{kind}(N, column) with N from 1 to {_WIDEST}" if kind in _WIDE else f"{kind}(column)"
        msg = f"partition_by {text!r} must be {form}"
        raise ValueError(msg)
    return PartitionField(_name(match[3]), f"{kind}[{int(match[2])}]" if match[2] else kind)


def _name(text: str) -> str:
    return text[1:-1].replace("``", "`") if text.startswith("`") else text


def _refuse_twice(fields: Sequence[object], kinds: Sequence[object], key: str) -> None:
    counts = Counter(kinds)
    twice = [str(each) for each, kind in zip(fields, kinds, strict=True) if counts[kind] > 1]
    if twice:
        msg = f"{key} says the same twice: {', '.join(twice)}"
        raise ValueError(msg)


class LayoutSection(Section):
    """How the tables of a pattern lie, which is as in `include` without `!`: `[tables."shop.*"]`. Of the patterns that
    name a table, the most specific one counts, and it alone: an exact name before a pattern, then the pattern with more
    letters, then the last.
    """

    partition_by: tuple[str, ...] | None = None
    """Partition fields, e.g. `["day(created)", "bucket(16, id)", "region"]`. Transforms: `identity`, `year`, `month`,
    `day`, `hour`, `bucket(N, column)`, `truncate(N, column)` (not of decimals). `[]` for none. Default: none for new
    tables, and existing ones stay as they are."""
    sort_by: tuple[str, ...] | None = None
    """Order of the rows in a file, e.g. `["created", "id desc"]`. Default: the key for new tables, and existing ones
    stay as they are."""
    properties: dict[str, str] = Field(default={})
    """Iceberg properties of these tables, beside `tables.properties`; existing tables get them as well."""

    route: str | None = None
    """Iceberg namespace and table of these upstream tables, in the place of `tables.route`. It is for tables to come:
    rename those that exist in your engine before you change it."""
    metadata: tuple[RowMetadata, ...] = ()
    """Columns that applier adds to these tables, and fills for each row that it writes (docs/shapes.md): `_commit_ts`,
    the commit ts of the last change of the row; `_commit_time`, its time; `_op`, its kind; `_source_table`, the
    upstream table. Existing tables get them at the next start, and hold NULL there in rows of before. A column that is
    taken off the list stays, and is filled on."""

    row_ids: Literal["keep", "new"] | None = None
    """Whether an updated row keeps its `_row_id`, the identity that Iceberg's format 3 gives it, so that readers which
    follow rows by it see an update (docs/shapes.md). Default: an updated row is a new one, and existing tables stay as
    they are."""

    columns: ColumnsSection = ColumnsSection()
    """What becomes of single columns, in a section of its own: `[tables."shop.orders".columns]`."""

    where: str = ""
    """Rows that these tables have, such as `region = 'eu' and amount >= 10` (docs/shapes.md): a row that a change takes
    out of it is deleted, and one that a change brings into it is added. Default: all rows."""

    deletes: Literal["hard", "soft"] = "hard"
    """What becomes of a row that upstream deletes (docs/shapes.md). `soft`: it stays, and `_deleted_at` has the time of
    its delete, which is NULL in living rows. It needs a key, and deletes that carry the whole row, as all protocols but
    `avro` send them. Existing tables get the column at the next start."""
    types: dict[str, str] = Field(default={})
    """Types of all columns of a TiDB type in these tables, as Iceberg names them, e.g. `{ "bigint unsigned" = "long",
    enum = "int", time = "long" }`. A value that does not fit is refused like any other (docs/shapes.md)."""
    tinyint1: Literal["int", "boolean"] | None = None
    """Type of tinyint(1) in these tables, in the place of `tables.tinyint1`."""
    zero_dates: Literal["null", "stop", "string"] | None = None
    """What zero and partial dates become in these tables, in the place of `tables.zero_dates`."""
    history: Literal["changes", "images"] | None = None
    """Keep every change of these tables in an append-only table beside each, `TABLE__changes` (docs/shapes.md): the row
    behind each change, and the row that a delete removes; with `images`, the old row of each update as well. It is for
    tables with a key, in resolved order. Default: none is kept."""
    history_days: Annotated[int, Field(ge=1)] | None = None
    """Days for which `TABLE__changes` keeps a change, counted back from the resolved ts of that table: the task
    `changes` of `[maintenance]` removes older ones by whole days in UTC, for good. Default: every change stays."""

    @model_validator(mode="after")
    def _check(self) -> LayoutSection:
        problems, shape = {}, self.shape("")
        readers: dict[str, Callable[[Sequence[str]], Sequence[PartitionField | SortField]]]
        readers = {"partition_by": partition_fields, "sort_by": sort_fields}
        for key, read in readers.items():
            try:
                named = [each.column for each in read(getattr(self, key) or ())]
            except ValueError as error:
                problems[key] = str(error).removeprefix(f"{key} ")
                continue
            if gone := [column for column in named if shape.excludes(column)]:
                problems[key] = f"names column {gone[0]}, which columns.exclude leaves out of the table"
        problems |= self._unfit_where(shape)
        own = sorted(key for key in self.properties if key.startswith("applier"))
        problems |= {f"types.{name}": problem for name, problem in misfits(self.types).items()}
        problems |= {
            f"columns.rename.{column}": f"is {name}, the name of a metadata column: choose another one"
            for column, name in self.columns.rename.items()
            if fold(name) in {*get_args(RowMetadata), DELETED_AT, *METADATA_COLUMNS, *([IMAGE] if self.history else ())}
        }
        if own:
            problems["properties"] = f"{own[0]} is set by applier alone"
        if self.where and self.deletes == "soft":
            problems["deletes"] = "is soft, and `where` deletes rows that upstream has: leave one of the two out"
        if self.history and (self.where or self.deletes == "soft"):
            problems["history"] = "keeps every change, and does not go with `where` or soft `deletes`: leave one out"
        if self.history_days is not None and not self.history:
            problems["history_days"] = "counts the days of the changes that `history` keeps: set that, or remove it"
        refuse(problems)
        return self

    @staticmethod
    def _unfit_where(shape: Shape) -> dict[str, str]:
        if (admitting := shape.filter) is None:
            return {}
        try:
            admitting.refuse_malformed()
        except ValueError as error:
            return {"where": str(error)}
        for name in sorted(admitting.columns):
            if shape.excludes(name):
                return {"where": f"names column {name}, which columns.exclude leaves out of the table"}
            if name in shape.masks:
                return {"where": f"names column {name}, whose values columns.mask hides"}
        return {}

    @property
    def layout(self) -> TableLayout:
        """The section's values, read."""
        return TableLayout(
            None if self.partition_by is None else partition_fields(self.partition_by),
            None if self.sort_by is None else sort_fields(self.sort_by),
            {**self.properties, **({ROW_IDS: self.row_ids} if self.row_ids else {})},
            tuple(dict.fromkeys([*self.metadata, *([DELETED_AT] if self.deletes == "soft" else [])])),
            shape=self.shape(""),
        )

    def shape(self, pattern: str, mask_key: str = "") -> Shape:
        """What the rows of these tables are to be; the key is that of masks of the kind `hash`."""
        secret = mask_key.encode() if "hash" in self.columns.mask.values() else b""
        return Shape(
            pattern,
            exclude=frozenset(map(fold, self.columns.exclude)),
            where=self.where,
            is_soft=self.deletes == "soft",
            casts=self.columns.casts,
            types=self.types,
            tinyint1=self.tinyint1,
            zero_dates=self.zero_dates,
            masks=self.columns.masks,
            mask_key=fingerprint_of(secret) if secret else "",
            secret=secret,
            history=self.history is not None,
            keeps_old=self.history == "images",
            history_days=self.history_days,
            rename=self.columns.renames,
        )
