"""`applier`, to which a search for orphan files is due at each start, and all files are old: nothing else may write."""

from __future__ import annotations

from applier import cli
from applier.pipeline import maintenance
from applier.sink import upkeep

if __name__ == "__main__":
    maintenance.ORPHAN_SECONDS, maintenance.OVERDUE = 0.0, 1.0
    # Even the newest file of a table, by whose time a search goes.
    upkeep._HOUR = -60_000
    cli.main()
