"""`applier check` asks each system, and what one says or does not say hides no other."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from applier.changefeed.checkpoint import Checkpoint, Holder, Lease
from applier.changefeed.message import TopicPartition
from applier.changefeed.position import Reading
from applier.changefeed.window import OffsetRange
from applier.commands.check import systems
from applier.commands.check.command import check
from applier.commands.check.report import SystemAnswer
from applier.commands.check.systems import ask
from applier.commands.control_reader import ControlView
from applier.errors import ApplierError, OutsideRefused, SourceLost, Unreachable
from applier.runtime.jvm import jars, java_home
from applier.runtime.threads import Asking
from tests.fake_registry import Answer, FakeRegistry
from tests.lab import Memory
from tests.storage_sink import put_in, schema_file
from tests.unit.commands.check.world import World

CANAL = (
    b'{"id":0,"database":"","table":"","pkNames":null,"isDdl":false,"type":"TIDB_WATERMARK","es":1,"ts":1,"sql":"",'
    b'"sqlType":null,"mysqlType":null,"data":null,"old":null,"_tidb":{"watermarkTs":400}}'
)


def records(*values: bytes) -> Memory:
    """A topic of one partition."""
    return Memory(
        [
            {"topic": "t", "partition": 0, "offset": offset, "timestamp": None, "key": None, "value": value}
            for offset, value in enumerate(values)
        ]
    )


def followed(world: World, monkeypatch: pytest.MonkeyPatch, kafka: Memory | ApplierError) -> World:
    """Let Kafka hold messages, or refuse; the jars are there."""

    @contextmanager
    def alone(*_: object) -> Iterator[Any]:
        if isinstance(kafka, ApplierError):
            raise kafka
        yield kafka

    monkeypatch.setattr(systems, "topics_alone", alone)
    monkeypatch.setattr(jars, "missing", lambda group: [])
    world.raw["source"] = {"kafka": {"topics": ["t"], "kafka.bootstrap.servers": "b:9092"}}
    return world


def answers(world: World) -> dict[str, SystemAnswer]:
    """What is told of each system."""
    return {item.checked: item for item in ask(world.config).answers}


@pytest.mark.parametrize(
    ("error", "verdict", "code"),
    [
        (SourceLost("Kafka at b:9092 has no topic t.", "check source.kafka.topics."), "does not fit", 1),
        (OutsideRefused("Kafka at b:9092 cannot be asked: Wrong password.", "check the log-in."), "does not fit", 1),
        (Unreachable("The address of Kafka does not resolve: no host b is known.", "check it."), "cannot tell", 2),
    ],
)
def test_what_kafka_refuses_is_told_beside_the_rest(
    error: ApplierError, verdict: str, code: int, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its way out, and with the exit code of the verdict."""
    found = ask(followed(world, monkeypatch, error).config)

    told = {item.checked: item for item in found.answers}
    assert told["Kafka"] == SystemAnswer("Kafka", told["Kafka"].verdict, error.what, error.hint)
    assert told["Kafka"].verdict == verdict
    assert {name: told[name].verdict for name in ("Java", "jars", "catalog", "storage")} == dict.fromkeys(
        ("Java", "jars", "catalog", "storage"), "fits"
    )
    assert "messages" not in told
    assert check(world.config, systems=found).exit_code == code


def test_without_java_kafka_is_not_known(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The row of Java has the way out; that of Kafka does not blame Kafka."""
    followed(world, monkeypatch, records(CANAL))
    monkeypatch.setattr(java_home.find, "__defaults__", ({"PATH": ""}, tmp := world.folder / "none"))

    told = answers(world)

    assert told["Java"].verdict == "does not fit"
    assert told["Java"].result.startswith(f"Spark needs Java 17 or 21, but JAVA_HOME, PATH and {tmp} have none; ")
    assert told["Kafka"].verdict == "cannot tell"
    assert told["Kafka"].result == "Kafka is asked by its client, which needs Java."


def test_messages_of_another_protocol_do_not_fit(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sentence says what they look like."""
    followed(world, monkeypatch, records(CANAL, CANAL))

    told = answers(world)["messages"]

    assert (told.verdict, told.way_out != "") == ("does not fit", True)
    assert told.result == "None of the 2 messages looked at is of protocol simple. They look like canal-json."


def test_an_option_that_is_seen_on_is_no_warning(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A resolved ts among the messages shows what Canal-JSON needs an option for."""
    followed(world, monkeypatch, records(CANAL))
    world.raw["changefeed"]["protocol"] = "canal-json"

    found = ask(world.config)

    assert "The watermark needs options of TiCDC" in check(world.config).warnings[0]
    assert check(world.config, systems=found).warnings == ()
    assert "1 message was looked at: protocol canal-json, with a resolved ts." in {
        item.result for item in found.answers
    }


def test_offsets_that_are_gone_are_told(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that the checkpoint needs next are lost; before a first run they concern older tables alone."""
    bounds = {TopicPartition("t", 0): OffsetRange(7, 8)}
    new = systems._offsets(world.config, bounds)
    reading = {TopicPartition("t", 0): Reading(3, 400)}
    last = Checkpoint(Lease(1, Holder("token", "host")), 1, 7, 1, partitions=reading)
    monkeypatch.setattr(ControlView, "checkpoint", lambda _: last)

    assert new.startswith("The first messages are gone from t/0: older tables need an export")
    with pytest.raises(SourceLost, match="Offsets 3 to 6 of t/0 are needed next"):
        systems._offsets(world.config, bounds)


def test_an_empty_topic_fits(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """TiCDC has written nothing yet."""
    followed(world, monkeypatch, records())
    monkeypatch.setattr(systems, "_topics", lambda *_: "")

    assert answers(world)["messages"] == SystemAnswer("messages", "fits", "The topics hold no message yet.")


def test_the_warehouse_is_left_as_it_was(world: World, tmp_path: Path) -> None:
    """The file that is written goes again, with the folders made for it; one that cannot be made does not fit."""
    world.raw["catalog"]["warehouse"] = f"{tmp_path}/a/b"
    told = answers(world)
    assert told["storage"].verdict == "fits"
    assert not (tmp_path / "a").exists()

    (tmp_path / "a").touch()
    told = answers(world)
    assert (told["storage"].verdict, told["catalog"].verdict) == ("does not fit", "fits")
    assert told["archive"].result == "The archive topic does not exist."


def test_a_folder_of_the_storage_sink_is_listed(world: World, tmp_path: Path) -> None:
    """What is there, and how far it is complete; or why it cannot be read."""
    world.raw["source"], world.raw["changefeed"]["protocol"] = {"storage": {"uri": str(tmp_path)}}, "canal-json"
    assert answers(world)["storage sink"].result == f"{tmp_path} has no file metadata."

    put_in(tmp_path)("metadata", b'{"checkpoint-ts": 470606913266253824}')
    put_in(tmp_path)("shop/a/1/CDC000001.json", b"{}")
    put_in(tmp_path)(*schema_file(("shop", "a"), 5, ""))
    expected = "1 file with rows in 1 folder, 1 schema file; checkpoint-ts 470606913266253824 ("
    assert answers(world)["storage sink"].result.startswith(expected)


def test_a_registry_that_does_not_answer_is_asked_once(world: World, server: FakeRegistry) -> None:
    """Its sentence is in the table and among the problems."""
    server.on("/subjects", Answer(503, {}))
    world.with_registry(server.url)

    found = ask(world.config)
    report = check(world.config, systems=found)

    told = {item.checked: item for item in found.answers}["registry"]
    assert told.verdict == "cannot tell"
    assert [problem for problem in report.problems if told.result in problem]


def test_an_export_that_is_not_there_does_not_fit(world: World, tmp_path: Path) -> None:
    """Otherwise `load` would find out."""
    world.raw["upstream"] = {"dump": f"{tmp_path}/none"}

    told = answers(world)["export"]

    assert (told.verdict, "No such file" in told.result) == ("does not fit", True)


def test_what_never_answers_is_named() -> None:
    """It is left alone after some seconds, and what came before it is told."""
    over, begun = threading.Event(), threading.Event()

    def wait() -> str:
        begun.set()
        over.wait()
        return "late"

    asking = Asking("Kafka", [("Kafka", lambda: "It answers."), ("messages", wait)])
    asking.start()
    begun.wait()
    told = [*systems._answers_of(asking, 20)]
    over.set()
    asking.join()

    assert [(item.checked, item.verdict) for item in told] == [("Kafka", "fits"), ("messages", "cannot tell")]
    assert told[1].result == "No answer came within 20 seconds."


def test_what_a_library_raises_is_told_by_its_kind() -> None:
    """Its text may hold a password."""

    def fail() -> str:
        msg = "hunter2"
        raise RuntimeError(msg)

    asking = Asking("storage", [("storage", fail)])
    asking.run()

    assert [*systems._answers_of(asking, 20)] == [
        SystemAnswer("storage", "cannot tell", "It could not be asked (RuntimeError).")
    ]


def test_a_catalog_that_is_not_that_of_its_warehouse_does_not_fit(tmp_path: Path) -> None:
    """A lake that was lost is no new one; a new one is named with its places."""
    world = World(tmp_path)

    told = answers(world)["catalog"].result
    assert told.startswith("Nothing is there: a run begins a new lake. This lake has no record of changefeed shop")
    assert f"It begins anew at {tmp_path}/catalog.db, in {tmp_path}/tables." in told
    (tmp_path / "tables/applier_shop/checkpoints").mkdir(parents=True)
    found = answers(world)["catalog"]

    assert (found.verdict, found.result.startswith("The catalog at ")) == ("does not fit", True)
    assert found.way_out.startswith("set catalog.uri to the catalog of this warehouse")
