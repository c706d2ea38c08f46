"""Every loss that `docs/protocols.md` names is real: for each there is a recorded feed that shows it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeAlias

import pytest

from applier.changefeed.event import Bootstrap, RowChange
from applier.changefeed.table import Column, TableName
from applier.changefeed.types import OPEN
from applier.config.protocols import PROTOCOLS
from applier.decode.debezium.rows import UNKNOWN_VERSION
from applier.decode.options import DecoderOptions
from applier.decode.protocols import build
from applier.decode.values.dates import ZonedText, is_nameless
from applier.errors import DecodeError, IncompleteRow
from tests import recordings
from tests.fuzz.corpus import protocol_of
from tests.losses import RULES
from tests.unit.decode.contract import Written, feed
from tests.unit.decode.storage.test_csv_decoder import changes, column, key, refusal
from tests.unit.decode.test_contract import Pair

pytestmark = pytest.mark.slow

Proof: TypeAlias = Callable[[Path], bool]
"""Takes a folder for claim-check files; True if a recorded feed shows the loss."""

K_NONE, K_UK = TableName("keys", "k_none"), TableName("keys", "k_uk")


def _of(variant: str, folder: Path, scenario: str = "types", zone: str = "") -> Written:
    return feed(scenario, variant, folder / variant, zone)


def _told(variant: str, place: str, folder: Path) -> Column:
    """A column, by `table.column` in the database `types`, as the messages of a variant tell it without any DDL."""
    table, column = place.split(".", 1)
    return _of(variant, folder).told[TableName("types", table), column]


def _cells(protocol: str, sentence: str) -> Proof:
    """Some cell differs from what it is upstream by the rule of a loss."""

    def is_seen(folder: Path) -> bool:
        rule = RULES[protocol][sentence]
        differences = Pair("types", protocol, folder).differences("rows")
        return any(column is not None and rule(column, one, other) for _, column, one, other in differences)

    return is_seen


def _members(variant: str) -> Proof:
    return lambda folder: _told(variant, "t_enum.c_enum", folder).type.elements == ()


def _precision(variant: str) -> Proof:
    return lambda folder: _told(variant, "t_dec.d_20_4", folder).type.length is None


def _digits(variant: str) -> Proof:
    return lambda folder: _told(variant, "t_time.c_time3", folder).type.scale is None


def _nameless(_folder: Path) -> bool:
    """The location of a recorded TIMESTAMP as those versions wrote it names a zone of the decoder's options alone."""
    recorded = (record["value"] for record in recordings.records("types", "simple-json"))
    message = next(value for value in recorded if b'"location":"UTC"' in value).replace(b'"UTC"', b'"Local"')
    for zone in ("", "Asia/Shanghai"):
        decoder = build("simple", DecoderOptions(nameless_zone=zone))
        (row,) = decoder.decode(None, message)
        assert isinstance(row, RowChange)
        stamps = [value for value in (row.after or {}).values() if isinstance(value, ZonedText)]
        if not stamps or not all(is_nameless(stamp.location) for stamp in stamps) or decoder.wire.zone != zone:
            return False
    return True


def _zone(variant: str) -> Proof:
    """Read as of another zone the same messages give other moments: nothing in them contradicts."""

    def is_seen(folder: Path) -> bool:
        there, here = (_of(variant, folder, zone=zone) for zone in ("UTC", "Etc/GMT-8"))
        moved = {
            (place[0], name)
            for place, rows in there.rows.items()
            for one, other in zip(rows, here.rows[place], strict=True)
            for name in one
            if one[name] != other[name]
        }
        return bool(moved) and all(there.told[place].type.name == "timestamp" for place in moved)

    return is_seen


def _bag_updates(folder: Path) -> bool:
    """The old rows of such updates, which other variants take away, are not named."""
    return K_NONE in {name for name, _ in Pair("pk", "open", folder).sides[1].gone} and any(
        place.startswith(str(K_NONE)) for place, *_ in Pair("pk", "open-no-old-value", folder).differences("gone")
    )


def _unsaid_unique_key(folder: Path) -> bool:
    return (_of("canal-json-ext", folder, "pk").keys[K_UK], _of("open", folder, "pk").keys[K_UK]) == ((), ("a", "b"))


def _replacement_characters(_folder: Path) -> bool:
    """U+FFFD is text like any other: nothing tells that it stood for something else."""
    place = '"id":0,"database":"d","table":"t","pkNames":null'
    text = f'{{{place},"type":"INSERT","mysqlType":{{"c":"varchar"}},"data":[{{"c":"a\ufffd"}}]}}'
    row = build("canal-json", DecoderOptions()).decode(None, text.encode())[-1]
    return isinstance(row, RowChange) and row.after == {"c": "a\ufffd"}


def _sanitised(folder: Path) -> bool:
    names = {name for table, name in _of("avro-plain", folder).told if table.table == "t_names"}
    taught = {name for table, name in _of("avro-precise", folder).columns if table.table == "t_names"}
    return "a_b" in names and "a-b" not in names and "a-b" in taught


def _virtual(folder: Path) -> bool:
    name = TableName("types", "t_gen")
    return all(
        ("g_virtual" in row) is is_there and row.get("g_virtual") is None
        for variant, is_there in (("avro-plain", True), ("avro-precise", False))
        for (table, _), rows in _of(variant, folder).rows.items()
        for row in rows
        if table == name
    )


def _unnamed_deletes(folder: Path) -> bool:
    plain, whole = _of("avro-precise", folder, "pk"), _of("avro-before-value", folder, "pk")
    is_refused = plain.refused and all("names no row" in what for what in plain.refused)
    return bool(is_refused) and not whole.refused and K_UK in {name for name, _ in whole.gone}


def _widths(folder: Path) -> bool:
    integers = {
        _told("avro-precise", f"t_int.c_{name}", folder).type.name for name in ("tiny", "small", "medium", "int")
    }
    return integers == {"int"} and _told("avro-precise", "t_text.c_varchar", folder).type.length is None


def _untold_signs(folder: Path) -> bool:
    columns = {place: _told("debezium-plain", place, folder).type for place in ("t_int.c_int_u", "t_bin.c_varbinary")}
    extended = {place: _told("debezium", place, folder).type for place in columns}
    is_lost = {kind.name for kind in columns.values()} == set(OPEN)
    return is_lost and extended["t_int.c_int_u"].unsigned and extended["t_bin.c_varbinary"].name == "varbinary"


def _wide_floats(folder: Path) -> bool:
    kinds = [_told(variant, "t_real.c_float_md", folder).type.name for variant in ("debezium-plain", "debezium")]
    return kinds == ["double", "float"]


def _waiting(_folder: Path) -> bool:
    """Without the DDL before them, rows refer to no version."""
    decoder = build("debezium", DecoderOptions())
    messages = (record for record in recordings.records("types", "debezium-noschema"))
    events = [event for m in messages for event in decoder.decode(m["key"], m["value"])]
    return {event.version for event in events if isinstance(event, RowChange)} == {UNKNOWN_VERSION}


def _unnamed_keys(_folder: Path) -> bool:
    """Rows as those versions wrote them: the same but for their Kafka key."""
    decoder, named = build("debezium", DecoderOptions()), DecoderOptions(keys={"types.t_int": ("id",)})
    value = next(record["value"] for record in recordings.records("types", "debezium") if b'"t_int"' in record["value"]
                 and b'"op":"c"' in record["value"])  # fmt: skip
    first = build("debezium", named).decode(b"", value)[0]
    try:
        decoder.decode(b"", value)
    except IncompleteRow as error:
        return "[tables.keys]" in error.hint and isinstance(first, Bootstrap) and first.version.key == ("id",)
    return False


def _nullable(folder: Path) -> bool:
    places = ("t_zero.id", "t_zero.nn_date")
    return [_told("debezium-avro", place, folder).nullable for place in places] == [False, True]


def _left_out(folder: Path) -> bool:
    virtual, keyless = TableName("types", "t_gen"), _of("debezium-avro", folder, "pk").rows
    return virtual in Pair("types", "debezium-avro", folder).absent and K_NONE not in {name for name, _ in keyless}


def _in_topics(_folder: Path) -> bool:
    """Without the schema file that the source puts beside it, no row can be read."""
    with pytest.raises(DecodeError, match="is not one of CSV with the schema file"):
        build("csv", DecoderOptions()).decode(None, b'"I","a","shop",5,1,"x"\r\n')
    return PROTOCOLS["csv"].only_in_files


def _keyless_file(_folder: Path) -> bool:
    first, *_ = build("csv", DecoderOptions()).decode(key(column("id", "INT")), b'"I","a","shop",5,1\r\n')
    return isinstance(first, Bootstrap) and first.version.key == ()


def _file_zone(_folder: Path) -> bool:
    """The text of the cell is the same, and is read in the zone of the options."""
    row = b'"I","a","shop",5,"2020-01-01 00:00:00"\r\n'
    stamp = changes(row, column("t", "TIMESTAMP"))[0].after
    return (
        stamp == {"t": "2020-01-01 00:00:00"} and build("csv", DecoderOptions("Asia/Tokyo")).wire.zone == "Asia/Tokyo"
    )


def _lacks(reason: str, file: bytes, *columns: Mapping[str, str]) -> Proof:
    return lambda _folder: reason in refusal(file, *map(dict, columns))


PROOFS: Mapping[str, Mapping[str, Proof]] = {
    "simple": {
        "TiCDC v7.5.2 to v7.5.7 does not name the zone of TIMESTAMP (its location is Local), "
        "which changefeed.timezone must name.": _nameless,
    },
    "open": {
        "Rows do not name the members of enums and sets: they come from the CREATE TABLE.": _members("open"),
        "Rows do not show the precision of decimals: it comes from the CREATE TABLE.": _precision("open"),
        "TIMESTAMP is in the zone of the TiCDC server, which changefeed.timezone must name.": _zone("open"),
        "With output-old-value off, an UPDATE of a table without any key looks like an INSERT.": _bag_updates,
    },
    "canal-json": {
        "Without content-compatible, rows do not name the members of enums and sets: "
        "they come from the CREATE TABLE.": _members("canal-json-ext"),
        "Without content-compatible, rows do not show the precision of decimals: it comes from the CREATE TABLE.": (
            _precision("canal-json-ext")
        ),
        "Rows of a table without a primary key do not name its unique key: it comes from the CREATE TABLE.": (
            _unsaid_unique_key
        ),
        "TIMESTAMP is in the zone of the TiCDC server, which changefeed.timezone must name.": _zone("canal-json-ext"),
        "Bytes that are not UTF-8 in a text column arrive as U+FFFD.": _replacement_characters,
    },
    "avro": {
        "Characters of names beyond letters, digits and _ become _, unless a DDL message shows the name.": _sanitised,
        "Virtual generated columns are present and NULL, unless a DDL message shows that they are virtual.": _virtual,
        "A table whose only key is a NOT NULL unique index has no Kafka key; it needs avro-include-before-value.": (
            _unnamed_deletes
        ),
        "Integers up to INT, and the lengths of strings, are not distinguished.": _widths,
    },
    "debezium": {
        **{sentence: _cells("debezium", sentence) for sentence in RULES["debezium"]},
        "FLOAT(M,D) arrives as DOUBLE without `enable-tidb-extension`.": _wide_floats,
        "Unsigned numbers and binary strings come from the CREATE TABLE, unless rows mark them: "
        "enable-tidb-extension, since TiCDC v8.5.4 (new architecture) and v9.0.": _untold_signs,
        "Rows do not show the fractional digits of TIME: they come from the CREATE TABLE.": _digits("debezium"),
        "With debezium-disable-schema, rows wait for the DDL message that describes their table.": _waiting,
        "TiCDC v8.0 to v8.4 writes no Kafka key: tables.keys must name the key columns of each table.": _unnamed_keys,
    },
    "debezium-avro": {
        **{sentence: _cells("debezium-avro", sentence) for sentence in RULES["debezium-avro"]},
        "NOT NULL is shown for key columns alone.": _nullable,
        "Rows do not show the fractional digits of TIME: they come from the CREATE TABLE.": _digits("debezium-avro"),
        "TiCDC refuses tables with a virtual generated column, and tables without a key.": _left_out,
    },
    "csv": {
        "Only the storage sink writes it: [source.storage].": _in_topics,
        "Rows of a table without a primary key do not name its unique key: it comes from the CREATE TABLE.": (
            _keyless_file
        ),
        "TIMESTAMP is in the zone of the TiCDC server, which changefeed.timezone must name.": _file_zone,
        "Rows of a table with a virtual generated column are refused: they do not show which column they lack.": (
            _lacks("Expected 6 columns, got 5", b'"I","a","shop",5,1\r\n', column("id", "INT"), column("v", "INT"))
        ),
        "Updates of a table without a primary key are refused without output-old-value.": (
            _lacks("has no primary key", b'"U","a","shop",5,1\r\n', column("id", "INT"))
        ),
        "TiCDC's new architecture writes decimals, dates, times, bits and JSON without quotes: such files are "
        "refused, and so is output-field-header.": (
            _lacks("a text without quote", b'"I","a","shop",5,2020-01-01\r\n', column("d", "DATE"))
        ),
    },
}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_each_loss_has_its_proof(protocol: str, tmp_path: Path) -> None:
    """What the decoder says that it loses is what recorded feeds show, no less and no more."""
    capabilities = PROTOCOLS[protocol].carries

    assert set(capabilities.losses) == set(PROOFS[protocol])
    assert [sentence for sentence, proof in PROOFS[protocol].items() if not proof(tmp_path)] == []


def _is_on(option: str, scenario: str, variant: str) -> bool:
    """Whether a capability that says `always`, or names options, holds in a recorded feed."""
    address = recordings.config(scenario, variant)["sink_uri"]
    words = option.partition(",")[0].partition(";")[0]
    return words == "always" or all(f"{word}=true" in address for word in words.split(" and "))


@pytest.mark.parametrize("variant", recordings.variants("types"))
def test_a_feed_carries_what_its_options_say(variant: str, tmp_path: Path) -> None:
    """Watermarks, DDL and commit ts come exactly where the table of capabilities says so for the feed's options."""
    protocol = protocol_of(variant)
    says = PROTOCOLS[protocol].carries
    found = feed("types", variant, tmp_path)

    assert found.has_resolved is _is_on(says.resolved_ts, "types", variant)
    assert found.has_ddl is _is_on(says.ddl, "types", variant)
    assert {ts > 0 for _, ts in found.rows} == {_is_on(says.commit_ts, "types", variant)}
    assert says.exact_decimals is not any("Decimals pass through a double" in loss for loss in says.losses)
