"""Schemas that are derived from columns, against those that TiCDC registered for the same columns."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator

import pytest

from applier.changefeed.table import Column, ColumnType, TableName
from applier.commands.check.ticdc_avro import AvroForm, extension, key_schema, value_schema
from applier.ddl.parser import parse
from applier.ddl.schema_tracker import Tables
from applier.decode.avro.namesakes import sanitised
from applier.decode.avro.schema import record_schema
from applier.errors import IncompatibleSchema
from tests import recordings

NAME = TableName("shop", "t")
_DDL = re.compile(r"^(CREATE|ALTER|DROP|RENAME|TRUNCATE) .*?; --", re.IGNORECASE)

RECORDED = [
    (scenario, variant) for scenario in recordings.scenarios() for variant in recordings.variants(scenario, "avro")
]


def _statements(scenario: str) -> Iterator[str]:
    """DDL of a scenario as they were typed."""
    for line in recordings.script(scenario).splitlines():
        if _DDL.match(line):
            yield line.partition("; --")[0]


def _states(scenario: str) -> Iterator[Tables]:
    """All tables after each DDL."""
    tables = Tables()
    for number, statement in enumerate(_statements(scenario)):
        for action in parse(statement, ""):
            tables.apply(action, number)
        yield tables


@pytest.mark.parametrize(("scenario", "variant"), RECORDED)
def test_every_registered_schema_follows_from_the_ddl(scenario: str, variant: str) -> None:
    """For each text in the registry, key and value, some state that the DDL led to gives the very same text."""
    registered = recordings.registry(scenario, variant)
    values = [json.loads(entry["schema"]) for entry in registered if entry["subject"].endswith("-value")]
    form = AvroForm.of(reversed(values))
    derived: dict[tuple[str, str], set[str]] = defaultdict(set)
    for tables in _states(scenario):
        for name, version in tables.items():
            keys = [column for column in version.columns if column.name in version.key]
            texts = derived[sanitised(name.database), sanitised(name.table)]
            texts.add(key_schema(name, keys, form))
            try:
                texts.add(value_schema(name, version.columns, form))
            except IncompatibleSchema:
                assert name.table == "t_names_clash"

    for entry in registered:
        schema = json.loads(entry["schema"])
        assert entry["schema"] in derived[schema["namespace"].partition(".")[2], schema["name"]], entry["subject"]


@pytest.mark.parametrize(("scenario", "variant"), RECORDED)
def test_every_registered_schema_survives_reading_and_deriving(scenario: str, variant: str) -> None:
    """The columns that the decoder sees in a schema lead back to the same schema."""
    for entry in recordings.registry(scenario, variant):
        schema = json.loads(entry["schema"])
        found = record_schema(1, schema)

        derived = value_schema(found.name, found.columns, AvroForm.of([schema]))

        assert json.loads(derived) == schema


def test_two_columns_of_one_name_are_refused() -> None:
    """TiCDC cannot make a schema of `a-b` and `a.b`, and that is said before it tries."""
    columns = [Column("a-b", ColumnType("int")), Column("a.b", ColumnType("int"))]

    with pytest.raises(IncompatibleSchema, match=r"Columns a-b and a\.b both become a_b in Avro"):
        value_schema(NAME, columns, AvroForm())


@pytest.mark.parametrize(
    ("kind", "default", "written"),
    [
        (ColumnType("bigint", unsigned=True), "18446744073709551615", -1),
        (ColumnType("double"), "1.5", 1.5),
        (ColumnType("double"), "2", 2),
        (ColumnType("bit", length=10), "515", "AgM="),
        (ColumnType("varbinary"), "ab", "YWI="),
        (ColumnType("set", elements=("a", "b")), "a,b", "a,b"),
        (ColumnType("timestamp"), "CURRENT_TIMESTAMP", "CURRENT_TIMESTAMP"),
    ],
)
def test_a_default_is_written_as_its_values_are(kind: ColumnType, default: str, written: object) -> None:
    """Unsigned numbers wrap, bytes are base64, and everything else keeps its form."""
    column = Column("c", kind, nullable=False, default=default)

    (field,) = json.loads(value_schema(NAME, [column], AvroForm()))["fields"]

    assert field["default"] == written


def test_a_precise_decimal_never_has_a_default() -> None:
    """So NOT NULL DECIMAL breaks BACKWARD whatever DEFAULT it has; as text it keeps its default."""
    column = Column("c", ColumnType("decimal", length=6, scale=2), nullable=False, default="3.14")

    (precise,) = json.loads(value_schema(NAME, [column], AvroForm()))["fields"]
    (text,) = json.loads(value_schema(NAME, [column], AvroForm(text_decimals=True)))["fields"]

    assert "default" not in precise
    assert text["default"] == "3.14"


def test_members_are_escaped_as_ticdc_does() -> None:
    """A comma inside a member is escaped, a doubled quote is single, and HTML's characters are written as codes."""
    column = Column("c", ColumnType("enum", elements=("a,b", "it''s", "<&>")), nullable=False)

    text = value_schema(NAME, [column], AvroForm())

    assert r'"allowed":"a\\,b,it' + "'s,\\u003c\\u0026\\u003e" + '"' in text


def test_the_form_is_told_by_the_schemas_that_show_it() -> None:
    """A table without decimals takes the mode from the others, and the extension from its own newest schema."""
    plain = {
        "namespace": "ns.shop",
        "fields": [{"name": "id", "type": {"type": "int", "connect.parameters": {"tidb_type": "INT"}}}],
    }
    text = {
        "namespace": "ns.shop",
        "fields": [{"name": "d", "type": {"type": "string", "connect.parameters": {"tidb_type": "DECIMAL"}}}],
    }

    form = AvroForm.of([plain, text])

    assert form == AvroForm("ns", text_decimals=True)
    assert not extension(plain)


def test_a_kept_field_stays_as_registered() -> None:
    """Older versions of TiCDC write other defaults: a column that no DDL touches keeps its field to the letter."""
    kept = {"default": 0, "name": "c", "type": {"type": "int", "connect.parameters": {"tidb_type": "INT"}}}

    schema = value_schema(NAME, [Column("c", ColumnType("int"), nullable=False)], AvroForm(), {"c": kept})

    assert json.loads(schema)["fields"] == [kept]
