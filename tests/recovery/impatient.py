"""`applier`, which waits for no outside system: its first failure is the last one."""

from __future__ import annotations

from applier import cli
from applier.runtime import retry

if __name__ == "__main__":
    retry.OUTAGE_SECONDS = 0.0
    cli.main()
