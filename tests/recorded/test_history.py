"""Tables of changes hold what the recorded messages of Simple say of each change, in every protocol."""

from __future__ import annotations

import base64
import json
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from applier.commands.follower import Follower
from applier.consume.window_size import Limits
from applier.pipeline.batches import stager
from applier.pipeline.scan.decode_task import DecodeTask
from tests import expected, recordings
from tests.placing import place_by
from tests.recorded.test_protocols import replaying

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

VARIANTS = [
    ("simple", "simple-json", "images"),
    ("simple", "simple-json", "changes"),
    ("canal-json", "canal-json-ext", "changes"),
    ("avro", "avro-before-value", "images"),
    pytest.param("canal-json", "canal-json-ext", "images", marks=pytest.mark.soak),
    pytest.param("avro", "avro-before-value", "changes", marks=pytest.mark.soak),
    pytest.param("open", "open", "changes", marks=pytest.mark.soak),
    pytest.param("open", "open", "images", marks=pytest.mark.soak),
    pytest.param("debezium", "debezium", "changes", marks=pytest.mark.soak),
    pytest.param("debezium", "debezium", "images", marks=pytest.mark.soak),
]
OWN = ("_commit_ts", "_commit_time", "_op", "_image")
_ROWS = ("INSERT", "UPDATE", "DELETE")

Change = tuple[str, int, str, str, str]


def _sent(tables: set[str], protocol: str, history: str) -> Counter[Change]:
    """By table, commit ts, kind, image and cells what the messages of Simple say, each once.

    Open does not show whether the row of an insert was there. Old rows of updates are images, and no changes.
    """
    described = recordings.expected("txns")[-1]["tables"]
    found = set()
    for message in (json.loads(record["value"]) for record in recordings.records("txns", "simple-json")):
        table, kind = f"{message.get('database')}.{message.get('table')}", message["type"].lower()
        if message["type"] not in _ROWS or table not in tables:
            continue
        for image, row in (("before", message.get("old")), ("after", message.get("data"))):
            if row and not (history == "changes" and (image, kind) == ("before", "update")):
                columns = described[table]["columns"]
                cells = [_text(row[column["name"]], column["mysql_type"]) for column in columns]
                (values,) = expected.bag(expected.rows({"columns": columns, "rows": [cells]}))
                is_open = protocol == "open" and kind == "insert"
                found.add((table, message["commitTs"], "upsert" if is_open else kind, image, values))
    return Counter(found)


def _text(cell: Any, kind: str) -> Any:
    """A cell of Simple-JSON as SQL writes it."""
    if isinstance(cell, dict):
        return cell["value"]
    return {"hex": base64.b64decode(cell).hex()} if cell is not None and "binary" in kind else cell


@pytest.mark.spark
@pytest.mark.parametrize(("protocol", "variant", "history"), VARIANTS)
def test_each_change_is_there_once(
    protocol: str, variant: str, history: str, spark: SparkSession, lake: dict[str, str], tmp_path: Path
) -> None:
    """Read one by one and as columns, in several steps with a restart among them."""
    _compare(protocol, variant, history, spark, lake, tmp_path, f"{history}-{variant}")


@pytest.mark.spark
@pytest.mark.parametrize(
    ("protocol", "variant"),
    [("canal-json", "canal-json-ext"), pytest.param("simple", "simple-json", marks=pytest.mark.soak)],
)
def test_tasks_stage_each_change_once(
    protocol: str,
    variant: str,
    spark: SparkSession,
    lake: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rows go from task to task, those of a table in several shares."""
    monkeypatch.setattr("applier.pipeline.build.DecodeTask", partial(DecodeTask, limits=Limits(piece_rows=8)))
    monkeypatch.setattr(stager, "LEAST_SHARE_BYTES", 200)
    monkeypatch.setattr(stager, "SHARE_BYTES", 1_000)
    place_by(monkeypatch, has_tasks=True, is_forced=True, staged_bytes=200)
    _compare(protocol, variant, "images", spark, lake, tmp_path, f"far-changes-{variant}", messages=400)


def _compare(
    protocol: str,
    variant: str,
    history: str,
    spark: SparkSession,
    lake: dict[str, str],
    folder: Path,
    name: str,
    messages: int = 60,
) -> None:
    with replaying("txns", protocol, variant, lake, folder, name) as found:
        found.raw["tables"]["*.*"] = {"history": history}
        found.raw["source"]["messages_per_step"] = messages
        for most in (3, 1000):
            with found.running(spark) as pipeline:
                follower = Follower(pipeline)
                for _ in range(most):
                    step = follower.turn()
                    if step.complete and not step.moved:
                        break
            catalog = pipeline.targets.catalog
            names = [name for name in pipeline.state.tables if pipeline.state.tables[name].key]
            places = {str(name): pipeline.targets.identifier(name) for name in names}
        shown: Counter[Change] = Counter()
        for table, place in places.items():
            if catalog.exists((*place[:-1], f"{place[-1]}__changes")):
                rows = spark.table(".".join([catalog.name, *place[:-1], f"{place[-1]}__changes"])).toArrow()
                for row in rows.to_pylist():
                    cells = {name: value for name, value in row.items() if name not in OWN}
                    shown[table, row["_commit_ts"], row["_op"], row["_image"], expected.bag([cells])[0]] += 1
    wanted = _sent(set(places), protocol, history)
    assert len(wanted) > 1000
    assert (sorted(shown - wanted)[:3], sorted(wanted - shown)[:3]) == ([], [])
    assert shown == wanted
