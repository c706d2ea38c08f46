"""A training run: a little of everything that the job does, so that the JVM can archive the classes that it takes.

python -m applier.commands.cds_training [GROUP ...]: makes the archive for these groups of jars, unless it is there.
"""

from __future__ import annotations

import argparse
import base64
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from applier.changefeed.message import TopicPartition
from applier.config.settings import Config
from applier.consume.kafka import java
from applier.consume.kafka.client import ForwardConsumer
from applier.errors import ApplierError
from applier.pipeline.build import assembled
from applier.runtime.jvm import cds_archive, jars
from applier.runtime.jvm.spark_session import build_session, end_jvm
from applier.runtime.logs import set_up_logging

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NOWHERE = "127.0.0.1:9"
_END_SECONDS = 120
_TOPIC = "training"
_TS = 470_606_911_615_533_056
_EMPTY: dict[str, Any] = {"id": 0, "database": "", "table": "", "pkNames": None, "isDdl": False, "es": 0, "ts": 0}
_EMPTY |= {"sql": "", "data": None, "old": None}


def make(groups: list[str]) -> Path:
    """Make the archive of classes for some groups of jars, unless it is there; raises what `jars.fetch` does."""
    own = [jar for group in groups for jar in jars.fetch(group)]
    archive = cds_archive.place(own)
    if archive.is_file():
        return archive
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".training-", dir=archive.parent) as folder:
        made = Path(folder) / archive.name
        _train(Path(folder), own, made)
        made.replace(archive)
    return archive


def _train(folder: Path, own: list[Path], made: Path) -> None:
    config = _config(folder)
    options = {
        "spark.master": "local[2]",
        "spark.driver.extraClassPath": cds_archive.joined(own),
        "spark.driver.extraJavaOptions": f'"-XX:ArchiveClassesAtExit={made}" -Xlog:cds=off -Xlog:cds+dynamic=off',
    }
    session = build_session("applier-training", options, "lake", config.catalog.properties)
    with assembled(config) as pipeline:
        while not (step := pipeline.step()).complete or step.moved:
            pass
    _read_kafka(session)
    session.stop()
    end_jvm(_END_SECONDS)


def _read_kafka(session: SparkSession) -> None:
    """Load Kafka's clients; that needs no broker, and there is no broker."""
    jvm = session._jvm  # noqa: SLF001 - the one way to Kafka's clients in Spark's JVM
    consumer = ForwardConsumer(jvm, {"bootstrap.servers": _NOWHERE})
    consumer.begin({TopicPartition("t", 0): 0})
    consumer.java.poll(java.duration(jvm, 500))
    consumer.close()


def _config(folder: Path) -> Config:
    feed = folder / "feed.jsonl"
    messages = [*_rows("INSERT", 0), _watermark(0), *_rows("UPDATE", 1), *_rows("DELETE", 2), _watermark(2)]
    feed.write_text("".join(map(_record, range(len(messages)), messages)), encoding="utf-8")
    lake = {"name": "lake", "type": "jdbc", "uri": f"jdbc:sqlite:{folder}/catalog.db"}
    return Config.model_validate(
        {
            "changefeed": {"name": _TOPIC, "protocol": "canal-json"},
            "source": {"archive": str(feed), "messages_per_step": 4},
            "catalog": lake | {"warehouse": str(folder / "warehouse")},
        }
    )


def _rows(kind: str, moment: int) -> Iterator[dict[str, Any]]:
    for number in range(3):
        row = {"id": str(number), "name": f"{kind} {moment}"}
        yield _EMPTY | {
            "database": "training",
            "table": "rows",
            "pkNames": ["id"],
            "type": kind,
            "sqlType": {"id": 4, "name": 12},
            "mysqlType": {"id": "int", "name": "varchar"},
            "old": [row] if kind == "UPDATE" else None,
            "data": [row],
            "_tidb": {"commitTs": _TS + moment},
        }


def _watermark(moment: int) -> dict[str, Any]:
    return _EMPTY | {"type": "TIDB_WATERMARK", "_tidb": {"watermarkTs": _TS + moment}}


def _record(offset: int, message: dict[str, Any]) -> str:
    value = base64.b64encode(json.dumps(message).encode()).decode()
    return json.dumps({"topic": _TOPIC, "partition": 0, "offset": offset, "key": None, "value": value}) + "\n"


def main() -> int:
    """See the text of the module; a failure costs seconds at every start and nothing else, so it is one line."""
    program = "python -m applier.commands.cds_training"
    parser = argparse.ArgumentParser(prog=program, description="Archive the classes of Spark.")
    parser.add_argument("groups", nargs="*", default=["spark"], metavar="GROUP", help="spark (default), or spark s3")
    set_up_logging("error")
    try:
        archive = make(parser.parse_args().groups)
    except (ApplierError, OSError) as error:
        print(f"No archive of classes, so each start of Spark takes some seconds longer: {error}", file=sys.stderr)
        return 3
    print(f"classes: {archive.stat().st_size // 2**20} MB in {archive}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
