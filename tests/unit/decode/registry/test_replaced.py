"""A schema id means what it meant when it was read: a registry that was rebuilt is noticed, and never read past."""

from __future__ import annotations

import json
from typing import Any

import pytest

from applier.decode.registry.client import RegistrySchema
from applier.decode.registry.wire_format import SHARE, RegistryReader
from applier.errors import RegistryReplaced, SchemaUnknown, TransientError
from tests.unit.decode.avro_messages import ID, column, record

T, U = record(ID, name="t"), record(ID, name="u")


class Registry:
    """A registry whose answers take some seconds of its own clock, or fail."""

    def __init__(self, *schemas: Any, takes: float = 0.0) -> None:
        self.texts = {number: json.dumps(schema) for number, schema in enumerate(schemas, 1)}
        self.takes = takes
        self.now = 0.0
        self.asked: list[int] = []
        self.fails: Exception | None = None

    def schema(self, schema_id: int) -> RegistrySchema:
        """The schema of an id."""
        self.asked.append(schema_id)
        self.now += self.takes
        if self.fails is not None:
            raise self.fails
        return RegistrySchema(self.texts[schema_id])

    def reader(self) -> RegistryReader:
        """A reader by its clock."""
        return RegistryReader(self, lambda: self.now)


def test_an_id_that_means_another_schema_in_a_later_pass_is_refused_by_name() -> None:
    """The process goes on while the registry is rebuilt: rows of `u` have the id that `t` had."""
    registry = Registry(T)
    reader = registry.reader()
    reader.writer(1)
    reader.restart()
    registry.texts[1] = json.dumps(U)

    with pytest.raises(RegistryReplaced) as refused:
        reader.writer(1)

    assert refused.value.what == (
        "The schema registry gives another schema for id 1 than when it was first read: now it is of shop.u, before of "
        "shop.t. It was rebuilt, or is another one, and no id shows what its messages mean."
    )
    assert "applier forget -c FILE" in refused.value.hint


def test_an_id_that_meant_another_schema_before_the_start_is_refused() -> None:
    """The fingerprint was kept with the table versions."""
    registry = Registry(U)
    kept = Registry(T).reader().writer(1).fingerprint
    reader = registry.reader()
    reader.expect([(1, kept)])

    with pytest.raises(RegistryReplaced, match=r"now it is of shop\.u\. It was rebuilt"):
        reader.writer(1)


def test_the_same_schema_in_another_form_is_the_same() -> None:
    """Another product, or a restored one, may write it with other spaces, and its members in another order."""
    registry = Registry(T)
    reader = registry.reader()
    reader.writer(1)
    reader.restart()
    registry.texts[1] = json.dumps(dict(reversed(T.items())), indent=2)

    reader.writer(1)

    assert registry.asked == [1, 1]


@pytest.mark.parametrize("error", [TransientError("It is away."), SchemaUnknown("It is unknown.", schema_id=1)])
def test_a_registry_that_does_not_say_stops_no_row_of_a_known_id(error: Exception) -> None:
    """It is away, or was rebuilt and has fewer ids: what was read before is what the messages mean."""
    registry = Registry(T)
    reader = registry.reader()
    first = reader.writer(1)
    registry.fails = error
    reader.restart()

    assert reader.writer(1) is first


def test_a_change_of_columns_is_a_change() -> None:
    """Also where the table stays the same."""
    registry = Registry(T)
    reader = registry.reader()
    reader.writer(1)
    reader.restart()
    registry.texts[1] = json.dumps(record(ID, column("b", "INT", "int"), name="t"))

    with pytest.raises(RegistryReplaced):
        reader.writer(1)


def test_asking_again_takes_a_share_of_the_time_however_slow_the_registry_is() -> None:
    """Each id has its turn."""
    registry = Registry(*(record(ID, name=f"t{number}") for number in range(20)), takes=0.5)
    reader = registry.reader()
    for number in range(1, 21):
        reader.writer(number)
    begin = registry.now
    registry.asked.clear()
    for _ in range(1000):
        registry.now += 1.0
        reader.restart()
        for number in range(1, 21):
            reader.writer(number)

    assert len(registry.asked) * 0.5 <= SHARE * (registry.now - begin) + 20 * 0.5
    assert set(registry.asked) == set(range(1, 21))
