"""A topic in JSON in, typed rows out, as one would write it with Spark alone: what limits and peers decode with."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - what the whole world calls it

from bench.topic.schema import COLUMNS, STATUSES
from bench.topic.schema import Column as TableColumn

TYPES = {
    "bigint": "bigint", "int": "int", "tinyint": "int", "decimal": "decimal(12,2)", "enum": "string",
    "varchar": "string", "datetime": "timestamp_ntz", "timestamp": "timestamp",
}  # fmt: skip
"""Spark's types of the columns, as the lake has them."""

TABLE_COLUMNS = ", ".join(
    f"{column.name} {TYPES[column.type]}{' NOT NULL' if column.is_key else ''}" for column in COLUMNS
)

_TEXTS = ",".join(f"{column.name}:string" for column in COLUMNS)
_SIMPLE_TEXTS = _TEXTS.replace("updated_at:string", "updated_at:struct<value:string>")

_MESSAGES = {
    "simple-json": f"type string, commitTs bigint, data struct<{_SIMPLE_TEXTS}>, old struct<{_SIMPLE_TEXTS}>",
    "canal-json": f"type string, data array<struct<{_TEXTS}>>, _tidb struct<commitTs:bigint>",
}

DECODABLE = frozenset(_MESSAGES)
"""Protocols that Spark's own from_json reads."""


def rows(messages: DataFrame, protocol: str) -> DataFrame:
    """Decode row messages: columns `op`, `commit_ts` and the table's, of deletes the old image.

    Control messages fall out by their key, which is null: a condition on a decoded field would make Spark decode twice.
    """
    parsed = F.from_json(F.col("value").cast("string"), _MESSAGES[protocol])
    message = messages.where("length(key) = 0").select("offset", parsed.alias("m"))
    if protocol == "simple-json":
        image, commit_ts = F.coalesce("m.data", "m.old"), F.col("m.commitTs")
    else:
        image, commit_ts = F.col("m.data")[0], F.col("m._tidb.commitTs")
    flat = message.select("offset", F.col("m.type").alias("op"), commit_ts.alias("commit_ts"), image.alias("r"))
    return flat.select("offset", "op", "commit_ts", *(_typed(column, protocol) for column in COLUMNS))


def _typed(column: TableColumn, protocol: str) -> Column:
    value = F.col(f"r.{column.name}")
    if column.type == "timestamp" and protocol == "simple-json":
        value = value["value"]
    if column.type == "enum":
        labels = F.array(*(F.lit(label) for label in STATUSES))
        return F.element_at(labels, value.cast("int")).alias(column.name)
    return value.cast(TYPES[column.type]).alias(column.name)
