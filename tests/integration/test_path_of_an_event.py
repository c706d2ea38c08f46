"""One INSERT from a real Kafka broker to its snapshot, and every function of applier that runs on the way."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from applier.config import settings
from applier.pipeline.build import assembled
from tests.call_trace import Trace, traced
from tests.paths import EVENT, calls, page
from tests.services.kafka import send
from tests.ticdc import TOPIC, Changefeed, Habits
from tests.upstream import Column, Database, Name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.services.kafka import Broker

_ORDERS = Name("shop", "orders")
_PREFIX = "path-"


@pytest.fixture(scope="module")
def insert(spark: SparkSession, kafka: Broker, lake: dict[str, str]) -> Trace:  # noqa: ARG001 - it runs
    """The step that applies one INSERT to a table with a row."""
    database = Database()
    database.create(_ORDERS, [Column("id"), Column("name", "varchar(20)")], ["id"])
    feed, topic = Changefeed(database, Habits(partitions=1)), _PREFIX + TOPIC
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result()
    raw = {
        "changefeed": {"name": "path", "protocol": "simple"},
        "source": {"kafka": {"topics": [topic], "kafka.bootstrap.servers": kafka.bootstrap}},
        "catalog": {"name": "lake", "type": "jdbc", **lake},
        "tables": {"route": "path__{database}.{table}"},
    }
    with assembled(settings.parse(raw)) as pipeline:
        sent = 0
        for number in (1, 2):
            database.insert(_ORDERS, {"id": number, "name": "one"})
            feed.send()
            send(kafka.bootstrap, feed.records[sent:], _PREFIX)
            sent = len(feed.records)
            with traced() as found:
                assert pipeline.step().moved
    return found


def test_an_insert_runs_through_the_listed_calls(insert: Trace) -> None:
    """Each line of the page runs under the line that it is indented under."""
    insert.hold_to(calls(EVENT))


def test_an_insert_crosses_no_more_files_than_the_page_says(insert: Trace) -> None:
    """Between the read from Kafka and the commit of the rows, at most the stated number of files run."""
    made = [function for function, _ in insert.calls]
    start = made.index(("consume/kafka/client.py", "read"))
    end = made.index(("sink/iceberg/commit.py", "_described"))
    files = {file for file, _ in made[start:end]}
    stated = re.search(r"In all, (\d+) files of `applier/` run", page(EVENT))

    assert stated is not None
    assert len(files) <= int(stated[1]), sorted(files)
