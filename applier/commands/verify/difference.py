"""How the rows of two sides differ: keys that one side lacks, and rows that differ in some columns."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa

from applier.commands.verify.digest import KEY, ROW, TIMES

SHOWN = 100
"""Differences of a table that are listed."""

Kind = Literal["missing", "extra", "different"]


@dataclass(frozen=True, slots=True)
class RowDifference:
    """One difference.

    Attributes:
        kind: The Iceberg table lacks the row, has one too many, or has other cells in it.
        key: The key of the row; {} in a table without one.
        columns: Columns whose cells differ; () where a side lacks the row.
        times: How many such rows there are: 1 in a table with a key.
        upstream: The row of the upstream; None where it is extra.
        iceberg: The row of the Iceberg table; None where it is missing.
    """

    kind: Kind
    key: Mapping[str, Any]
    columns: tuple[str, ...] = ()
    times: int = 1
    upstream: Mapping[str, Any] | None = None
    iceberg: Mapping[str, Any] | None = None


class Differences(NamedTuple):
    """Some differences, and how many there are of each kind."""

    listed: Sequence[RowDifference]
    counts: Mapping[Kind, int]


def differences(
    upstream: pa.Table | None, iceberg: pa.Table | None, key: Sequence[str], names: Sequence[str]
) -> Differences:
    """Compare rows as `digest.found` finds them; None is none. The first ones of each kind are listed, by key."""
    more, less = _surplus(upstream, iceberg), _surplus(iceberg, upstream)
    both = np.intersect1d(_column(more, KEY), _column(less, KEY))
    counts: dict[Kind, int] = {"missing": _others(more, both), "extra": _others(less, both), "different": len(both)}
    listed = [
        *_listed(_rows(more, both, names, is_in=False), {}, key, "missing"),
        *_listed({}, _rows(less, both, names, is_in=False), key, "extra"),
        *_listed(_rows(more, both[:SHOWN], names), _rows(less, both[:SHOWN], names), key, "different"),
    ]
    return Differences(sorted(listed, key=_place)[:SHOWN], counts)


def _place(found: RowDifference) -> tuple[Any, ...]:
    return found.kind, *((cell is not None, isinstance(cell, str), cell) for cell in found.key.values())


def _surplus(rows: pa.Table | None, others: pa.Table | None) -> pa.Table | None:
    """Rows that others lack, each once, with how many times more it comes."""
    if rows is None:
        return None
    hashes, first, times = _totals(rows)
    if others is not None:
        known, _, known_times = _totals(others)
        at = np.minimum(np.searchsorted(known, hashes), len(known) - 1)
        times = times - np.where(known[at] == hashes, known_times[at], 0)
    left = times > 0
    found = rows.take(first[left])
    return found.set_column(found.schema.get_field_index(TIMES), TIMES, pa.array(times[left]))


def _totals(rows: pa.Table) -> tuple[Any, Any, Any]:
    """Each hash of a row once, in order, with the place of such a row, and how many times it comes."""
    hashes, first, inverse = np.unique(_column(rows, ROW), return_index=True, return_inverse=True)
    times = np.zeros(len(hashes), np.int64)
    np.add.at(times, inverse, _column(rows, TIMES))
    return hashes, first, times


def _column(rows: pa.Table | None, name: str) -> Any:
    return np.zeros(0, np.uint64) if rows is None else rows[name].to_numpy()


def _others(rows: pa.Table | None, both: Any) -> int:
    """How many rows have keys that are not among these."""
    return 0 if rows is None else int(_column(rows, TIMES)[~np.isin(_column(rows, KEY), both)].sum())


_Rows = Mapping[int, Sequence[tuple[int, Mapping[str, Any]]]]
"""By the hash of their key, rows with the times that each comes."""


def _rows(rows: pa.Table | None, keys: Any, names: Sequence[str], *, is_in: bool = True) -> _Rows:
    """Rows whose keys are, or are not, among these; not all where there are too many to list."""
    found = defaultdict[int, list[tuple[int, Mapping[str, Any]]]](list)
    if rows is not None:
        at = np.flatnonzero(np.isin(_column(rows, KEY), keys, invert=not is_in))
        part = rows.take(at if is_in else at[:SHOWN])
        plain = zip(*(_cells(part[name]) for name in names), strict=True)
        for number, times, row in zip(_column(part, KEY), _column(part, TIMES), plain, strict=True):
            found[int(number)].append((int(times), dict(zip(names, row, strict=True))))
    return found


def _cells(column: Any) -> list[Any]:
    """The cells of a column; as text where Python has no such value: it knows no date beyond the years 1 to 9999."""
    try:
        return list(column.to_pylist())
    except (ValueError, OverflowError):
        return [_cell(cell) for cell in column]


def _cell(cell: Any) -> Any:
    try:
        return cell.as_py()
    except (ValueError, OverflowError):
        return str(cell.cast(pa.string()))


def _listed(upstream: _Rows, iceberg: _Rows, key: Sequence[str], kind: Kind) -> Iterator[RowDifference]:
    for number in upstream or iceberg:
        nothing: Sequence[tuple[int, None]] = [(1, None)] * max(len(it.get(number, ())) for it in (upstream, iceberg))
        for (times, row), (other_times, other) in zip(
            upstream.get(number, nothing), iceberg.get(number, nothing), strict=False
        ):
            one = row or other or {}
            columns = () if row is None or other is None else _differing(row, other)
            own_key = {name: one[name] for name in key}
            yield RowDifference(kind, own_key, columns, other_times if row is None else times, row, other)


def _differing(row: Mapping[str, Any], other: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(name for name, cell in row.items() if not _is_same(cell, other[name]))


def _is_same(cell: Any, other: Any) -> bool:
    return bool(cell == other or (cell != cell and other != other))  # noqa: PLR0124 - NaN is not itself
