"""What of a changed configuration a running process takes up, and what becomes of the request."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

import pyarrow as pa
import pytest

from applier import wording
from applier.changefeed.checkpoint import Cut, RequestOutcome
from applier.changefeed.table import TableName
from applier.changefeed.types import TypeRules
from applier.commands import reload
from applier.commands import run as command
from applier.commands.follower import Follower
from applier.commands.reload import TAKEN_UP, read_again
from applier.commands.run import Reports, follow
from applier.config import settings
from applier.config.settings import Config
from applier.errors import ConfigError, TransientError
from applier.pipeline.requests import Requests
from applier.pipeline.step import Pipeline
from applier.pipeline.tables import layouts
from applier.sink.control.rows import TableRequest, open_requests, request_rows
from applier.sink.control.tables import REQUESTS
from applier.sink.control.whereabouts import ForeignLake
from applier.sink.format.layout import fitted

REQUEST = TableRequest("one", "reload", (), "", "me")
TEXT = """
[changefeed]
name = "shop"
protocol = "canal-json"
[source]
archive = "/nowhere"
[catalog]
name = "lake"
type = "jdbc"
uri = "jdbc:sqlite:/nowhere/catalog.db"
warehouse = "/nowhere"
"""

CHANGES = {
    "changefeed": ('protocol = "canal-json"', 'protocol = "open"'),
    "source": ('archive = "/nowhere"', 'archive = "/elsewhere"'),
    "registry": ("", '[registry]\nurl = "http://127.0.0.1:1"'),
    "catalog": ('warehouse = "/nowhere"', 'warehouse = "/elsewhere"'),
    "upstream": ("", '[upstream]\nurl = "mysql://root@127.0.0.1:4000"'),
    "tables": ("", '[tables]\ninclude = ["shop.*"]'),
    "ddl": ("", '[ddl]\ntruncate-table = "ignore"'),
    "sink": ("", "[sink]\nthreads = 3"),
    "maintenance": ("", "[maintenance]\nshare = 0.2"),
    "run": ("", "[run]\nfreshness_seconds = 5"),
    "http": ("", "[http]\nport = 1"),
    "webhook": ("", '[webhook]\nurl = "http://127.0.0.1:1"'),
    "traces": ("", '[traces]\nendpoint = "http://127.0.0.1:1"'),
    "spark": ("", '[spark]\n"spark.driver.memory" = "1g"'),
}
"""A change of each section."""


@pytest.fixture(autouse=True)
def no_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint with a cut of none."""
    monkeypatch.setattr("applier.pipeline.tables.completeness.kept", lambda *_: Cut())


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The file that the process has read."""
    path = tmp_path / "the feed.toml"
    path.write_text(TEXT, encoding="utf-8")
    return path


def changed(file: Path, *sections: str) -> None:
    """Change sections of the file."""
    text = TEXT
    for section in sections:
        old, new = CHANGES[section]
        text = text.replace(old, new) if old else f"{text}{new}\n"
    file.write_text(text, encoding="utf-8")


TARGETS = SimpleNamespace(maker=SimpleNamespace(rules=TypeRules()), listed=SimpleNamespace(broken={}))
"""The tables of a changefeed that has none."""


def read(
    config: Config, state: object = SimpleNamespace(tables={}, parked=(), unsettled=()), targets: object = TARGETS
) -> tuple[Config | None, RequestOutcome]:
    """What is made of the file, and of its layouts by a changefeed without tables."""
    return read_again(cast("Pipeline", SimpleNamespace(config=config, state=state, targets=targets)))


def requests(config: Config, read_again: Any = read_again) -> Requests:
    """The requests to a changefeed without tables."""
    checkpoint = SimpleNamespace(cut=Cut(), handled={}, resuming=None, moving=None)

    def keep(_cut: object, _resuming: object, handled: dict[str, Any]) -> None:
        checkpoint.handled = checkpoint.handled | handled

    tables = SimpleNamespace(completeness={}, tables={}, topics={}, parked=(), unsettled=())
    state = SimpleNamespace(**vars(tables), checkpoint=checkpoint, keep=keep, control=None)
    main = SimpleNamespace(state=state, targets=TARGETS, config=config)
    return Requests(cast("Pipeline", main), read_again=read_again)


@pytest.mark.parametrize("section", [name for name in Config.model_fields if name in TAKEN_UP])
def test_these_sections_are_taken_up(section: str, file: Path) -> None:
    """The process begins anew with them."""
    config = settings.load(file)
    changed(file, section)

    found, outcome = read(config)

    assert found == settings.load(file) != config
    assert found is not None
    assert found.path == config.path
    said = f"reloaded: Section [{section}] of {file} differs, and `applier run` begins anew."
    assert wording.outcome(outcome) == said


@pytest.mark.parametrize("section", [name for name in Config.model_fields if name not in TAKEN_UP])
def test_each_other_section_is_refused_by_name(section: str, file: Path) -> None:
    """Spark, the connections and the servers live as long as the process. What else differs is not taken up either."""
    config = settings.load(file)
    changed(file, section, "tables")

    with pytest.raises(ConfigError) as raised:
        read(config)

    what = f"Section [{section}] of {file} differs, which a running process does not take up"
    assert raised.value.problems == [f"{what}: restart `applier run`."]


def test_several_sections_are_named_together(file: Path) -> None:
    """One refusal is enough to correct the file."""
    config = settings.load(file)
    changed(file, "spark", "http")

    with pytest.raises(ConfigError, match=r"^Sections \[http\] and \[spark\] of .* differ, which"):
        read(config)


def test_a_file_that_is_the_same_begins_nothing_anew(file: Path) -> None:
    """Tables would wait for it."""
    found, outcome = read(settings.load(file))

    assert found is None
    assert wording.outcome(outcome) == f"reloaded: Nothing differs in {file}."


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("[run]\ninterval_seconds = 0", r"the feed.toml:\d+: run.interval_seconds"),
        ("[tables]\nreaders = ['polars-native']\nformat_version = 3", "polars"),
        ("[upstream]\nschemas = '/nowhere/at/all'", "/nowhere/at/all"),
        ("[tables", r"the feed.toml:\d+: not valid TOML"),
    ],
)
def test_what_a_start_refuses_is_refused_here_as_well(more: str, said: str, file: Path) -> None:
    """The process would end by it; so it goes on with what it has read."""
    config = settings.load(file)
    file.write_text(TEXT + more, encoding="utf-8")
    found = requests(config)

    outcome = found.carry_out(REQUEST)

    assert outcome.is_refused
    assert found.reloaded is None
    assert re.search(said, " ".join(outcome.notes)), outcome.notes


@pytest.mark.parametrize("key", ["partition_by", "sort_by"])
def test_a_new_layout_that_does_not_fit_a_table_is_refused_as_a_whole(
    key: str, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would take effect on no table; one that fits no longer since a RENAME COLUMN is no matter of the new file."""
    layout = f'[tables."shop.orders"]\n{key} = ["att"]\n'
    config, name = settings.load(file), TableName("shop", "orders")
    file.write_text(f"{TEXT}{layout}", encoding="utf-8")
    state = SimpleNamespace(tables={name: 1}, parked=(), unsettled=(), ways=config.ways_out)
    table = SimpleNamespace(table="the table")
    targets = SimpleNamespace(**vars(TARGETS), writer=lambda _: table)
    columns = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us"))])
    monkeypatch.setattr(layouts, "change_to", lambda _, layout: fitted("shop.orders", layout, columns))

    with pytest.raises(ConfigError) as raised:
        read(config, state, targets)

    verb = "sorted" if key == "sort_by" else "partitioned"
    assert raised.value.problems == [
        (
            f"Table shop.orders cannot be {verb} by att: it has no column att. "
            f'Correct {key} in [tables."shop.orders"], where columns are id, at; '
            f"`applier reload -c '{file}'` lets a running `applier run` read it."
        )
    ]
    config = settings.load(file)
    file.write_text(f"{TEXT}{layout}[run]\nfreshness_seconds = 5\n", encoding="utf-8")
    assert read(config, state, targets)[1].done == "reloaded"


def test_a_changed_route_of_a_table_that_exists_is_refused_as_a_whole(file: Path) -> None:
    """`run` would end by it, as a start does; tables to come may have another one."""
    config = settings.load(file)
    route = '\n[tables."shop.orders"]\nroute = "sales.{table}"\n'
    file.write_text(f"{TEXT}{route}", encoding="utf-8")
    state = SimpleNamespace(
        tables={TableName("shop", "orders"): None, TableName("shop", "items"): None}, parked=(), unsettled=()
    )

    with pytest.raises(ConfigError, match=r"^The route of shop.orders differs, and a table that exists stays where"):
        read(config, state)
    state.tables.clear()
    assert read(config, state)[0] is not None


def test_a_holder_that_ends_by_itself_takes_up_nothing(file: Path) -> None:
    """A `park` or a `load` that holds the changefeed for itself does not follow it."""
    config = settings.load(file)
    changed(file, "tables")
    found = requests(config, None)

    outcome = found.carry_out(REQUEST)

    what = "The process that holds the changefeed does not follow it, and ends soon"
    hint = f"`applier run -c {config.path}` reads the file when it starts."
    assert wording.outcome(outcome) == f"refused: {what}: {hint}"


def test_an_outcome_whose_answer_was_lost_is_taken_up_all_the_same(file: Path) -> None:
    """The checkpoint has it, so no other attempt would read the file."""
    config = settings.load(file)
    changed(file, "tables")
    found = requests(config)
    state = cast("Any", found.main.state)
    keep = state.keep

    def lost(*given: Any) -> None:
        keep(*given)
        raise TransientError("no answer")

    state.keep = lost
    with pytest.raises(TransientError):
        found.carry_out(REQUEST)

    assert found.carry_out(REQUEST).done == "reloaded"
    assert found.reloaded == settings.load(file)


def test_an_outcome_of_an_earlier_process_begins_nothing_anew(file: Path) -> None:
    """This one has read the file when it started."""
    config = settings.load(file)
    changed(file, "tables")
    earlier, found = requests(config), requests(settings.load(file))
    found.main.state.checkpoint = cast("Any", SimpleNamespace(handled={"one": earlier.carry_out(REQUEST)}))

    assert found.carry_out(REQUEST).done == "reloaded"
    assert found.reloaded is None


def test_requests_behind_a_reload_wait_for_the_new_configuration(file: Path) -> None:
    """They may name tables that only it admits."""
    config = settings.load(file)
    changed(file, "tables")
    found = requests(config)
    rows = [request_rows(REQUEST), request_rows(TableRequest("two", "resume", ("shop.a",), "", "me"))]
    control = SimpleNamespace(write=lambda _, outcome: rows.append(outcome))
    asked = SimpleNamespace(
        table=SimpleNamespace(refresh=lambda: None, snapshot_id=7), rows=lambda: pa.concat_tables(rows)
    )
    control.tables = {REQUESTS: asked}
    cast("Any", found.main.state).control = control

    found.take()

    assert [request.id for request in open_requests(pa.concat_tables(rows).to_pylist())] == ["two"]


def test_a_run_ends_by_what_refuses_its_new_beginning(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a start does, and once: a file that passes here may still ask for what the tables do not let be done."""
    config, begun = settings.load(file), list[tuple[Config, object]]()
    changed(file, "run", "tables")

    @contextmanager
    def assembled(found: Config, *, spark: object, **_: object) -> Iterator[Any]:
        begun.append((found, spark))
        if len(begun) > 1:
            assert spark is begun[0][1], "it is the same Spark"
            raise ConfigError(["Table shop.orders cannot be laid out so."])
        yield mock.MagicMock(config=found)

    def followed(follower: Follower, *_: object) -> Config | None:
        assert follower.requests.read_again is read_again
        return read(follower.pipeline.config)[0]

    monkeypatch.setattr(command, "assembled", assembled)
    monkeypatch.setattr(command, "follow", followed)
    for name in ("refuse_unloaded", "completeness", "layouts"):
        monkeypatch.setattr(command, name, mock.MagicMock())

    with pytest.raises(ConfigError, match="cannot be laid out so"):
        command.run(config, once=False, take_over=False, reports=Reports(lambda status: None))

    assert [found for found, _ in begun] == [config, settings.load(file)]


@pytest.mark.parametrize("is_stopped", [False, True])
def test_a_step_is_the_last_one_before_a_reload(is_stopped: bool, file: Path) -> None:
    """A stop request comes first."""
    config, stop = settings.load(file), threading.Event()
    follower = mock.MagicMock(requests=SimpleNamespace(reloaded=None))
    follower.pipeline.config = config

    def turn() -> Any:
        follower.requests.reloaded = config
        if is_stopped:
            stop.set()
        return mock.MagicMock(error=None, moved=True, status=SimpleNamespace(rows=1, seconds={}))

    follower.turn = turn

    assert follow(follower, stop, Reports(lambda status: None)) is (None if is_stopped else config)


def test_without_a_holder_there_is_nothing_to_ask(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No request is left for a run that reads the file anyway."""
    config = settings.load(file)
    monkeypatch.setattr(reload, "is_held", lambda config: False)
    monkeypatch.setattr(reload, "waited", lambda *_, **__: pytest.fail("it asks"))

    said = reload.reload(config, pytest.fail)

    what = f"No process holds changefeed shop of the catalog that {file} names"
    assert said == f"{what}: `applier run -c '{file}'` reads the file when it starts."


def test_a_file_that_leads_to_another_lake_is_refused_as_a_section_that_is_not_taken_up(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process cannot be asked there; the section comes first, then where the lake lies."""

    def is_held(_: Config) -> bool:
        raise ForeignLake(["Catalog lake names table x, which is not below catalog.warehouse."])

    monkeypatch.setattr(reload, "is_held", is_held)

    with pytest.raises(ForeignLake) as refused:
        reload.reload(settings.load(file), print)
    assert str(refused.value) == (
        f"Section [catalog] of {file} differs from that of the lake, which a running process does not take up: change "
        "it back. Catalog lake names table x, which is not below catalog.warehouse."
    )
