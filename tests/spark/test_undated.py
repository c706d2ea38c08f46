"""The way out of the refusal of a delete without a commit ts: the same changefeed goes on in offset order."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from applier.changefeed.table import TableName
from applier.commands.follower import Follower
from applier.config import settings as config
from applier.decode.avro.decoder import AvroDecoder
from applier.pipeline.build import assembled
from applier.pipeline.scan import decode_task, scanner
from applier.pipeline.step import Pipeline
from tests.few import few
from tests.spark.feeds import read
from tests.unit.decode.avro_messages import TS
from tests.unit.pipeline.scan.test_decode_task_undated import SCHEMAS, Message, deleted, statement, written

pytestmark = pytest.mark.spark


def resolved(ts: int) -> Message:
    """A watermark."""
    return None, b"\x02" + ts.to_bytes(8, "big")


def archive(folder: Path, messages: list[Message]) -> Path:
    """An archive of one partition."""
    folder.mkdir(exist_ok=True)
    lines = [
        {
            "topic": "shop_t",
            "partition": 0,
            "offset": offset,
            "timestamp": 1_700_000_000_000 + offset,
            "key": None if key is None else base64.b64encode(key).decode(),
            "value": None if value is None else base64.b64encode(value).decode(),
        }
        for offset, (key, value) in enumerate(messages)
    ]
    (folder / "feed.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


@contextmanager
def running(lake: dict[str, str], feed: Path, **changefeed: Any) -> Iterator[Pipeline]:
    """The pipeline of the changefeed."""
    raw = {
        "changefeed": {"protocol": "avro", **changefeed},
        "source": {"archive": str(feed)},
        "registry": {"url": "http://127.0.0.1:9"},
        "catalog": {"name": "lake", **lake},
        "tables": {"route": f"{changefeed['name']}__{{database}}.{{table}}"},
    }
    with assembled(config.parse(raw), take_over=True) as pipeline:
        yield pipeline


def _rows(spark: SparkSession, name: str) -> list[tuple[int, int]]:
    found = read(spark, (f"{name}__shop", "t")).to_pylist()
    return sorted((row["id"], row["v"]) for row in found)


@pytest.mark.parametrize("on_table_error", few(["park", "stop"]))
def test_a_changefeed_that_was_refused_goes_on_in_offset_order(
    on_table_error: str, spark: SparkSession, warehouse: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that stops applies what came before the delete; one that parks leaves the table where the step found it.

    With `order = "offset"` the delete follows what it followed, and a parked table comes back with the start.
    """
    for module in (decode_task, scanner):
        monkeypatch.setattr(module, "decoder_of_thread", lambda protocol, options: AvroDecoder(SCHEMAS))
    lake = {"type": "jdbc", "uri": f"jdbc:sqlite:{warehouse}/catalog.db", "warehouse": f"{warehouse}/tables"}
    create = statement(TS, "CREATE TABLE t (id BIGINT PRIMARY KEY, v BIGINT)")
    before = [create, written("c", TS + 1, 1), written("c", TS + 2, 2), resolved(TS + 3)]
    after = [deleted(1), written("u", TS + 5, 2, 7), written("c", TS + 6, 3), deleted(3), resolved(TS + 9)]
    feed = archive(tmp_path / "feed", [*before, *after])

    name = f"undated_{on_table_error}"
    with running(lake, feed, name=name, on_table_error=on_table_error) as pipeline:
        follower = Follower(pipeline)
        while (step := follower.turn()).moved or step.resuming:
            pass
        known = pipeline.state.completeness[TableName("shop", "t")]
        told = str(step.error) if on_table_error == "stop" else known.reason.detail
        assert "A delete of table shop.t has no commit ts" in told
        assert known.state == ("live" if on_table_error == "stop" else "parked")
        assert _rows(spark, name) == ([(1, 0), (2, 0)] if on_table_error == "stop" else [])

    with running(lake, feed, name=name, on_table_error=on_table_error, order="offset") as pipeline:
        follower = Follower(pipeline)
        while (step := follower.turn()).moved or step.resuming:
            pass
        assert pipeline.state.completeness[TableName("shop", "t")].is_live

    assert _rows(spark, name) == [(2, 7)]
