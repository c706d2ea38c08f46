"""`applier check` against a real registry: its verdicts, our reasons for them, and the example of the document."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
import requests
from rich.console import Console

from applier.commands.check.command import check
from applier.commands.check.compatibility import broken
from applier.commands.check.render import render
from applier.commands.check.report import RegistryAnswer
from applier.config.registry import RegistrySection
from applier.decode.registry.client import SchemaRegistry
from tests import recordings
from tests.services.registry import Registry, registry_server
from tests.unit.commands.check.world import World, column, nullable, record

pytestmark = pytest.mark.registry

DOCUMENT = Path(__file__).parents[2] / "docs" / "check.md"
LEVELS = ("NONE", "BACKWARD", "FORWARD", "FULL", "BACKWARD_TRANSITIVE", "FORWARD_TRANSITIVE", "FULL_TRANSITIVE")
ADD_NOT_NULL = "ALTER TABLE shop.orders ADD COLUMN qty INT NOT NULL"

ID = column("id", "long", "BIGINT")
NAME = nullable("name", "string", "TEXT")
STATE = column("state", "string", "TEXT") | {"default": "new"}
PRICE = nullable("price", "bytes", "DECIMAL", logicalType="decimal", precision=10, scale=2)
ICEBERG: dict[str, pa.DataType] = {
    "id": pa.int64(),
    "name": pa.string(),
    "state": pa.string(),
    "price": pa.decimal128(10, 2),
}


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    """A registry with nothing but the example in it: a check reports every subject."""
    with registry_server(tmp_path_factory.mktemp("own")) as running:
        running.register("shop_orders-key", record(ID, extension=False))
        running.register("shop_orders-value", record(ID, NAME, PRICE))
        running.register("shop_orders-value", record(ID, NAME, PRICE, STATE))
        yield running


@pytest.fixture
def orders(own: Registry, tmp_path: Path) -> World:
    """Table `shop.orders` on both sides, at level BACKWARD."""
    set_level(own, "shop_orders-value", "BACKWARD")
    world = World(tmp_path).with_registry(own.url)
    world.create(("shop", "orders"), ICEBERG, rows=2)
    return world


def set_level(registry: Registry, subject: str, level: str) -> None:
    """Set the compatibility level of a subject."""
    url = f"{registry.url}/config/{subject}"
    requests.put(url, json={"compatibility": level}, timeout=30).raise_for_status()


def answer_to(world: World, ddl: str) -> RegistryAnswer:
    """The registry's answer for the rows of the table."""
    (change,) = check(world.config, ddl=ddl).changes
    return next(answer for answer in change.registry if answer.subject.endswith("-value"))


@pytest.mark.parametrize(
    ("ddl", "refusing"),
    [
        ("ADD COLUMN qty INT", ""),
        ("ADD COLUMN qty INT DEFAULT 7", ""),
        ("ADD COLUMN qty INT NOT NULL DEFAULT 7", ""),
        ("ADD COLUMN qty INT NOT NULL", "B"),
        ("ADD COLUMN fee DECIMAL(6,2) NOT NULL DEFAULT 1", "B"),
        ("DROP COLUMN name", ""),
        ("DROP COLUMN state", ""),
        ("RENAME COLUMN name TO title", ""),
        ("MODIFY COLUMN name VARCHAR(99)", ""),
        ("MODIFY COLUMN name VARBINARY(99)", ""),
        ("MODIFY COLUMN price DECIMAL(12,4)", ""),
        ("MODIFY COLUMN name VARCHAR(99) NOT NULL", "B"),
        ("MODIFY COLUMN state VARCHAR(9) DEFAULT 'old'", "F"),
        ("MODIFY COLUMN id BIGINT UNSIGNED NOT NULL", ""),
        ("MODIFY COLUMN id INT NOT NULL", "B"),
        ("MODIFY COLUMN name INT", "BF"),
    ],
)
def test_the_registry_judges_as_expected_at_every_level(orders: World, own: Registry, ddl: str, refusing: str) -> None:
    """Each DDL is refused by the levels that look the way it breaks, and every refusal has a reason in words."""
    for level in LEVELS:
        set_level(own, "shop_orders-value", level)
        ways = {"N": "", "B": "B", "F": "F"}[level[0]] if level[:4] != "FULL" else "BF"

        answer = answer_to(orders, f"ALTER TABLE shop.orders {ddl}")

        assert (answer.outcome == "refused") == bool(set(ways) & set(refusing)), level
        assert bool(answer.rules) == (answer.outcome == "refused"), level


@pytest.mark.parametrize("scenario", ["ddl", "types"])
def test_our_reasons_agree_with_its_verdicts_on_recorded_schemas(registry: Registry, scenario: str) -> None:
    """For each step that TiCDC's schemas made, a reason is found exactly where the registry refuses the step."""
    client = SchemaRegistry(RegistrySection(url=registry.url))
    subjects: dict[str, list[str]] = {}
    for entry in recordings.registry(scenario, "avro-precise"):
        subjects.setdefault(entry["subject"], []).append(entry["schema"])
    for name, texts in subjects.items():
        for number, (old, new) in enumerate(pairwise(texts)):
            subject = f"steps_{scenario}_{number}_{name}"
            registry.register(subject, old)
            for level in ("BACKWARD", "FORWARD", "FULL"):
                set_level(registry, subject, level)
                reasons = broken(json.loads(old), json.loads(new), level)
                assert client.check(subject, new, 1).is_compatible == (not reasons), (subject, level)


def test_not_null_without_default_stops_ticdc(orders: World, own: Registry) -> None:
    """What check refuses, the registry refuses TiCDC, and a DEFAULT passes. Nothing is registered by asking."""
    bad = answer_to(orders, ADD_NOT_NULL)
    good = answer_to(orders, f"{ADD_NOT_NULL} DEFAULT 0")

    refused = requests.post(f"{own.url}/subjects/shop_orders-value/versions", json={"schema": bad.avro}, timeout=30)

    assert (bad.outcome, refused.status_code, good.outcome) == ("refused", 409, "accepted")
    assert SchemaRegistry(RegistrySection(url=own.url)).versions("shop_orders-value") == [1, 2]


def test_the_document_shows_a_real_run(orders: World) -> None:
    """The example in docs/check.md is what the command prints, letter by letter."""
    console = Console(width=110, file=io.StringIO(), record=True, color_system=None)

    render(check(orders.config, ddl=ADD_NOT_NULL), console)

    printed = "\n".join(line.rstrip() for line in console.export_text().strip().splitlines())
    example = re.search(r"```text\n(.*?)\n```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)
    assert example is not None
    assert example[1] == printed
