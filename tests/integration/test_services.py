"""The services themselves: each answers its clients, and is started only once."""

from __future__ import annotations

from pathlib import Path

import requests
from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark.sql import SparkSession

from tests.services.kafka import Broker
from tests.services.registry import Registry
from tests.services.s3 import ObjectStore


def _produce(kafka: Broker, topic: str, value: bytes) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    producer.produce(topic, value, partition=1)
    assert producer.flush(30) == 0


def test_kafka_keeps_what_is_produced(kafka: Broker) -> None:
    """A message comes back from the partition to which it was sent."""
    kafka.create_topic("kept", partitions=2)

    _produce(kafka, "kept", b"payload")

    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "kept"})
    try:
        consumer.assign([TopicPartition("kept", 1, 0)])
        message = consumer.poll(30)
        assert message is not None
        assert message.value() == b"payload"
    finally:
        consumer.close()


def test_registry_gives_a_schema_by_its_id(registry: Registry) -> None:
    """A registered schema comes back under the id that the registration gave."""
    number = registry.register("services-value", '{"type": "string"}')

    answer = requests.get(f"{registry.url}/schemas/ids/{number}", timeout=30)

    assert answer.json()["schema"] == '{"type": "string"}'


def test_iceberg_keeps_a_table_in_s3(s3: ObjectStore, spark: SparkSession, tmp_path: Path) -> None:
    """Iceberg's S3FileIO writes a table to the server and reads it back."""
    s3.create_bucket("lake")
    properties = {
        "type": "jdbc",
        "uri": f"jdbc:sqlite:{tmp_path}/catalog.db",
        "warehouse": "s3://lake/warehouse",
        "jdbc.schema-version": "V1",
        "cache-enabled": "false",
    }
    spark.conf.set("spark.sql.catalog.remote", "org.apache.iceberg.spark.SparkCatalog")
    for key, value in (properties | s3.catalog_properties).items():
        spark.conf.set(f"spark.sql.catalog.remote.{key}", value)

    spark.sql("CREATE NAMESPACE remote.shop")
    spark.sql("CREATE TABLE remote.shop.t (id BIGINT) USING iceberg TBLPROPERTIES ('format-version' = '3')")
    spark.sql("INSERT INTO remote.shop.t VALUES (1), (2)")

    assert [row.id for row in spark.table("remote.shop.t").orderBy("id").collect()] == [1, 2]
    assert any(key.endswith(".parquet") for key in s3.keys("lake"))
