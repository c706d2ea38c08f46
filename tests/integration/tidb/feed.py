"""A feed that says nothing but how far it is, for tables that come from a real TiDB."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Sequence
from pathlib import Path

from tests.integration.tidb import ranged
from tests.replay import Replay
from tests.services.tidb import Tidb


def now(tidb: Tidb) -> int:
    """The newest TSO of a server that shows the past."""
    ranged.keep_past(tidb)
    return int(tidb.rows("SHOW MASTER STATUS")[0][1])


def write(folder: Path, watermarks: Sequence[int]) -> Path:
    """Write a feed of these watermarks into a folder, in place of the one that is there."""
    feed = folder / "feed.jsonl.gz"
    plain = {"id": 0, "database": "", "table": "", "isDdl": False, "sql": "", "data": None, "old": None}
    with gzip.open(feed, "wt") as file:
        for offset, tso in enumerate(watermarks):
            value = {**plain, "type": "TIDB_WATERMARK", "es": 1, "ts": 1, "_tidb": {"watermarkTs": tso}}
            text = base64.b64encode(json.dumps(value).encode()).decode()
            place = {"topic": "feed", "partition": 0, "offset": offset, "timestamp": tso >> 18}
            file.write(json.dumps({**place, "key": None, "value": text, "headers": []}) + "\n")
    return feed


def replay(name: str, tso: int, upstream: dict[str, str], lake: dict[str, str], folder: Path) -> Replay:
    """A changefeed whose feed is one watermark, above a TSO."""
    feed = write(folder, [tso + 1])
    raw = {
        "changefeed": {"name": name, "protocol": "canal-json"},
        "source": {"archive": str(feed)},
        "catalog": {"name": "lake", **lake},
        "tables": {"route": f"{name}__{{database}}.{{table}}"},
        "upstream": upstream,
    }
    return Replay("", "", name, lake, raw)
