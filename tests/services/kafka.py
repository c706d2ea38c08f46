"""A folder in, one Kafka broker on 127.0.0.1 out (KRaft, broker and controller in one process)."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from applier.runtime.jvm import jars
from tests.services.process import JavaProcess, free_ports, run_java

LOCK = Path(__file__).parent

_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=CONTROLLER://127.0.0.1:{controller},{listeners}
advertised.listeners={listeners}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
log.dirs={folder}/data
auto.create.topics.enable=false
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
log.retention.ms=-1
log.cleaner.backoff.ms=500
message.max.bytes=10485760
"""

_NONE: Mapping[str, int] = MappingProxyType({})


class Broker:
    """One Kafka broker whose data outlives a stop and a start.

    Args:
        folder: Its data, configuration and log.
        heap: Largest heap of its JVM.
        listeners: Ports of further listeners, by their names.
        settings: Further lines of its configuration.

    Attributes:
        bootstrap: Value for `bootstrap.servers`.
    """

    def __init__(
        self, folder: Path, heap: str = "512m", listeners: Mapping[str, int] = _NONE, settings: str = ""
    ) -> None:
        port, controller = free_ports(2)
        shown = ",".join(f"{name}://127.0.0.1:{at}" for name, at in {"PLAINTEXT": port, **listeners}.items())
        self.bootstrap = f"127.0.0.1:{port}"
        classes = ["-cp", os.pathsep.join(map(str, jars.fetch("kafka", LOCK)))]
        file = folder / "server.properties"
        basic = _PROPERTIES.format(listeners=shown, controller=controller, folder=folder)
        file.write_text(basic + settings, encoding="utf-8")
        cluster = base64.urlsafe_b64encode(os.urandom(16)).decode().rstrip("=")
        run_java([*classes, "kafka.tools.StorageTool", "format", f"--cluster-id={cluster}", "-c", str(file)])
        quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
        arguments = [f"-Xmx{heap}", quiet, *classes, "kafka.Kafka", str(file)]
        self._process = JavaProcess("The Kafka broker", arguments, folder / "broker.log")

    def start(self) -> None:
        """Start it and wait until it lists its topics."""
        self._process.start(self._answers)

    def stop(self) -> None:
        """Stop it; its topics stay in the folder."""
        self._process.stop()

    def create_topic(self, name: str, partitions: int = 1, **settings: str) -> None:
        """Create a topic and wait for it."""
        admin = self._admin()
        for done in admin.create_topics([NewTopic(name, partitions, 1, config=settings)]).values():
            done.result(30)

    def _answers(self) -> bool:
        admin = self._admin()
        try:
            return bool(admin.list_topics(timeout=1).brokers)
        except KafkaException:
            return False

    def _admin(self) -> AdminClient:
        # log_level 0: a refused connection is what a starting broker gives, and librdkafka prints each one.
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0, "socket.timeout.ms": 10_000})


def send(address: str, records: Iterable[Mapping[str, Any]], topic_prefix: str = "") -> None:
    """Write recorded messages to topics that are there, each to its own partition, in their order as TiCDC does.

    Without idempotence a batch that a new partition's leader refuses at first would be sent again behind those after
    it: rows would come after the watermark that covers them.
    """
    refused: list[str] = []
    producer = Producer(
        {
            "bootstrap.servers": address,
            "message.max.bytes": 10_000_000,
            "enable.idempotence": True,
            "queue.buffering.max.messages": 1_000_000,
            "on_delivery": lambda error, _: refused.append(str(error)) if error else None,
        }
    )
    for record in records:
        topic = topic_prefix + record["topic"]
        producer.produce(topic, value=record["value"], key=record["key"], partition=record["partition"])
        producer.poll(0)
    left = producer.flush(60)
    assert not refused, f"the broker refused messages: {refused[0]}"
    assert not left, f"the broker did not take {left} messages"


@contextmanager
def broker(folder: Path, heap: str = "512m", **options: Any) -> Iterator[Broker]:
    """A running broker that is stopped at the end; options as of `Broker`."""
    running = Broker(folder, heap, **options)
    try:
        running.start()
        yield running
    finally:
        running.stop()


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One broker for the whole run, started by the first test that asks for it."""
    with broker(tmp_path_factory.mktemp("kafka")) as running:
        yield running
