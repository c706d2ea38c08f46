"""An export of some rows in, what each way to load it costs out."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import pyarrow as pa

from bench.contender import Run, as_run
from bench.lake import Lake
from bench.load import export
from bench.load.export import Sums
from bench.meter import measure
from bench.report import Entry, aligned
from bench.say import tell
from bench.topic.schema import DATABASE

WAYS = {"applier": "applier load", "spark": "plain Spark", "pyiceberg": "PyIceberg append"}

LIMIT = 1.3
"""The most CPU seconds that applier may need, by those of plain Spark."""

_WARM, _TABLE = "warm", "orders"
_WARM_ROWS = 100_000


@dataclass(slots=True)
class Comparison:
    """What was measured on an export.

    Attributes:
        rows: Rows of its table.
        size: Bytes of their files.
        entries: What each way cost.
    """

    rows: int
    size: int
    entries: dict[str, Entry] = field(default_factory=dict)

    @property
    def is_right(self) -> bool:
        """Whether every table that was loaded holds the rows of the export."""
        return all(entry.verdict == "exact" for entry in self.entries.values())

    def lines(self) -> list[str]:
        """The comparison as text."""
        columns = ("", "rows/s", "per CPU s", "seconds", "CPU s", "x Spark", "session s", "peak MB", "result")
        cells = [columns, *(self._cells(entry) for entry in self.entries.values())]
        wrong = [f"{entry.name}: {what}" for entry in self.entries.values() for what in _complaints(entry)]
        return [f"{self.rows:,} rows, {self.size / 1e6:,.0f} MB of CSV", "", *aligned(cells), *wrong, ""]

    def _cells(self, entry: Entry) -> tuple[str, ...]:
        run, spark = entry.run, self.entries.get("spark")
        speeds = [f"{self.rows / value:,.0f}" if value else "" for value in (run.seconds, run.cpu_seconds)]
        times = "" if spark is None else f"{run.cpu_seconds / max(spark.run.cpu_seconds, 1e-9):.2f}"
        costs = (f"{run.seconds:.1f}", f"{run.cpu_seconds:.1f}", times, f"{run.start_seconds:.1f}")
        return (entry.name, *speeds, *costs, f"{run.peak_mb:,.0f}", entry.verdict)


def compared(
    folder: Path, sizes: Sequence[int], ways: Sequence[str], repeat: int, exports: Path | None = None
) -> tuple[str, bool]:
    """Load exports of some sizes in each way, in turns.

    Args:
        folder: For the lakes.
        sizes: Rows of each export.
        ways: Keys of `WAYS`.
        repeat: Loads in each way.
        exports: Where exports are kept for later runs.

    Returns:
        The result as text, and whether all tables are right.
    """
    found = [
        _compared((exports or folder) / f"export-{rows}", folder / str(rows), rows, ways, repeat) for rows in sizes
    ]
    title = f"load: rows of an export into an empty table; applier may cost {LIMIT} x plain Spark"
    lines = [title, "=" * len(title), "", *(line for item in found for line in item.lines())]
    return "\n".join(lines), all(item.is_right for item in found)


def _compared(source: Path, folder: Path, rows: int, ways: Sequence[str], repeat: int) -> Comparison:
    expected = _written(source, rows)
    size = sum(file.stat().st_size for file in source.glob(f"{DATABASE}.{_TABLE}.*.csv"))
    tell(f"load: {rows:,} rows in {size / 1e6:,.0f} MB")
    found = Comparison(rows, size, {way: Entry(WAYS[way], wrong=[]) for way in ways})
    for turn in range(repeat):
        for way in ways:
            lake = Lake(folder / f"{way}_{turn}")
            run = _measured(way, source, lake)
            found.entries[way].runs.append(run)
            found.entries[way].wrong += [] if run.failure else _differences(lake, expected)
            tell(f"load: {rows:,} rows, {way}: {run.failure or f'{run.seconds:.1f} s, {run.cpu_seconds:.1f} CPU s'}")
    return found


def _written(source: Path, rows: int) -> Sums:
    """The sums of an export, which is written if it is not there yet."""
    sums = source / "sums.json"
    if not sums.exists():
        export.write(source, _WARM, min(_WARM_ROWS, rows))
        sums.write_text(json.dumps(asdict(export.write(source, _TABLE, rows))), encoding="utf-8")
    return Sums(**json.loads(sums.read_text(encoding="utf-8")))


def _measured(way: str, source: Path, lake: Lake) -> Run:
    log = lake.folder.with_suffix(".log")
    command = [sys.executable, "-m", "bench.load.loaders", way, "--export", str(source), "--lake", str(lake.folder)]
    return as_run(measure([*command, "--warm", _WARM, "--table", _TABLE], log), log, started="warm", worked="loaded")


def _differences(lake: Lake, expected: Sums) -> list[str]:
    """What the sums of a table show."""
    table, sums = lake.open().load_table((DATABASE, _TABLE)), Sums()
    for batch in table.scan(selected_fields=tuple(export.ARROW.names)).to_arrow_batch_reader():
        sums = sums.plus(pa.Table.from_batches([batch]).cast(export.ARROW))
    return [] if sums == expected else [f"its columns add up to {sums}, not to {expected}"]


def _complaints(entry: Entry) -> list[str]:
    return [run.failure for run in entry.runs if run.failure] + (entry.wrong or [])
