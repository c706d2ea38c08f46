"""Shows the live tables with PyIceberg: rows of each, and what the newest snapshots of bank.accounts add up to."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path

import pyarrow.compute as pc
from pyiceberg.catalog import load_catalog

lake = Path(__file__).parents[2] / "lake-live"
catalog = load_catalog("lake", type="sql", uri=f"sqlite:///{lake}/catalog.db", warehouse=str(lake / "warehouse"))

if not catalog.namespace_exists("bank"):
    sys.exit("There are no tables yet: Spark takes some seconds to start. Is make demo-live running?")

for name in sorted(table for space in ("bank", "audit") for table in catalog.list_tables(space)):
    print(f"{'.'.join(name):14} {catalog.load_table(name).scan().count()} rows")

print("\nNewest snapshots of bank.accounts. New transactions only move money, so the total stays the same:")
accounts = catalog.load_table("bank.accounts")
for snapshot in accounts.snapshots()[-5:]:
    resolved_ts = int(snapshot.summary["applier.resolved-ts"])
    clock = datetime.fromtimestamp((resolved_ts >> 18) / 1000, tz=UTC)
    rows = accounts.scan(snapshot_id=snapshot.snapshot_id).to_arrow()
    print(f"as of {clock:%F %T.%f}: {rows.num_rows} rows, total {pc.sum(rows['bal'])}")
