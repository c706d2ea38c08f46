"""Files of TiCDC's storage sink in CSV as events; they are written here by hand, or by Python's own csv module."""

from __future__ import annotations

import base64
import csv
import io
import random
from typing import Any

import pytest

from applier.changefeed.event import Bootstrap, Op, Resolved, RowChange, SchemaChange
from applier.changefeed.schema_key import SCHEMA_KEY
from applier.changefeed.table import ColumnType, TableName
from applier.decode.dump.csv_form import CsvForm
from applier.decode.options import DecoderOptions
from applier.decode.protocols import build
from applier.errors import BatchRefused, DecodeError
from tests.storage_sink import schema_file

PLAIN: tuple[dict[str, str], ...] = (
    {
        "ColumnName ": "id",
        "ColumnType": "INT",
        "ColumnPrecision": "11",
        "ColumnNullable": "false",
        "ColumnIsPk": "true",
    },
    {"ColumnName ": "name", "ColumnType": "VARCHAR", "ColumnPrecision": "20"},
)


def key(*columns: dict[str, str], table: str = "a") -> bytes:
    """A schema file as the key of a file."""
    return schema_file(("shop", table), 4, "", columns or PLAIN)[1]


def changes(value: bytes, *columns: dict[str, str], **options: Any) -> list[RowChange]:
    """The row changes of a file."""
    decoder = build("csv", DecoderOptions(is_stored=True, **options))
    return [event for event in decoder.decode(key(*columns), value) if isinstance(event, RowChange)]


def column(name: str, kind: str, **more: str) -> dict[str, str]:
    """A column as TiCDC's documentation writes it."""
    return {"ColumnName": name, "ColumnType": kind, **more}


def refusal(value: bytes, *columns: dict[str, str], **options: Any) -> str:
    """The sentence that refuses a file."""
    with pytest.raises(DecodeError) as refused:
        changes(value, *columns, **options)
    return f"{refused.value.what} {refused.value.hint}"


def test_a_file_holds_its_version_its_rows_and_what_its_folder_is_complete_up_to() -> None:
    """The example of TiCDC's documentation, with its line ends; both line ends are read."""
    file = b'"I","a","shop",433,1,"Bob"\r\n"U","a","shop",434,1,\\N\r\n"D","a","shop",434,1,"\\N"\n'
    decoder = build("csv", DecoderOptions(is_stored=True))
    first, *rows, last = decoder.decode(key(), file)
    assert isinstance(first, Bootstrap)
    assert first.version.key == ("id",)
    assert [one.type for one in first.version.columns] == [
        ColumnType("int", length=11),
        ColumnType("varchar", length=20),
    ]
    found = [(row.op, row.commit_ts, row.before, row.after) for row in rows if isinstance(row, RowChange)]
    assert found == [
        (Op.INSERT, 433, None, {"id": "1", "name": "Bob"}),
        (Op.UPDATE, 434, None, {"id": "1", "name": None}),
        (Op.DELETE, 434, {"id": "1", "name": "\\N"}, None),
    ]
    assert last == Resolved(433)
    assert not [event for event in decoder.decode(key(), file) if isinstance(event, Bootstrap)]
    assert decoder.decode(key(), b"") == []


def test_a_schema_file_is_a_ddl() -> None:
    """As with Canal-JSON."""
    _, content = schema_file(("shop", "a"), 9, "ALTER TABLE a ADD x INT", PLAIN)
    expected = SchemaChange(9, "ALTER TABLE a ADD x INT", "shop", table="a")
    assert build("csv", DecoderOptions(is_stored=True)).decode(SCHEMA_KEY, content) == (expected, Resolved(8))


def test_types_are_those_of_the_schema_file() -> None:
    """Hidden columns of indexes over expressions have no field."""
    columns = (
        column("n", "BIGINT UNSIGNED", ColumnPrecision="20", ColumnIsPk="true"),
        column("d", "DECIMAL", ColumnPrecision="10", ColumnScale="2"),
        column("t", "DATETIME", ColumnScale="3"),
        column("f", "FLOAT UNSIGNED", ColumnPrecision="12"),
        column("b", "VARBINARY", ColumnLength="9"),
        column("_V$_x_0", "INT", ColumnPrecision="11"),
        column("e", "ENUM"),
    )
    file = b'"I","a","shop",5,7,"1.50","2020-01-02 03:04:05.678",1e+06,"/wA=","x,y"\r\n'
    decoder = build("csv", DecoderOptions(is_stored=True))
    first, row, _ = decoder.decode(key(*columns), file)
    assert isinstance(first, Bootstrap)
    assert isinstance(row, RowChange)
    assert [one.type for one in first.version.columns] == [
        ColumnType("bigint", unsigned=True, length=20),
        ColumnType("decimal", length=10, scale=2),
        ColumnType("datetime", scale=3),
        ColumnType("float", unsigned=True, length=12),
        ColumnType("varbinary", length=9),
        ColumnType("enum"),
    ]
    date, labels = "2020-01-02 03:04:05.678", "x,y"
    assert row.after == {"n": "7", "d": "1.50", "t": date, "f": "1e+06", "b": b"\xff\0", "e": labels}


def test_old_values_make_one_update_of_two_lines() -> None:
    """An insert and a delete of their own stay what they are."""
    file = (
        b'"D","a","shop",5,true,1,"x"\r\n"I","a","shop",5,true,1,"y"\r\n'
        b'"D","a","shop",6,false,1,"y"\r\n"I","a","shop",6,false,2,"y"\r\n'
    )
    found = [(row.op, row.before, row.after) for row in changes(file, csv_old_values=True)]
    x, y, two = {"id": "1", "name": "x"}, {"id": "1", "name": "y"}, {"id": "2", "name": "y"}
    assert found == [(Op.UPDATE, x, y), (Op.DELETE, y, None), (Op.INSERT, None, two)]


@pytest.mark.parametrize(
    "file",
    [
        b'"D","a","shop",5,true,1,"x"\r\n',
        b'"I","a","shop",5,true,1,"x"\r\n',
        b'"D","a","shop",5,true,1,"x"\r\n"I","a","shop",6,true,1,"x"\r\n',
        b'"D","a","shop",5,true,1,"x"\r\n"I","a","shop",5,false,1,"x"\r\n',
    ],
)
def test_half_an_update_is_refused(file: bytes) -> None:
    """Its old row would stay, or its new one would be missing."""
    assert "old" in refusal(file, csv_old_values=True)


def test_an_update_without_old_values_needs_a_primary_key() -> None:
    """Which row of a bag it changes, nothing shows; the rows beside it are read."""
    columns = (column("id", "INT"),)
    with pytest.raises(BatchRefused, match=r"Row 2: It is an update of shop.a, which has no primary key") as refused:
        changes(b'"I","a","shop",5,1\r\n"U","a","shop",6,2\r\n"D","a","shop",7,1\r\n', *columns)
    assert [type(event) for event in refused.value.events] == [Bootstrap, RowChange, DecodeError, RowChange]
    assert refused.value.tables == (TableName("shop", "a"),)
    assert "Set output-old-value=true" in refused.value.hint


@pytest.mark.parametrize(
    ("file", "reason"),
    [
        (
            b'"I","a","shop",5,1,"x"\r\n"I","a","shop",5,1\r\n',
            "has it: Row 2: Expected 6 columns, got 5",
        ),
        (b'"I","a","shop",1,"x"\r\n', "include-commit-ts=true"),
        (b'"I","a","shop","5",1,"x"\r\n', "a number has a quote"),
        (b'"I","a","shop",true,1,"x"\r\n', "Row 1: The fourth field is no commit ts"),
        (b'"I","a","shop",0,1,"x"\r\n', "Row 1: The fourth field is no commit ts"),
        (b'"I","a","shop",5,true,1,"x"\r\n', "Expected 6 columns, got 7"),
        (b'"I","b","shop",5,1,"x"\r\n', "Row 1: It is not of shop.a"),
        (b'"X","a","shop",5,1,"x"\r\n', "Row 1: The first field is none of I, U and D"),
        (b"'I','a','shop',5,1,'x'\r\n", "a text without quote is not null"),
        (b'"I","a","shop",5,1,x\r\n', "a text without quote is not null"),
        (b'"I","a","shop",5,1,"x"y\r\n', "a value goes on behind its quote"),
        (b"ticdc-meta$operation,ticdc-meta$table,ticdc-meta$schema,ticdc-meta$commit-ts,id,name\r\n", "header=false"),
    ],
)
def test_a_file_in_another_form_is_refused(file: bytes, reason: str) -> None:
    """By its row, where one shows, with what to set."""
    assert reason in refusal(file)


def test_a_file_that_is_cut_is_refused() -> None:
    """Wherever that is within a row: half a number would be another number."""
    columns = column("id", "INT", ColumnIsPk="true"), column("n", "BIGINT")
    row = b'"I","a","shop",433,1,4567\r\n'
    for end in range(1, len(row) - 1):
        said = refusal(row + row[:end], *columns)
        assert "Its last row has no end, as if TiCDC had not written the file as a whole." in said
        assert "flush-concurrency=1 in [sink.cloud-storage-config]" in said
    assert [found.after for found in changes(row, *columns)] == [{"id": "1", "n": "4567"}]


def test_what_the_new_architecture_writes_without_quotes_is_refused() -> None:
    """A date, a decimal or JSON could not be distinguished from another value."""
    for kind, bare in (("DATE", b"2020-01-01"), ("DECIMAL", b"1.5"), ("JSON", b'{"a": 1}'), ("JSON", b"[1, 2]")):
        assert "let it write such tables with protocol=canal-json" in refusal(
            b'"I","a","shop",5,' + bare + b"\r\n", column("x", kind, ColumnPrecision="5", ColumnScale="1")
        )


def test_a_virtual_column_is_refused() -> None:
    """Rows lack it, and nothing shows which of the columns it is."""
    columns = (*PLAIN, column("v", "INT"))
    assert "tables with a virtual generated column" in refusal(b'"I","a","shop",5,1,"x"\r\n', *columns)


@pytest.mark.parametrize("key_", [None, b"", b"{", schema_file(("shop", ""), 4, "DROP DATABASE shop")[1]])
def test_rows_without_their_schema_file_are_refused(key_: bytes | None) -> None:
    """Nothing says what their fields are."""
    with pytest.raises(DecodeError, match="schema file"):
        build("csv", DecoderOptions(is_stored=True)).decode(key_, b'"I","a","shop",5,1,"x"\r\n')


def test_bytes_in_another_encoding_are_refused() -> None:
    """Hex is read with its key."""
    form = CsvForm(has_header=False, escapes=False, binary="hex")
    columns = (column("b", "BLOB"),)
    assert changes(b'"I","a","shop",5,"00fF"\r\n', *columns, csv=form)[0].after == {"b": b"\0\xff"}
    assert "Column b holds a value that is not hex" in refusal(b'"I","a","shop",5,"/wA="\r\n', *columns, csv=form)
    assert "Set binary_encoding_method" in refusal(b'"I","a","shop",5,"0f0"\r\n', *columns)


_ATOMS = ("", "\\N", '"', '""', ",", "\r", "\n", "\r\n", "\\", "'", "a", "é", "😀", "|@|", "I", "1", " ", "\t", "\x1f")


@pytest.mark.parametrize("seed", range(40))
def test_hostile_values_arrive_as_they_were(seed: int) -> None:
    """Python's csv module writes them as TiCDC does: quotes around each text, doubled within, and NULL without."""
    draw = random.Random(seed)
    delimiter, quote, null = draw.choice([(",", '"', "\\N"), (";", "'", "NULL"), ("\t", '"', ""), ("|@|", "`", "\\N")])
    rows = [
        [draw.choice([None, "".join(draw.choices(_ATOMS, k=draw.randrange(5)))]) for _ in range(2)]
        for _ in range(draw.randrange(1, 30))
    ]
    # The module writes one character between fields; a text holds no such one.
    one, out = delimiter if len(delimiter) == 1 else "\x02", io.StringIO()
    end = draw.choice(["\r\n", "\n"])
    writer = csv.writer(out, delimiter=one, quotechar=quote, quoting=csv.QUOTE_NONNUMERIC, lineterminator=end)
    for number, (text, data) in enumerate(rows):
        packed = None if data is None else base64.b64encode(data.encode()).decode()
        fields = ["\x03" if value is None else value for value in (text, packed)]
        writer.writerow(["I", "a", "shop", 5 + number, number, *fields])
    mark = f"{quote}\x03{quote}"
    file = out.getvalue().replace(mark, null).replace(one, delimiter).encode()
    columns = (column("id", "INT", ColumnIsPk="true"), column("text", "TEXT"), column("data", "BLOB"))
    form = CsvForm(delimiter.encode(), quote.encode(), null.encode(), has_header=False, escapes=False, binary="base64")
    found = [row.after for row in changes(file, *columns, csv=form)]
    expected = [
        {"id": str(number), "text": text, "data": None if data is None else data.encode()}
        for number, (text, data) in enumerate(rows)
    ]
    assert found == expected
