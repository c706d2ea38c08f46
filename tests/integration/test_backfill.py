"""`applier backfill` from a real Kafka broker: offsets by time, and a way around what the broker has deleted."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient

from applier.commands.backfill.command import backfill, from_archive, planned
from applier.commands.backfill.request import asked
from applier.config import settings
from applier.errors import SourceLost
from tests import recordings
from tests.integration.test_kafka_source import from_kafka, produce
from tests.replay import differences, replay
from tests.spark.test_backfill import run, states, text

if TYPE_CHECKING:
    from tests.services.kafka import Broker


@pytest.mark.usefixtures("spark")
def test_what_the_broker_has_deleted_comes_from_an_archive(kafka: Broker, lake: dict[str, str], tmp_path: Path) -> None:
    """Deleted offsets are named with the way out; that way leads on, and back to the broker where the archive ends."""
    recorded = states("pk")
    (start, offsets), (last, _) = recorded[0], recorded[-1]
    topics = produce(kafka.bootstrap, recordings.records("pk", "simple-json"), topic_prefix="")
    found = from_kafka(
        replay("pk", "simple-json", lake, tmp_path, "simple", name="kafka-backfill"), kafka.bootstrap, topics
    )
    run(found, "beginning", text(offsets))
    assert differences(found, start) == []
    # The broker wrote the records now: all of them are later than what TiDB committed.
    told = planned(settings.parse(found.raw), asked(str(start["resolved_ts"]), None))
    assert all(first == 0 for _, first, _, _ in told.spans)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    gone = [KafkaPartition(place.topic, place.partition, offset + 1) for place, offset in offsets.items()]
    for deleted in admin.delete_records(gone).values():
        deleted.result(30)

    with pytest.raises(SourceLost, match="were deleted from the source. Hint: .*give their folder with --archive"):
        run(found, text(offsets))
    with pytest.raises(SourceLost, match=r"begins at offset \d+ of \S+, and what was sent at .* may lie before it"):
        run(found, str(start["resolved_ts"]))

    archive = str(recordings.GOLDEN / "pk" / "simple-json.jsonl.gz")
    config = from_archive(settings.parse(found.raw), archive)
    middle = recorded[len(recorded) // 2]
    request = asked(text(offsets), text(middle[1]))
    backfill(config, request, take_over=False, report=lambda line: None)
    assert differences(found, middle[0]) == []

    run(found, text(middle[1]))
    assert differences(found, last) == []
