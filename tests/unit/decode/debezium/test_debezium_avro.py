"""Debezium in Avro with schemas that TiCDC does not write, and with schema ids that mean something else."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, cast

import pytest

from applier.changefeed.event import Bootstrap, RowChange
from applier.changefeed.table import TableVersion
from applier.decode.debezium.avro_decoder import DebeziumAvroDecoder
from applier.decode.registry.client import RegistrySchema
from applier.errors import DecodeError, RegistryReplaced
from applier.sink.evolve.row_columns import is_of_rows, is_unordered
from tests.handmade import Change, Columns, Message
from tests.wires import ByHand, Registry, messages


class OneSchema:
    """A registry whose schemas are all the same."""

    def __init__(self, schema: Any) -> None:
        self.text = json.dumps(schema)

    def schema(self, schema_id: int) -> RegistrySchema:
        """The schema."""
        return RegistrySchema(self.text)


def record(*fields: dict[str, Any]) -> dict[str, Any]:
    """A record schema."""
    return {"type": "record", "name": "r", "fields": list(fields)}


SOURCE = {
    "name": "source",
    "type": {
        "type": "record",
        "name": "Source",
        "fields": [
            {"name": "db", "type": "string"},
            {"name": "table", "type": "string"},
            {"name": "commit_ts", "type": "long"},
        ],
    },
}
OP = {"name": "op", "type": "string"}


@pytest.mark.parametrize(
    ("schema", "body"),
    [
        ("int", b"\x02"),
        (record(OP), b"\x02c"),
        (record(SOURCE), b"\x02a\x02b\x02"),
        (record(SOURCE, {"name": "op", "type": "int"}), b"\x02a\x02b\x02\x02"),
        (record(SOURCE, OP), b"\x02a\x02b\x01\x02m"),
        (record(SOURCE, {"name": "ddl", "type": "int"}), b"\x02a\x02b\x02\x02"),
        (
            record(SOURCE, OP, {"name": "after", "type": {"type": "map", "values": "int"}}),
            b"\x02a\x02b\x02\x02c\x02\x02k\x02\x00",
        ),
    ],
)
def test_a_schema_of_another_writer_is_refused(schema: Any, body: bytes) -> None:
    """Records that lack source, op or rows, or hold them in other types, are not Debezium's."""
    with pytest.raises(DecodeError, match="is not one that TiCDC generates for protocol debezium-avro"):
        DebeziumAvroDecoder(OneSchema(schema)).decode(b"", b"\0\0\0\0\1" + body)


def row(registry: Registry, table: str, *columns: str) -> Message:
    """An insert, whose schemas get the next ids of the registry where they are new."""
    wire = cast("ByHand", messages("debezium-avro", registry)).wire
    wire.of = Columns("shop", "id")
    found: Message = wire.row(Change(table, columns, None, {"id": 1, **dict.fromkeys(columns, "x")}), 7)
    return found


def kept(registry: Registry, message: Message) -> TableVersion:
    """What the checkpoint holds of a row's version."""
    bootstrap = DebeziumAvroDecoder(registry).decode(*message)[0]
    assert isinstance(bootstrap, Bootstrap)
    return TableVersion.from_json(bootstrap.version.to_json())


@pytest.mark.parametrize(
    ("table", "columns", "changed"),
    [("u", ["v"], 2), ("t", ["w"], 2), ("t", [], 2), ("t", ["v", "w"], 2)],
    ids=["another table", "another column", "fewer columns", "more columns"],
)
def test_an_id_that_meant_another_schema_before_the_start_is_refused(
    table: str, columns: list[str], changed: int
) -> None:
    """The registry was rebuilt while no process ran: another table, or other columns, have the id of its rows."""
    registry, rebuilt = Registry(), Registry()
    version, message = kept(registry, row(registry, "t", "v")), row(rebuilt, table, *columns)
    decoder = DebeziumAvroDecoder(rebuilt)
    decoder.learn(version)

    with pytest.raises(RegistryReplaced) as refused:
        decoder.decode(*message)

    assert refused.value.what == (
        f"The schema registry gives another schema for id {changed} than when it was first read: now it is of "
        f"shop.{table}Envelope. It was rebuilt, or is another one, and no id shows what its messages mean."
    )
    assert "applier forget -c FILE" in refused.value.hint


def test_an_id_of_a_key_that_means_another_schema_is_refused_in_a_later_pass() -> None:
    """A layout of the pass before does not hide it: the key would be that of another table."""
    registry = Registry()
    message = row(registry, "t", "v")
    version, decoder = kept(registry, message), DebeziumAvroDecoder(registry)
    decoder.decode(*message)
    decoder.restart()
    decoder.learn(replace(version, proofs=((1, 42), version.proofs[1])))

    with pytest.raises(RegistryReplaced, match=r"for id 1 .* now it is of shop\.tKey, before of shop\.tKey"):
        decoder.decode(*message)


def test_a_version_of_an_older_checkpoint_is_kept_again_with_its_fingerprints() -> None:
    """It has none, and says nothing against any registry."""
    registry = Registry()
    message = row(registry, "t", "v")
    version = kept(registry, message)
    known, former = DebeziumAvroDecoder(registry), DebeziumAvroDecoder(registry)

    known.learn(version)
    assert [type(event) for event in known.decode(*message)] == [RowChange]
    former.learn(replace(version, proofs=()))
    assert [type(event) for event in former.decode(*message)] == [Bootstrap, RowChange]


def test_fingerprints_show_no_order_of_versions() -> None:
    """The number is a hash: a version whose ids are higher is not known to be newer."""
    registry = Registry()
    version = kept(registry, row(registry, "t", "v"))

    assert [number for number, _ in version.fingerprints] == [1, 2]
    assert is_unordered(version)
    assert is_of_rows(version)
