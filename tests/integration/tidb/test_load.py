"""An export of a real TiDB, loaded into Iceberg, is what SQL shows."""

from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from applier.commands.load.command import load
from applier.config import settings
from applier.decode.dump.export import Export
from tests import expected
from tests.integration.tidb import corpus
from tests.replay import Replay
from tests.services.tidb import Tidb

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DATABASE = "loaded"


@pytest.mark.soak
@pytest.mark.parametrize("options", [("--filetype", "csv"), ("-F", "32KiB", "--compress", "zstd")], ids=str)
def test_a_loaded_export_is_what_sql_shows(
    options: tuple[str, ...], tidb: Tidb, spark: SparkSession, lake: dict[str, str], tmp_path: Path
) -> None:
    """All tables, with the generated column that Dumpling leaves out; the next step changes nothing."""
    if not tidb.rows(f"SHOW DATABASES LIKE '{DATABASE}'"):
        corpus.create(tidb, DATABASE)
    address = tidb.dump(tmp_path / "export", "--filter", f"{DATABASE}.*", *options)
    found = _replay(f"tidb{len(options)}", address, lake, tmp_path)
    done = load(settings.parse(found.raw), None, (), lambda _: None)
    assert done.refused == ()
    with found.running(spark) as pipeline:
        assert pipeline.step().error is None
    wanted = corpus.shown(tidb, DATABASE)
    assert found.tables() == set(wanted)
    for name, table in wanted.items():
        assert expected.bag(found.contents(name) or []) == expected.bag(expected.rows(table)), name


def _replay(name: str, address: str, lake: dict[str, str], folder: Path) -> Replay:
    feed = folder / "feed.jsonl.gz"
    watermark = {"type": "TIDB_WATERMARK", "es": 1, "ts": 1, "_tidb": {"watermarkTs": Export.find(address).tso + 1}}
    value = {"id": 0, "database": "", "table": "", "isDdl": False, "sql": "", "data": None, "old": None, **watermark}
    text = base64.b64encode(json.dumps(value).encode()).decode()
    record = {"topic": "feed", "partition": 0, "offset": 0, "timestamp": 1, "key": None, "value": text, "headers": []}
    with gzip.open(feed, "wt") as file:
        file.write(json.dumps(record) + "\n")
    raw = {
        "changefeed": {"name": name, "protocol": "canal-json"},
        "source": {"archive": str(feed)},
        "catalog": {"name": "lake", **lake},
        "tables": {"route": f"{name}__{{database}}.{{table}}"},
        "upstream": {"dump": address},
    }
    return Replay("", "", name, lake, raw)
