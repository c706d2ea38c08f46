"""Asks every system that a changefeed needs, side by side and each for some seconds, without Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from applier.changefeed.message import TopicPartition
from applier.changefeed.ts import wall_clock
from applier.changefeed.window import OffsetRange
from applier.commands.before_spark import refuse_no_topic
from applier.commands.catalog_reader import catalog_properties, open_lake
from applier.commands.check.report import SystemAnswer, Verdict
from applier.commands.control_reader import ControlView, newest_checkpoint
from applier.commands.init.look import Findings, shown
from applier.config.login import Login
from applier.config.registry import RegistrySection
from applier.config.settings import Config
from applier.config.upstream import supplied_tables
from applier.consume.archive import files_of
from applier.consume.offsets import next_window
from applier.consume.source import Source
from applier.consume.spark import KafkaTopics, topics_alone
from applier.consume.storage.folder import StorageFolder
from applier.decode.dump.export import Export
from applier.decode.registry.registries import open_registry
from applier.decode.tidb.tidb_export import TidbExport
from applier.decode.values.dates import NAMELESS_HINT
from applier.errors import ApplierError, ConfigError, DecodeError, OutsideRefused, TransientError
from applier.pipeline.first_look import lost_catalog, new_lake
from applier.pipeline.tables.rerouted import RouteChanged, settled
from applier.runtime.figures import counted
from applier.runtime.jvm import jars, java_home
from applier.runtime.permanent_errors import DRIVER
from applier.runtime.threads import Asking, ask_all
from applier.sink.control.whereabouts import ForeignLake
from applier.sink.format.storage import is_local, try_out
from applier.wording import WAY_TO_THE_LAKE

SECONDS = 20.0
"""How long the answers of one system may take in all; all are asked at the same time."""

_ANSWER_SECONDS = 8.0
"""How long Kafka or the registry may take for one answer."""

_BY_HAND = "python -m applier.runtime.jvm.jars"

Parts: TypeAlias = Iterable[tuple[str, Callable[[], str]]]
"""What is checked of one system, one after the other: its name, and what finds it out and says it in a sentence."""


@dataclass(slots=True)
class Systems:
    """What the systems answered, and what the messages in Kafka are; nothing is known of these before they are read."""

    answers: tuple[SystemAnswer, ...] = ()
    findings: Findings = field(default_factory=Findings)

    def refuse(self, checked: str) -> None:
        """Raise what was in the way of a system, as TransientError; nothing where it answers, or was not asked."""
        for item in self.answers:
            if item.checked == checked and item.verdict != "fits":
                raise TransientError(item.result, item.way_out)


def ask(config: Config, seconds: float = SECONDS) -> Systems:
    """Ask all systems of a configuration. What fails, or takes longer, hides nothing else."""
    found = Systems()
    asked = [Asking(name, parts) for name, parts in _all(config, found)]
    ask_all(asked, seconds)
    return Systems(tuple(answer for system in asked for answer in _answers_of(system, seconds)), found.findings)


def _answers_of(system: Asking, seconds: float) -> Iterator[SystemAnswer]:
    """The answers so far; one that is not there yet is named."""
    is_late, error = system.is_alive(), system.error
    for checked, said in [*system.answers]:
        yield SystemAnswer(checked, "fits", said)
    if is_late:
        hint = "check its address and the network between; another try may find it less busy."
        yield SystemAnswer(system.at, "cannot tell", f"No answer came within {seconds:g} seconds.", hint)
    elif isinstance(error, ApplierError):
        verdict: Verdict = "cannot tell" if isinstance(error, TransientError) else "does not fit"
        yield SystemAnswer(system.at, verdict, error.what, error.hint)
    elif error is not None:
        yield SystemAnswer(system.at, "cannot tell", f"It could not be asked ({type(error).__name__}).")


def _all(config: Config, found: Systems) -> Iterator[tuple[str, Parts]]:
    yield "Java", _java(config)
    if config.source.archive:
        archive = Path(config.source.archive)
        yield "archive", [("archive", lambda: f"{counted(len(files_of(archive)), 'file')} in {archive}.")]
    elif config.source.storage:
        folder = StorageFolder(config.source.storage.uri, config.files_end)
        yield "storage sink", [("storage sink", lambda: _stored(folder))]
    else:
        yield "Kafka", _kafka(config, found)
    if (registry := config.registry) and config.changefeed.traits.carries.schema == "registry":
        yield "registry", [("registry", lambda: _registry(registry))]
    yield "catalog", [("catalog", lambda: _catalog(config))]
    if place := _warehouse(config):
        yield "storage", [("storage", lambda: _storage(config, place))]
    if config.upstream.dump or config.upstream.schemas:
        yield "export", [("export", lambda: _export(config))]
    if (login := config.upstream.login) is not None:
        yield "TiDB", [("TiDB", lambda: _tidb(config, login))]


def _java(config: Config) -> Parts:
    home = java_home.find()
    yield "Java", lambda: f"Java {java_home.release(home)} in {home}."
    absent = sum(len(jars.missing(group)) for group in jars.groups(config.catalog.properties))
    to_come = f"{counted(absent, 'file')} will be fetched into {jars.home()} at the first start."
    yield "jars", lambda: to_come if absent else f"All are in {jars.home()}."
    uri, given = config.catalog.properties.get("uri", ""), {"spark.jars", "spark.jars.packages"} & {*config.spark}
    if uri.startswith("jdbc:") and not uri.startswith(jars.DATABASES) and not given:
        what = f"catalog.uri is in {uri.split(':')[1]}, whose JDBC driver does not come along"
        raise OutsideRefused(f"{what}.", DRIVER)


def _stored(folder: StorageFolder) -> str:
    found = folder.look()
    files, ddl = (sum(map(len, places.values())) for places in (found.rows, found.schemas))
    rows = f"{counted(files, 'file')} with rows in {counted(len(found.rows), 'folder')}, {counted(ddl, 'schema file')}"
    return f"{rows}; checkpoint-ts {found.checkpoint_ts} ({wall_clock(found.checkpoint_ts):%F %T} UTC)."


def _kafka(config: Config, found: Systems) -> Parts:
    try:
        java_home.find()
    except ConfigError:
        what = "Kafka is asked by its client, which needs Java."
        raise TransientError(what, "see the row of Java.") from None
    if jars.missing("spark"):
        what = "Kafka is asked by its client, which is among the jars that are not here yet."
        raise TransientError(what, f"fetch them with `{_BY_HAND}`, or by a first start.")
    with topics_alone(config, _ANSWER_SECONDS) as topics:
        bounds = dict[TopicPartition, OffsetRange]()
        yield "Kafka", lambda: _topics(topics, config, bounds)
        yield "messages", lambda: _messages(topics, config, bounds, found)
        yield "offsets", lambda: _offsets(config, bounds)


def _topics(topics: KafkaTopics | Source, config: Config, bounds: dict[TopicPartition, OffsetRange]) -> str:
    bounds.update(topics.bounds())
    refuse_no_topic(config, bounds)
    names = sorted({place.topic for place in bounds})
    return f"It answers: {counted(len(bounds), 'partition')} of {counted(len(names), 'topic')} ({', '.join(names)})."


def _messages(
    topics: KafkaTopics | Source, config: Config, bounds: Mapping[TopicPartition, OffsetRange], found: Systems
) -> str:
    protocol = config.changefeed.protocol
    findings = shown(topics, bounds, config.registry, protocol)
    if not findings.messages:
        return "The topics hold no message yet."
    if protocol not in findings.protocols:
        like = f" They look like {' or '.join(findings.protocols)}." if findings.protocols else ""
        what = f"None of the {findings.messages} messages looked at is of protocol {protocol}.{like}"
        raise DecodeError(what, "check changefeed.protocol, the topics, and TiCDC's `protocol` of the sink.")
    found.findings = findings
    if findings.nameless and not config.changefeed.named_zone:
        tables = ", ".join(map(str, sorted(findings.nameless)))
        what = f"TiCDC does not name the time zone of TIMESTAMP values, which changefeed.timezone must name: {tables}."
        raise DecodeError(what, NAMELESS_HINT)
    mark = {True: ", with", False: ", without", None: ""}[findings.has_watermark]
    seen = counted(findings.messages, "message was", "messages were")
    return f"{seen} looked at: protocol {protocol}{mark and f'{mark} a resolved ts'}."


def _offsets(config: Config, bounds: Mapping[TopicPartition, OffsetRange]) -> str:
    with _read_by_python():
        newest = newest_checkpoint(config)
    if newest is not None:
        next_window({place: reading.next_offset for place, reading in newest.partitions.items()}, bounds, 1)
        return "Kafka has everything that the changefeed needs next."
    gone = sorted(str(place) for place, span in bounds.items() if span.start)
    if not gone:
        return "The topics are there from their first message on."
    return f"The first messages are gone from {', '.join(gone)}: older tables need an export (docs/initial-load.md)."


def _registry(section: RegistrySection) -> str:
    seconds = min(section.timeout_seconds, _ANSWER_SECONDS)
    client = open_registry(section.model_copy(update={"attempts": 1, "timeout_seconds": seconds}))
    return f"It answers: {counted(len(client.subjects()), 'subject')}."


def _catalog(config: Config) -> str:
    with _read_by_python(), open_lake(config.catalog) as lake:
        spaces, view = lake.namespaces(), ControlView(lake, config.changefeed.name)
        newest, lost_epoch = view.checkpoint(), view.lost_epoch()
        if newest is not None:
            settled(newest, config.route.identifier, lake.holds)
    if not spaces and (lost := lost_catalog(config)) is not None:
        raise lost
    there = f"It answers: {counted(spaces, 'namespace')}." if spaces else ""
    answers = there or "Nothing is there: a run begins a new lake."
    if newest is not None:
        return f"{answers} {counted(len(newest.tables or ()), 'table')} of the changefeed."
    if lost_epoch:
        return f"{answers} The checkpoints of the changefeed are lost."
    return f"{answers} {new_lake(config)} {WAY_TO_THE_LAKE.capitalize()}"


@contextmanager
def _read_by_python() -> Iterator[None]:
    """Leave open what Python's library cannot answer: `run` reaches the catalog by Java, and may do well without it."""
    try:
        yield
    except (ForeignLake, RouteChanged):
        raise
    except ConfigError as error:
        raise TransientError(str(error)) from error


def _warehouse(config: Config) -> str:
    """Where the tables lie; "" where the catalog knows that by a name, or by itself."""
    warehouse = config.catalog.properties.get("warehouse", "")
    return warehouse if "/" in warehouse or (warehouse and config.catalog.type in {"jdbc", "hadoop"}) else ""


def _storage(config: Config, place: str) -> str:
    try_out(place, {} if is_local(place) else catalog_properties(config.catalog))
    return f"A file was written below {place}, and removed."


def _export(config: Config) -> str:
    section = config.upstream
    if section.dump is None:
        declared = supplied_tables(section, config.tables.include)
        number = len(list(declared))
        return f"{counted(number, 'table is', 'tables are')} declared in {section.schemas}."
    found = Export.find(section.dump)
    return f"{counted(len(list(found.tables)), 'table')} in {section.dump}, of resolved ts {found.tso}."


def _tidb(config: Config, login: Login) -> str:
    found = TidbExport.find(login, None, config.filter.admits)
    return f"{counted(len(list(found.tables)), 'table')} at {login.address}, of which the changefeed may load rows."
