"""How a user wants an Iceberg table to lie: its partitions, the order of its rows, and its properties."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from applier.changefeed.table import fold

_TIMES = ("year", "month", "day", "hour")
_WIDE = ("bucket", "truncate")
TRANSFORMS = ("identity", *_TIMES, *_WIDE)

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
    """A layout; None leaves partitions or order as they are.

    Attributes:
        partition: Partition fields; () for none.
        sort: Columns of the sort order; () for none.
        properties: Iceberg properties.
    """

    partition: tuple[PartitionField, ...] | None = None
    sort: tuple[SortField, ...] | None = None
    properties: Mapping[str, str] = field(default_factory=dict)


def partition_fields(texts: Sequence[str]) -> tuple[PartitionField, ...]:
    """Read partition fields such as `day(created)`, `bucket(16, id)` and `region`.

    Raises:
        ValueError: A text is malformed, or two of them say the same.
    """
    fields = tuple(_partition_field(text.strip()) for text in texts)
    # Iceberg takes one of the transforms of time for each column, as a day lies in one month.
    kinds = [(fold(each.column), "time" if each.transform in _TIMES else each.transform) for each in fields]
    _refuse_twice(fields, kinds, "partition_by")
    return fields


def sort_fields(texts: Sequence[str]) -> tuple[SortField, ...]:
    """Read sort columns such as `created` and `id desc`.

    Raises:
        ValueError: A text is malformed, or a column comes twice.
    """
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
        close = difflib.get_close_matches(kind, TRANSFORMS, n=1)
        hint = f"did you mean {close[0]}?" if close else f"transforms are {', '.join(TRANSFORMS)}"
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
