"""`applier check` where something does not answer: exit 2, one sentence, no credentials, and the rest is still told."""

from __future__ import annotations

import pyarrow as pa
import pytest
from rich.console import Console

from applier.commands.check import command
from applier.commands.check.command import check
from applier.commands.check.render import render
from applier.commands.check.report import Report
from tests.fake_registry import Answer, FakeRegistry
from tests.unit.commands.check.world import World, column, entry, hold, judge, record

SECRET = "hunter2"
ID = column("id", "long", "BIGINT")
ORDERS = [entry("shop-value", 1, record(ID))]


@pytest.fixture(autouse=True)
def _one_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses between attempts are tested with the client."""
    monkeypatch.setattr(command, "ATTEMPTS", 1)


def shown(report: Report) -> str:
    """Everything that a user sees, in both forms."""
    console = Console(width=200, record=True, quiet=False)
    with console.capture() as captured:
        render(report, console)
    return captured.get() + report.to_json()


def secretly(world: World, url: str) -> World:
    """Log in at a registry."""
    world.raw["registry"] = {"url": url, "username": "applier", "password": SECRET}
    world.raw["changefeed"]["protocol"] = "avro"
    return world


def test_a_registry_that_is_down_cannot_be_told(world: World, server: FakeRegistry) -> None:
    """The sentence names the address, and never the password."""
    server.on("/subjects", Answer(503, {"message": "starting"}))

    report = check(secretly(world, server.url).config)

    assert (report.exit_code, len(report.problems)) == (2, 1)
    assert f"could not be reached in 1 attempts: {server.url} answers 503" in report.problems[0]
    assert SECRET not in shown(report)


def test_a_refused_log_in_cannot_be_told(world: World, server: FakeRegistry) -> None:
    """401 comes with the way out."""
    server.on("/subjects", Answer(401, {"error_code": 40101, "message": "Unauthorized"}))

    report = check(secretly(world, server.url).config, ddl="ALTER TABLE shop.orders ADD COLUMN c INT")

    assert report.exit_code == 2
    assert "answers 401 (40101): Unauthorized. Hint: check user and password" in report.problems[0]
    assert SECRET not in shown(report)


def test_what_the_registry_does_not_judge_cannot_be_told(world: World, server: FakeRegistry) -> None:
    """Without a verdict on the schema there is none on the DDL; the table's answer is still given."""
    hold(server, ORDERS)
    world.create(("shop", "orders"), {"id": pa.int64()})
    server.on("/compatibility/subjects/shop-value/versions/1", Answer(500, {}))
    world.with_registry(server.url)

    unreachable = check(world.config, ddl="ALTER TABLE shop.orders ADD COLUMN c INT")
    server.on("/compatibility/subjects/shop-value/versions/1", Answer(422, {"message": "Invalid"}))
    refused = check(world.config, ddl="ALTER TABLE shop.orders ADD COLUMN c INT")

    assert (unreachable.exit_code, refused.exit_code) == (2, 2)
    assert "answers 500" in unreachable.changes[0].reasons[0]
    assert [answer.outcome for answer in refused.changes[0].registry] == ["cannot tell"]
    assert [answer.outcome for answer in refused.changes[0].tables] == ["in place"]


def test_a_catalog_that_is_down_leaves_the_registry_told(world: World, server: FakeRegistry) -> None:
    """Subjects are reported, tables are not, and neither file nor password of the catalog is shown."""
    hold(server, ORDERS)
    judge(server, "shop-value", {1: True})
    world.with_registry(server.url)
    world.raw["catalog"]["uri"] = f"jdbc:sqlite:{world.folder}/no.db"
    (world.folder / "no.db").write_bytes(b"not a database at all, but long enough to be looked at" * 10)
    world.raw["catalog"]["jdbc.password"] = SECRET

    report = check(world.config, ddl="ALTER TABLE shop.orders ADD COLUMN c INT")

    assert report.exit_code == 2
    assert report.problems[0].startswith("Cannot open catalog lake (DatabaseError).")
    assert [subject.verdict for subject in report.subjects] == ["fits"]
    assert [answer.outcome for answer in report.changes[0].registry] == ["accepted"]
    assert report.changes[0].verdict == "cannot tell"
    assert SECRET not in shown(report)


def test_a_catalog_that_python_cannot_read_is_named(world: World) -> None:
    """Types that PyIceberg does not know are for Spark alone."""
    world.raw["catalog"]["type"] = "hadoop"

    report = check(world.config)

    (problem,) = report.problems
    assert problem.startswith("catalog.type: hadoop can be read through Spark alone; without it: rest, hive, glue, ")


def test_a_misfit_outweighs_what_could_not_be_told(world: World, server: FakeRegistry) -> None:
    """What certainly breaks is exit 1, even if something else did not answer."""
    hold(server, [entry("shop-value", 1, "{broken")])
    world.raw["source"] = {"kafka": {"topics": ["shop"], "kafka.bootstrap.servers": "nowhere:1"}}
    world.raw["catalog"]["type"] = "hadoop"

    assert check(world.with_registry(server.url).config).exit_code == 1
