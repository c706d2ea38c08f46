"""Writes what `verify` has found for people: a line a table, its differences below it, and a sentence at the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from applier.commands.verify.difference import RowDifference
from applier.commands.verify.report import TableVerdict, VerifyReport, printable
from applier.runtime.figures import counted


def lines(verdict: TableVerdict, *, values: bool) -> Iterator[str]:
    """What is found of a table; with `values`, also what the cells that differ hold."""
    shown = [f"{verdict.table}: {verdict.state}"]
    if verdict.rows is not None:
        shown.append(counted(verdict.rows, "row"))
    if verdict.upstream_rows != verdict.rows:
        shown.append(f"upstream {counted(verdict.upstream_rows or 0, 'row')}")
    shown += [] if verdict.rows_read is None else [f"{counted(verdict.rows_read, 'row')} read"]
    shown += [f"snapshot {verdict.snapshot_id}"] if verdict.snapshot_id is not None else []
    shown += [", ".join(f"{count:,} {kind}" for kind, count in verdict.counts.items())] if verdict.counts else []
    yield " · ".join(shown)
    for found in verdict.differences:
        yield from _difference(found, values=values)
    if (rest := sum(verdict.counts.values()) - sum(found.times for found in verdict.differences)) > 0:
        yield f"    … and {rest:,} more"
    if not verdict.is_whole:
        yield "    Too many rows differ to count them all: there are more differences."
    if verdict.left_out:
        yield f"    Not compared: {', '.join(verdict.left_out)}, which the export does not hold exactly."
    if verdict.because:
        yield f"    {verdict.because}"
    if verdict.way_out:
        yield f"    Hint: {verdict.way_out}"


def _difference(found: RowDifference, *, values: bool) -> Iterator[str]:
    times = f", {found.times:,} times" if found.times > 1 else ""
    columns = f": {', '.join(found.columns)}" if found.columns else ""
    yield f"    {found.kind} {_cells(found.key) or 'row'}{times}{columns}"
    if values:
        for side, row in (("upstream", found.upstream), ("Iceberg", found.iceberg)):
            if row is not None:
                yield f"        {side}: {_cells(row, found.columns)}"


def _cells(row: Mapping[str, Any], columns: Sequence[str] = ()) -> str:
    return ", ".join(f"{name}={printable(row[name])!r}" for name in columns or row)


def summary(report: VerifyReport) -> str:
    """One sentence on all tables."""
    states = Counter(table.state for table in report.tables)
    at = f"{report.against} as of resolved ts {report.resolved_ts} ({report.resolved})"
    tables = counted(len(report.tables), "table")
    if report.state == "equal":
        return f"{tables} {'is' if len(report.tables) == 1 else 'are'} equal to {at}."
    shown = ", ".join(f"{states[state]:,} {state}" for state in ("different", "unknown", "equal") if states[state])
    return f"{tables} compared with {at}: {shown}."
