"""`applier check` of a feed whose schemas are in AWS Glue Schema Registry."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from applier.commands.check.command import check
from applier.commands.check.systems import Systems, ask
from tests.services.glue_registry import RegistryInGlue, glue_registry
from tests.unit.commands.check.world import World, column, record

pytestmark = pytest.mark.slow

ADD = "ALTER TABLE shop.orders ADD COLUMN note VARCHAR(9)"


@pytest.fixture(scope="module")
def glue() -> Iterator[RegistryInGlue]:
    """One registry; a test takes a topic of its own."""
    with glue_registry() as running:
        yield running


def _world(folder: Path, glue: RegistryInGlue, topic: str, level: str) -> World:
    world = World(folder)
    world.raw["changefeed"]["protocol"] = "avro"
    world.raw["registry"] = dict(glue.section)
    world.raw["source"] = {"kafka": {"topics": [topic], "kafka.bootstrap.servers": "127.0.0.1:1"}}
    fields = [column("id", "long", "BIGINT"), column("qty")]
    glue.register(f"{topic}-key", record(*fields[:1], extension=False))
    glue.register(f"{topic}-value", record(*fields), level)
    return world


@pytest.mark.parametrize(
    ("level", "outcome", "said"),
    [("NONE", "accepted", ""), ("FULL_ALL", "cannot tell", "only at the registration")],
)
def test_the_schema_after_a_ddl(tmp_path: Path, glue: RegistryInGlue, level: str, outcome: str, said: str) -> None:
    """TiCDC's own level takes it; at others Glue gives no verdict before, and the way out is a command."""
    topic = f"orders_{level.lower()}"
    world = _world(tmp_path, glue, topic, level)

    report = check(world.config, ddl=ADD, systems=Systems())

    (subject,) = [each for each in report.subjects if each.subject == f"{topic}-value"]
    assert subject.level == level.replace("_ALL", "_TRANSITIVE")
    assert len(str(subject.versions[0].schema_id)) == 36
    (answer,) = [each for each in report.changes[0].registry if each.subject == f"{topic}-value"]
    assert answer.outcome == outcome
    assert said in " ".join(answer.messages)
    assert ("aws glue update-schema" in " ".join(answer.ways_out)) == bool(said)


def test_the_row_of_the_registry(tmp_path: Path, glue: RegistryInGlue) -> None:
    """It shows how many schemas there are, or the right that lacks."""
    world = _world(tmp_path, glue, "rows", "NONE")

    (answers,) = [item for item in ask(world.config, 20).answers if item.checked == "registry"]
    glue.glue.refused["ListSchemas"] = "AccessDeniedException"
    (lacks,) = [item for item in ask(world.config, 20).answers if item.checked == "registry"]
    glue.glue.refused.clear()

    assert (answers.verdict, answers.result.partition(":")[0]) == ("fits", "It answers")
    assert lacks.verdict == "cannot tell"
    assert "glue:ListSchemas" in lacks.way_out
