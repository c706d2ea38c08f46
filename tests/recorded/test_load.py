"""Loads of real Dumpling exports, the recorded feed after them: tables are TiDB's at every later resolved ts."""

from __future__ import annotations

import gzip
import json
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from _pytest.mark.structures import ParameterSet

from applier.changefeed.event import Event, Resolved, RowChange, SchemaChange
from applier.changefeed.message import TopicPartition
from applier.changefeed.table import TableName
from applier.commands.follower import Follower
from applier.commands.load.command import load
from applier.config import settings
from applier.decode.decoder import Decoder
from applier.decode.dump.csv_form import CsvForm
from applier.decode.dump.export import Export
from applier.decode.protocols import build
from applier.errors import IncompleteRow
from applier.pipeline.build import decoder_options
from applier.pipeline.load.loading import Loader, LoadStopped
from tests import recordings
from tests.recorded.test_protocols import FAMILIES, STOPPED, UNTOLD, advance, replaying, unexplained
from tests.replay import Replay, doubted, ends_at
from tests.unit.decode.dump.test_recorded_dumps import ODD

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FORMS = ("csv", "csv-gz", "csv-odd", "sql")

LOST = ("types.t_def:", "types.t_real:")
"""Tables that the exports show otherwise: DEFAULT CURRENT_TIMESTAMP of another run of the script, and FLOATs, of which
Dumpling writes six digits."""

OFTEN = {
    ("txns", "canal-json-ext", 20, True),
    ("partition", "debezium", 3, False),
    ("midstream", "simple-json-no-bootstrap", 0, True),
}
"""What `make test` runs; `make test-recorded` runs every variant."""


def dumps(scenario: str) -> list[int]:
    """The lines of `expected.jsonl` at which the database of a scenario was exported."""
    names = (recordings.GOLDEN / scenario).glob("dump-*-sql.tar.gz")
    return sorted(int(path.name.split("-")[1]) for path in names)


def cases() -> Iterator[ParameterSet]:
    """Scenario, protocol, variant, dump and form; the forms take turns."""
    number = 0
    for scenario in ("types", "pk", "txns", "ddl", "partition", "workload", "midstream"):
        for protocol, prefix in (("simple", "simple-"), *FAMILIES):
            for variant in recordings.variants(scenario, prefix):
                is_other = protocol == "debezium" and variant == "debezium-avro"
                if is_other or "handlekey" in variant or "plain" in variant:
                    continue
                for line in dumps(scenario):
                    number += 1
                    for cut in (False, True):
                        marks = () if (scenario, variant, line, cut) in OFTEN else pytest.mark.soak
                        yield pytest.param(scenario, protocol, variant, line, FORMS[number % 4], cut, marks=marks)


def exported(scenario: str, line: int, form: str, folder: Path) -> Path:
    """The folder of an export."""
    name = f"dump-{line}-{form}"
    with tarfile.open(recordings.GOLDEN / scenario / f"{name}.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    return folder / name


def cut_off(found: Replay, tso: int, decoder: Decoder, folder: Path) -> None:
    """Let the feed begin with the first message of each partition that is about what comes after the export."""
    starts: dict[TopicPartition, int] = {}
    for record in recordings.records(found.scenario, found.variant):
        times = [_time(event) for event in decoder.decode(record["key"], record["value"])]
        if any(time > tso for time in times):
            starts.setdefault(TopicPartition(record["topic"], record["partition"]), record["offset"])
    folder.mkdir()
    source = found.raw["source"]["archive"]
    with gzip.open(folder / "messages.jsonl.gz", "wt") as file, gzip.open(source, "rt") as records:
        for text in records:
            record = json.loads(text)
            place = TopicPartition(record["topic"], record["partition"])
            if record["offset"] >= starts.get(place, record["offset"] + 1):
                file.write(text)
    found.raw["source"]["archive"] = str(folder)


def _time(event: Event) -> int:
    match event:
        case Resolved(ts):
            return ts
        case RowChange() | SchemaChange():
            return event.commit_ts
    return 0


@contextmanager
def loading(case: tuple[str, str, str, int, str], lake: dict[str, str], folder: Path, name: str) -> Iterator[Replay]:
    """A replay of a variant whose configuration names an export of its database."""
    scenario, protocol, variant, line, form = case
    with replaying(scenario, protocol, variant, lake, folder) as found:
        found.raw["changefeed"] |= {"name": f"load-{line}-{name}-{scenario}-{variant}"}
        found.prefix = f"load{line}{name}_{found.prefix}".lower()
        found.raw["tables"]["route"] = f"{found.prefix}__{{database}}.{{table}}"
        odd = {"csv": ODD.model_dump(exclude_none=True)} if form == "csv-odd" else {}
        found.raw["upstream"] = {"dump": str(exported(scenario, line, form, folder)), **odd}
        left_out = [f"!{own.database}.{own.table}" for own in sorted(found.not_replicated())]
        found.raw["tables"]["include"] = [*found.raw["tables"].get("include", ["*.*"]), *left_out]
        yield found


def quiet(line: str) -> None:
    """What `load` says, to nobody."""
    del line


@pytest.mark.parametrize(("scenario", "protocol", "variant", "line", "form", "cut"), list(cases()))
def test_a_load_and_the_feed_after_it_are_the_database(
    scenario: str,
    protocol: str,
    variant: str,
    line: int,
    form: str,
    cut: bool,
    spark: SparkSession,
    lake: dict[str, str],
    tmp_path: Path,
) -> None:
    """Loaded at a resolved ts, with the feed as a whole or from there on, at every later one."""
    with loading((scenario, protocol, variant, line, form), lake, tmp_path, str(cut)) as found:
        config = settings.parse(found.raw)
        decoder, tso = build(protocol, decoder_options(config)), Export.find(found.raw["upstream"]["dump"]).tso
        later = [item for item in ends_at(scenario, variant, decoder) if item[0]["resolved_ts"] >= tso]
        if cut:
            cut_off(found, tso, decoder, tmp_path / "cut")
        done = load(settings.parse(found.raw), None, (), quiet)
        with found.running(spark) as pipeline:
            for state, ends in later:
                error = advance(pipeline, ends).error
                if error is not None:
                    assert (scenario, variant) in STOPPED
                    assert isinstance(error, IncompleteRow)
                    return
                untold = UNTOLD.get((scenario, variant), ())
                problems = [p for p in unexplained(found, state, protocol) if not p.startswith((*untold, *LOST))]
                assert problems == [], (state["resolved_ts"], tso)
            assert doubted(found, pipeline) == {}
            assert done.refused == ()


@pytest.mark.parametrize(
    ("scenario", "protocol", "variant"),
    [
        ("txns", "debezium", "debezium-plain"),
        pytest.param("pk", "canal-json", "canal-json", marks=pytest.mark.soak),
        pytest.param("types", "canal-json", "canal-json", marks=pytest.mark.soak),
    ],
)
def test_a_load_in_offset_order_is_the_database_at_the_end(
    scenario: str, protocol: str, variant: str, spark: SparkSession, lake: dict[str, str], tmp_path: Path
) -> None:
    """Rows of the export that the feed repeats change nothing; tables without a key are refused."""
    with loading((scenario, protocol, variant, dumps(scenario)[0], "csv"), lake, tmp_path, "offset") as found:
        found.raw["changefeed"] |= {"order": "offset"}
        done = load(settings.parse(found.raw), None, (), quiet)
        assert all("has no key:" in refused for refused in done.refused), done.refused
        keyless = {"keys.k_none", "keys.k_nulluk"} if scenario == "pk" else set()
        with found.running(spark) as pipeline:
            assert advance(pipeline, pipeline.ends()).error is None
            assert {str(name) for name in doubted(found, pipeline)} == keyless
        problems = unexplained(found, recordings.expected(scenario)[-1], protocol)
        assert [p for p in problems if not p.startswith((*LOST, *keyless))] == []


@pytest.mark.usefixtures("spark")
def test_keys_that_come_twice_are_refused(lake: dict[str, str], tmp_path: Path) -> None:
    """In two files of an export, as somebody who exports into a folder with files makes it; other tables go on."""
    with loading(("txns", "canal-json", "canal-json-ext", 20, "csv"), lake, tmp_path, "twice") as found:
        folder = Path(found.raw["upstream"]["dump"])
        (folder / "bank.accounts.000000001.csv").write_bytes((folder / "bank.accounts.000000000.csv").read_bytes())
        for again in (False, True):
            done = load(settings.parse(found.raw), None, (), quiet, again=again)
            assert done.what.startswith(("Loaded 4 tables", "Catching up: "))
            (sentence,) = done.refused
            assert sentence.startswith("Rows of table bank.accounts have one key (id) in files of the export.")
        assert found.contents(TableName("bank", "accounts")) is None


def test_a_load_that_is_stopped_goes_on_from_what_is_loaded(
    spark: SparkSession, lake: dict[str, str], tmp_path: Path
) -> None:
    """It begins no other file, and says so; what a table has stays."""
    with loading(("txns", "canal-json", "canal-json-ext", 20, "csv"), lake, tmp_path, "stop") as found:
        export = Export.find(found.raw["upstream"]["dump"])
        names = [name for name, _ in export.tables.items()]
        stop = threading.Event()
        with found.running(spark) as pipeline:
            once = Loader(pipeline.targets, export, CsvForm(), lambda *_: stop.set(), stop)
            with pytest.raises(LoadStopped, match=r"The load was stopped\. Hint: Give the command again"):
                once.all(names)
        told: list[str] = []
        done = load(settings.parse(found.raw), None, (), told.append)
        assert done.what.startswith("Loaded 5 tables: ")


def test_rows_that_were_read_in_another_form_do_not_count(
    spark: SparkSession, lake: dict[str, str], tmp_path: Path
) -> None:
    """A user who sees that an option is wrong stops the load, sets it, and gives the command again."""
    with loading(("txns", "canal-json", "canal-json-ext", 20, "csv"), lake, tmp_path, "form") as found:
        export, accounts = Export.find(found.raw["upstream"]["dump"]), TableName("bank", "accounts")
        found.raw["tables"]["include"] = [str(accounts)]
        with found.running(spark) as pipeline:
            wrong = CsvForm(zone="Asia/Shanghai")
            assert Loader(pipeline.targets, export, wrong, lambda *_: None, threading.Event()).all([accounts]) == {}
        assert load(settings.parse(found.raw), None, (), quiet).refused == ()
        state = next(line for line in recordings.expected("txns") if line["resolved_ts"] == export.tso)
        assert [p for p in unexplained(found, state, "canal-json") if p.startswith(str(accounts))] == []


@pytest.mark.soak
def test_a_loaded_table_lies_as_the_configuration_says(
    spark: SparkSession, lake: dict[str, str], tmp_path: Path
) -> None:
    """At the beginning, and when it is loaded again, for which its copy begins anew."""
    accounts = TableName("bank", "accounts")
    with loading(("txns", "canal-json", "canal-json-ext", 20, "sql"), lake, tmp_path, "lies") as found:
        found.raw["tables"]["bank.accounts"] = {"partition_by": ["bucket(3, id)"], "sort_by": ["owner"]}
        for again in (False, True):
            assert load(settings.parse(found.raw), None, (), quiet, again=again).refused == ()
            with found.running(spark) as pipeline:
                assert advance(pipeline, pipeline.ends()).error is None
                follower = Follower(pipeline)
                while follower.turn().resuming:
                    pass
                assert doubted(found, pipeline) == {}
            assert unexplained(found, recordings.expected("txns")[-1], "canal-json") == []
            table = found.catalog.load_table(found.identifier(accounts))
            assert [str(part.transform) for part in table.spec().fields] == ["bucket[3]"]
            assert {task.file.spec_id for task in table.scan().plan_files()} == {table.spec().spec_id}
        told: list[str] = []
        assert load(settings.parse(found.raw), None, (), told.append).what == "Nothing is left to load."
        assert told[-1].startswith(
            "These tables have the rows of this export already: audit.codes, audit.log, bank.accounts, "
        )
