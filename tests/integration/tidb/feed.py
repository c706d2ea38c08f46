"""A feed that says nothing but how far it is, for tables that come from a real TiDB."""

from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path

from tests.integration.tidb import ranged
from tests.replay import Replay
from tests.services.tidb import Tidb


def now(tidb: Tidb) -> int:
    """The newest TSO of a server that shows the past."""
    ranged.keep_past(tidb)
    return int(tidb.rows("SHOW MASTER STATUS")[0][1])


def replay(name: str, tso: int, upstream: dict[str, str], lake: dict[str, str], folder: Path) -> Replay:
    """A changefeed whose feed is one watermark, above a TSO."""
    feed = folder / "feed.jsonl.gz"
    watermark = {"type": "TIDB_WATERMARK", "es": 1, "ts": 1, "_tidb": {"watermarkTs": tso + 1}}
    value = {"id": 0, "database": "", "table": "", "isDdl": False, "sql": "", "data": None, "old": None, **watermark}
    text = base64.b64encode(json.dumps(value).encode()).decode()
    record = {
        "topic": "feed",
        "partition": 0,
        "offset": 0,
        "timestamp": tso >> 18,
        "key": None,
        "value": text,
        "headers": [],
    }
    with gzip.open(feed, "wt") as file:
        file.write(json.dumps(record) + "\n")
    raw = {
        "changefeed": {"name": name, "protocol": "canal-json"},
        "source": {"archive": str(feed)},
        "catalog": {"name": "lake", **lake},
        "tables": {"route": f"{name}__{{database}}.{{table}}"},
        "upstream": upstream,
    }
    return Replay("", "", name, lake, raw)
