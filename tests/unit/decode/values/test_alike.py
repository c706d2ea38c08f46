"""Values of key columns that a protocol sends alike are refused; all that it sends apart pass."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from applier.changefeed.table import Column, ColumnType, Index, TableName, TableVersion
from applier.changefeed.types import TypeRules
from applier.decode.canal.decoder import CanalJsonDecoder
from applier.decode.debezium.avro_decoder import DebeziumAvroDecoder
from applier.decode.debezium.json_decoder import DebeziumDecoder
from applier.decode.decoder import WireForm
from applier.decode.open.decoder import OpenDecoder
from applier.decode.options import DecoderOptions
from applier.decode.simple.decoder import SimpleDecoder
from applier.decode.values.dates import ZONED, ZonedText
from applier.errors import ValueRefused
from applier.pipeline.scan.row_groups import Typing

NAME = TableName("shop", "t")
DEBEZIUM, DEBEZIUM_AVRO = DebeziumDecoder.wire, DebeziumAvroDecoder.wire
NEW_YORK = DecoderOptions(timezone="America/New_York")
TEXT = WireForm("latin1", "index")
AVRO = WireForm("bytes", "label")
DEFAULT, AS_TEXT = TypeRules(), TypeRules(zero_dates="string")
VOUCHED = TypeRules(distinct_keys=("shop.*", "!shop.u"))
TIMESTAMP, DATE, DATETIME = ColumnType("timestamp"), ColumnType("date"), ColumnType("datetime", scale=6)


def decimal(length: int, scale: int) -> ColumnType:
    """A decimal type."""
    return ColumnType("decimal", length=length, scale=scale)


def typed(
    values: Any, kind: ColumnType, wire: WireForm, rules: TypeRules = DEFAULT, *, key: bool = True, told: bool = True
) -> list[Any]:
    """A column in the table's type: part of the key or not, of a table that a DDL tells of or rows alone."""
    index = Index("PRIMARY", ("c",) if key else ("id",), unique=True, primary=True)
    columns = (Column("id", ColumnType("int"), nullable=False), Column("c", kind, nullable=False))
    version = TableVersion(NAME, 1, columns, (index,) if told else (), () if told else index.columns)
    table, _ = Typing(version, wire, rules).table(pa.table({"\0ts": [1] * len(values)}), {"c": values})
    found: list[Any] = table["c"].to_pylist()
    return found


REPEATED = "2024-11-03 01:30:00"
TWICE = (
    ([12345678901234567.89], decimal(20, 2), DEBEZIUM, DEFAULT, "the same for several decimals"),
    ([90071992547409921], decimal(17, 0), DEBEZIUM, DEFAULT, "the same for several decimals"),
    (pa.array([3.0, 1e17]), decimal(18, 0), DEBEZIUM, DEFAULT, "the same for several decimals"),
    ([1e20], decimal(65, 30), DEBEZIUM, DEFAULT, "the same for several decimals"),
    ([17532, 0], DATE, DEBEZIUM, DEFAULT, "sends zero dates as 1970-01-01"),
    ([0], DATE, DEBEZIUM_AVRO, DEFAULT, "sends zero dates as 1970-01-01"),
    (pa.array([0]), DATETIME, DEBEZIUM, DEFAULT, "sends zero dates as 1970-01-01"),
    ([REPEATED], TIMESTAMP, CanalJsonDecoder(NEW_YORK).wire, DEFAULT, "comes twice in the zone America/New_York"),
    ([REPEATED], TIMESTAMP, OpenDecoder(NEW_YORK).wire, DEFAULT, "comes twice in the zone America/New_York"),
    (pa.array(["2024-01-01 00:00:00", REPEATED]), TIMESTAMP, OpenDecoder(NEW_YORK).wire, DEFAULT, "comes twice"),
    ([REPEATED + ".500"], TIMESTAMP, CanalJsonDecoder(NEW_YORK).wire, AS_TEXT, "comes twice"),
    ([ZonedText("Europe/Berlin", "2024-10-27 02:00:00")], TIMESTAMP, TEXT, DEFAULT, "twice in the zone Europe/Berlin"),
    (
        pa.array([{"location": "Australia/Lord_Howe", "value": "2024-04-07 01:30:00"}], ZONED),
        *(TIMESTAMP, SimpleDecoder(DecoderOptions()).wire, DEFAULT, "twice in the zone Australia/Lord_Howe"),
    ),
    (["1989-09-17 01:30:00"], TIMESTAMP, WireForm("latin1", "index", zone="Asia/Shanghai"), DEFAULT, "comes twice"),
    (
        [ZonedText("Local", "1989-09-17 01:30:00")],
        *(TIMESTAMP, WireForm("base64", "index", zone="Asia/Shanghai"), DEFAULT, "twice in the zone Asia/Shanghai"),
    ),
)


@pytest.mark.parametrize(("values", "kind", "wire", "rules", "why"), TWICE)
def test_a_key_that_may_stand_for_two_is_refused(
    values: Any, kind: ColumnType, wire: WireForm, rules: TypeRules, why: str
) -> None:
    """The reason names what is lost, the hint both ways out; beside the key, or on the user's word, it passes."""
    with pytest.raises(ValueRefused) as refused:
        typed(values, kind, wire, rules)

    assert why in refused.value.what
    assert "it is part of the key" in refused.value.what
    assert "set distinct_keys = ['shop.t'] in [tables]" in (refused.value.hint or "")
    vouched = TypeRules(zero_dates=rules.zero_dates, distinct_keys=VOUCHED.distinct_keys)
    assert typed(values, kind, wire, vouched) == typed(values, kind, wire, rules, key=False)


@pytest.mark.parametrize("rules", [DEFAULT, VOUCHED, AS_TEXT])
@pytest.mark.parametrize(
    ("values", "kind", "wire"),
    [
        ([None], ColumnType("varchar"), CanalJsonDecoder(NEW_YORK).wire),
        (pa.array(["x", None]), ColumnType("varchar"), TEXT),
        ([b"", None], ColumnType("varbinary"), AVRO),
        ([None, 1], ColumnType("int"), DEBEZIUM),
        ([None], DATE, TEXT),
    ],
)
def test_a_key_that_is_null_is_refused(values: Any, kind: ColumnType, wire: WireForm, rules: TypeRules) -> None:
    """It is that of no row: a DELETE by it would leave its row there, also where the user knows all keys to differ."""
    with pytest.raises(ValueRefused, match="it is part of the key, and NULL, which no key is upstream") as refused:
        typed(values, kind, wire, rules)
    assert "Upgrade TiCDC" in refused.value.hint
    assert typed(values, kind, wire, rules, key=False)[values.index(None) if isinstance(values, list) else 1] is None


APART = (
    ([99999999999999, 0.5, -12345678901234.5], decimal(18, 1), DEBEZIUM),
    ([0.1, 99999999999.9999], decimal(15, 4), DEBEZIUM),
    (["12345678901234567.89"], decimal(20, 2), DEBEZIUM_AVRO),
    (["12345678901234567.89"], decimal(20, 2), TEXT),
    ([36525, 17532, 1, -1, -20000], DATE, DEBEZIUM),
    ([1709208000123456, 1], DATETIME, DEBEZIUM_AVRO),
    (["1970-01-01", "0018-01-01"], DATE, TEXT),
    (["2024-02-29T12:00:00Z", "1970-01-01T00:00:00Z"], TIMESTAMP, DEBEZIUM),
    ([1730612800000000], TIMESTAMP, CanalJsonDecoder(NEW_YORK).wire),
    (["2024-11-03 00:59:59", "2024-11-03 02:00:00", "2024-03-10 03:00:00"], TIMESTAMP, OpenDecoder(NEW_YORK).wire),
    (["2024-10-27 01:30:00"], TIMESTAMP, TEXT),
    (["2024-09-15 01:30:00"], TIMESTAMP, WireForm("latin1", "index", zone="Asia/Shanghai")),
    (["2024-10-27 01:30:00"], TIMESTAMP, WireForm("latin1", "index", zone="Etc/GMT-8")),
    (["0", "1"], ColumnType("enum", elements=("b", "a")), TEXT),
    ([-1], ColumnType("bigint", unsigned=True), AVRO),
    (["\xff\x00"], ColumnType("binary"), TEXT),
    ([5], ColumnType("bit", length=8), DEBEZIUM),
    ([-45296123456], ColumnType("time", scale=6), DEBEZIUM),
    ([0.1, 1e300], ColumnType("double"), DEBEZIUM),
    ([1999], ColumnType("year"), DEBEZIUM),
)


@pytest.mark.parametrize(("values", "kind", "wire"), APART)
def test_a_key_that_stands_for_one_value_passes(values: Any, kind: ColumnType, wire: WireForm) -> None:
    """Zones without repeated hours, short decimals and dates out of reach are not refused."""
    assert typed(values, kind, wire) == typed(values, kind, wire, key=False)


def test_a_double_that_rows_alone_describe_may_be_a_decimal() -> None:
    """TiCDC v8.5.0 to v8.5.7 sends Debezium without DDL, and a decimal there looks like a double."""
    with pytest.raises(ValueRefused, match="it may be a DECIMAL, which the protocol sends as a double"):
        typed([1.5, 12345678901234567], ColumnType("double"), DEBEZIUM, told=False)
    assert typed([1.5, -123456789012345], ColumnType("double"), DEBEZIUM, told=False) == [1.5, -123456789012345]
    assert typed([0.1 + 0.2], ColumnType("double"), DEBEZIUM) == [0.1 + 0.2]
    assert typed([0.1 + 0.2], ColumnType("double"), DEBEZIUM_AVRO, told=False) == [0.1 + 0.2]


@pytest.mark.parametrize("day", ["0000-00-00", "2024-00-10", "2023-02-30"])
def test_a_zero_date_in_a_key_is_refused_with_the_setting_that_keeps_it(day: str) -> None:
    """As NULL, all of them would be one key, also on the user's word; as text they are apart."""
    for rules in (DEFAULT, VOUCHED):
        with pytest.raises(ValueRefused) as refused:
            typed([day], DATE, TEXT, rules)
        assert "which a key holds as text alone (tables.zero_dates_of)" in refused.value.what
        hint = 'Set zero_dates_of = { "shop.t.c" = "string" } in [tables], and start `applier run -c FILE` again.'
        assert refused.value.hint == hint
    assert typed([day], DATE, TEXT, AS_TEXT) == [day]
    assert typed([day], DATE, TEXT, key=False) == [None]


def test_every_decoder_that_loses_something_says_so() -> None:
    """What `to_column` goes by is the wire form alone."""
    options = DecoderOptions()
    wires = [SimpleDecoder(options).wire, OpenDecoder(options).wire, CanalJsonDecoder(options).wire]
    assert not any(wire.moved_years or wire.double_decimals for wire in wires)
    assert DEBEZIUM.moved_years and DEBEZIUM.double_decimals  # noqa: PT018 - both are what the protocol loses
    assert DEBEZIUM_AVRO.moved_years
    assert not DEBEZIUM_AVRO.double_decimals
