"""Shows the tables of the quickstart with PyIceberg: some rows, the resolved ts, and the snapshots."""

from __future__ import annotations

import sys
from datetime import UTC, datetime

from pyiceberg.catalog import load_catalog
from rich.console import Console
from rich.table import Table

catalog = load_catalog("lake", type="sql", uri="sqlite:///lake/catalog.db", warehouse="lake/warehouse")
console = Console(width=120)


def show_rows(name: tuple[str, ...], limit: int = 5) -> None:
    """Print the first rows of a table in key order."""
    table = catalog.load_table(name)
    rows = table.scan().to_arrow()
    keys = [table.schema().find_column_name(number) for number in table.schema().identifier_field_ids]
    rows = rows.sort_by([(key, "ascending") for key in keys if key])
    console.print(f"{'.'.join(name)}: {rows.num_rows} rows", style="bold", highlight=False)
    shown = Table()
    for column in rows.column_names:
        shown.add_column(column)
    for row in rows.slice(0, limit).to_pylist():
        shown.add_row(*("NULL" if value is None else str(value) for value in row.values()))
    console.print(shown)


def show_snapshots(name: tuple[str, ...]) -> None:
    """Print the snapshots of a table with the resolved ts that each is true as of."""
    table = catalog.load_table(name)
    console.print(f"snapshots of {'.'.join(name)}", style="bold", highlight=False)
    shown = Table()
    for column in ("snapshot id", "resolved ts", "true as of (UTC)", "added", "removed"):
        shown.add_column(column)
    for snapshot in table.snapshots():
        summary = snapshot.summary.additional_properties if snapshot.summary else {}
        resolved = int(summary["applier.resolved-ts"])
        clock = datetime.fromtimestamp((resolved >> 18) / 1000, tz=UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
        # A new deletion vector repeats what was dead in its file before.
        dead, before = (int(summary.get(f"{verb}-position-deletes", 0)) for verb in ("added", "removed"))
        added = summary.get("added-records", "0")
        shown.add_row(str(snapshot.snapshot_id), str(resolved), clock, added, str(dead - before))
    console.print(shown)


spaces = [space for space in catalog.list_namespaces() if not space[0].startswith("applier_")]
tables = [name for space in spaces for name in catalog.list_tables(space)]
for identifier in sorted(tables):
    show_rows(identifier)
show_snapshots(("bank", "accounts"))
resolved_ts = max(int(catalog.load_table(name).properties["applier.resolved-ts"]) for name in tables)
shape = f", in the shape of examples/shapes/{sys.argv[1]}," if sys.argv[1:] and sys.argv[1] else ""
console.print(f"\nAll tables are equal to the TiDB database{shape} as of resolved ts [bold]{resolved_ts}[/bold].")
