"""Starts a Kafka broker, a feed that goes on and `applier run` on this machine, until Ctrl-C or for some seconds.

Everything is in the folder lake-live of the checkout, and begins anew at each start.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from argparse import ArgumentParser
from pathlib import Path

from confluent_kafka import Producer

from examples.kafka.feed import PARTITIONS, Feed, Record
from tests.services.kafka import broker
from tests.services.process import free_ports

ROOT = Path(__file__).parents[2]
LIVE = ROOT / "lake-live"
BIN = Path(sys.executable).parent
CONFIG = "examples/kafka/applier.toml"
TOPIC = "bank"
TRANSACTIONS = 4
"""New transactions a second; each changes two rows and adds one."""

INTRODUCTION = """\
Page:    http://127.0.0.1:{port}/    (once Spark has started)
Status:  DEMO_BROKER={broker} DEMO_PORT={port} {bin}/applier status -c {config}
Tables:  {bin}/python examples/kafka/query.py
End:     Ctrl-C
"""


def main() -> int:
    """Run the demo; the exit code is that of `applier run`."""
    options = ArgumentParser(description=__doc__)
    options.add_argument("--seconds", type=float, help="end so many seconds after the start; without it, at Ctrl-C")
    seconds = options.parse_args().seconds
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: ended.set())
    if seconds is not None:
        threading.Timer(seconds, ended.set).start()
    shutil.rmtree(LIVE, ignore_errors=True)
    (LIVE / "kafka").mkdir(parents=True)
    print("Starting a Kafka broker …", flush=True)
    with broker(LIVE / "kafka", heap="256m") as kafka:
        kafka.create_topic(TOPIC, PARTITIONS)
        (port,) = free_ports(1)
        bin_shown = BIN.relative_to(ROOT) if BIN.is_relative_to(ROOT) else BIN
        print(INTRODUCTION.format(port=port, broker=kafka.bootstrap, bin=bin_shown, config=CONFIG), flush=True)
        environment = os.environ | {"DEMO_BROKER": kafka.bootstrap, "DEMO_PORT": str(port)}
        # A session of its own: Ctrl-C at the terminal reaches it through `_stop` alone, so it gets the signal once.
        applier = subprocess.Popen(
            [sys.executable, "-m", "applier", "run", "-c", CONFIG], cwd=ROOT, env=environment, start_new_session=True
        )
        try:
            _feed(kafka.bootstrap, applier, ended)
        finally:
            code = _stop(applier)
    return code


def _feed(address: str, applier: subprocess.Popen[bytes], ended: threading.Event) -> None:
    """Send until it is to end, or until applier has ended."""
    # log_level 3: a broker that has just started lets the first request wait, and librdkafka prints it.
    producer = Producer({"bootstrap.servers": address, "enable.idempotence": True, "log_level": 3})
    feed = Feed()
    for record in feed.history():
        _send(producer, record)
    transactions = 0
    while not ended.wait(1 / TRANSACTIONS) and applier.poll() is None:
        for record in feed.transaction():
            _send(producer, record)
        transactions += 1
        if transactions % TRANSACTIONS == 0:
            for record in feed.resolved():
                _send(producer, record)
    producer.flush(10)


def _send(producer: Producer, record: Record) -> None:
    partition, value = record
    producer.produce(TOPIC, value, partition=partition)
    producer.poll(0)


def _stop(applier: subprocess.Popen[bytes]) -> int:
    """Let applier finish its step; its exit code, 0 where it ended because it was told to."""
    if applier.poll() is not None:
        return applier.returncode
    applier.send_signal(signal.SIGTERM)
    # It says that a second Ctrl-C ends it at once.
    signal.signal(signal.SIGINT, lambda *_: applier.send_signal(signal.SIGINT))
    code = applier.wait()
    # Before it is ready for signals, and before its first step, it ends in other ways.
    return 0 if code in {-signal.SIGTERM, 128 + signal.SIGTERM} else code


if __name__ == "__main__":
    sys.exit(main())
