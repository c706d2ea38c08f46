"""One INSERT from a real Kafka broker to its snapshot, and every function of applier that runs on the way."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from applier.config import settings
from applier.pipeline.build import assembled
from tests.path_of_an_event import calls, page
from tests.services.kafka import send
from tests.ticdc import TOPIC, Changefeed, Habits
from tests.upstream import Column, Database, Name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.services.kafka import Broker

_PACKAGE = f"{Path(__file__).parents[2] / 'applier'}/"
_ORDERS = Name("shop", "orders")
_PREFIX = "path-"

Function: TypeAlias = tuple[str, str]
"""File below `applier/`, and name."""

Events: TypeAlias = list[tuple[str, Function]]
"""Calls and returns, in order."""


@contextmanager
def _traced() -> Iterator[Events]:
    """Every call and return of a function of applier inside the block."""
    found: Events = []

    def note(frame: FrameType, event: str, _: Any) -> None:
        file = frame.f_code.co_filename
        if event in ("call", "return") and file.startswith(_PACKAGE):
            found.append((event, (file.removeprefix(_PACKAGE), frame.f_code.co_name)))

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield found
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


@pytest.fixture(scope="module")
def events(spark: SparkSession, kafka: Broker, lake: dict[str, str]) -> Events:
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
    with assembled(settings.parse(raw), spark=spark) as pipeline:
        sent = 0
        for number in (1, 2):
            database.insert(_ORDERS, {"id": number, "name": "one"})
            feed.send()
            send(kafka.bootstrap, feed.records[sent:], _PREFIX)
            sent = len(feed.records)
            with _traced() as found:
                assert pipeline.step().moved
    return found


def _called(events: Events) -> set[tuple[Function, Function]]:
    """Each function with every function of applier that it runs under."""
    stack: list[Function] = []
    found = set()
    for event, function in events:
        if event == "call":
            found |= {(caller, function) for caller in stack}
            stack.append(function)
        elif stack and stack[-1] == function:
            stack.pop()
    return found


def test_an_insert_runs_through_the_listed_calls(events: Events) -> None:
    """Each line of the page runs under the line that it is indented under."""
    called = _called(events)
    made = {function for _, function in events}
    # A dataclass has no code of its own to run.
    for call in (call for call in calls() if not call.function[0].isupper()):
        function = call.file, call.function
        assert function in made, f"{call} did not run"
        if call.caller is not None:
            assert ((call.caller.file, call.caller.function), function) in called, f"{call.caller} did not run {call}"


def test_an_insert_crosses_no_more_files_than_the_page_says(events: Events) -> None:
    """Between the read from Kafka and the commit of the rows, at most the stated number of files run."""
    start = next(at for at, (_, function) in enumerate(events) if function == ("consume/kafka/client.py", "read"))
    committed = ("return", ("sink/iceberg/commit.py", "commit"))
    end = next(at for at, event in enumerate(events) if event == committed)
    files = {file for _, (file, _) in events[start:end]}
    stated = re.search(r"In all, (\d+) files of `applier/` run", page())

    assert stated is not None
    assert {call.file for call in calls()} <= {file for _, (file, _) in events}
    assert len(files) <= int(stated[1]), sorted(files)
