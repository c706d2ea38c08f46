"""Loads tables of an export into a lake in one of three ways, in this process; the first one warms it up.

python -m bench.load.loaders applier|spark|pyiceberg --export DIR --lake DIR [--warm TABLE] --table TABLE
"""

from __future__ import annotations

import argparse
import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
from pyarrow import csv
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - what the whole world calls it

from applier.commands.load.command import load
from applier.config import settings
from bench.lake import SPARK, Lake
from bench.load.export import ARROW, TSO, table
from bench.say import say
from bench.session import session
from bench.topic.canal_json import CanalJson
from bench.topic.schema import DATABASE

Loader: TypeAlias = Callable[[str], None]
"""Loads the table of a name."""

_TYPES = "id bigint, name string, amount decimal(12,2), created_at timestamp_ntz, quantity int, note string"

_AS_DUMPLING = {
    "header": "true",
    "escape": "\\",
    "nullValue": "\\N",
    "emptyValue": "",
    "timestampNTZFormat": "yyyy-MM-dd HH:mm:ss.SSSSSS",
}


def main() -> None:
    """Load a little table, then the one that is measured."""
    parser = argparse.ArgumentParser(prog="bench.load.loaders")
    parser.add_argument("way", choices=sorted(_WAYS))
    parser.add_argument("--export", type=Path, required=True)
    parser.add_argument("--lake", type=Path, required=True)
    parser.add_argument("--warm", required=True)
    parser.add_argument("--table", required=True)
    arguments = parser.parse_args()
    lake = Lake(arguments.lake)
    lake.folder.mkdir(parents=True, exist_ok=True)
    loader = _WAYS[arguments.way](lake, arguments.export)
    loader(arguments.warm)
    say("warm")
    loader(arguments.table)
    say("loaded")


def _applier(lake: Lake, export: Path) -> Loader:
    session("load", lake)
    feed = _feed(lake.folder / "feed")

    def run(name: str) -> None:
        config = settings.parse(
            {
                "changefeed": {"name": f"bench-{name}", "protocol": "canal-json"},
                "source": {"archive": str(feed)},
                "catalog": {"name": lake.name, **lake.properties},
                "tables": {"include": [str(table(name))]},
                "upstream": {"dump": str(export)},
                "spark": SPARK,
            }
        )
        # In the session that runs.
        done = load(config, None, (), lambda line: None)
        assert not done.refused

    return run


def _feed(folder: Path) -> Path:
    """An archive of a feed that has come to the export, and has no changes since."""
    value = CanalJson().watermark(TSO).value
    record = {"topic": "feed", "partition": 0, "offset": 0, "timestamp": TSO >> 18, "key": None}
    folder.mkdir()
    line = json.dumps(record | {"value": base64.b64encode(value or b"").decode()})
    (folder / "messages.jsonl").write_text(line + "\n", encoding="utf-8")
    return folder


def _spark(lake: Lake, export: Path) -> Loader:
    spark = session("load", lake)
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {lake.name}.{DATABASE}")
    return lambda name: _load_by_spark(spark, f"{lake.name}.{DATABASE}.{name}", f"{export}/{DATABASE}.{name}.*.csv")


def _load_by_spark(spark: SparkSession, target: str, files: str) -> None:
    properties = "'format-version'='3', 'write.distribution-mode'='none'"
    columns = _TYPES.replace("id bigint", "id bigint NOT NULL")
    spark.sql(f"CREATE TABLE {target} ({columns}) USING iceberg TBLPROPERTIES ({properties})")
    rows = spark.read.schema(_TYPES).options(**_AS_DUMPLING).csv(files)
    # Spark knows the escapes of delimiters, and not that of the end of a line.
    note = F.replace("note", F.lit("\\n"), F.lit("\n"))
    rows.withColumn("note", note).sortWithinPartitions("id").writeTo(target).append()


def _pyiceberg(lake: Lake, export: Path) -> Loader:
    catalog = lake.open()
    catalog.create_namespace_if_not_exists(DATABASE)

    def run(name: str) -> None:
        target = catalog.create_table((DATABASE, name), ARROW)
        for file in sorted(export.glob(f"{DATABASE}.{name}.*.csv")):
            target.append(_read(file).cast(ARROW))

    return run


def _read(file: Path) -> pa.Table:
    """A file by Arrow, which takes what stands behind a backslash as it is: `n` for the end of a line, N for NULL."""
    types: Any = ARROW
    convert = csv.ConvertOptions(
        column_types=types, null_values=["N"], strings_can_be_null=True, quoted_strings_can_be_null=False
    )
    return csv.read_csv(file, parse_options=csv.ParseOptions(escape_char="\\"), convert_options=convert)


_WAYS: dict[str, Callable[[Lake, Path], Loader]] = {"applier": _applier, "spark": _spark, "pyiceberg": _pyiceberg}


if __name__ == "__main__":
    main()
