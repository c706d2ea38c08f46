"""Files of TiCDC's storage sink as events."""

from __future__ import annotations

import json

import pytest

from applier.changefeed.event import Bootstrap, Resolved, RowChange, SchemaChange
from applier.changefeed.schema_key import SCHEMA_KEY
from applier.decode.options import DecoderOptions
from applier.decode.protocols import build
from applier.errors import BatchRefused, DecodeError
from tests.storage_sink import schema_file


def row(ts: int | None, name: str = "1") -> bytes:
    """A row as TiCDC writes it."""
    value = {
        "database": "shop",
        "table": "a",
        "pkNames": ["id"],
        "isDdl": False,
        "type": "INSERT",
        "es": 1,
        "ts": 2,
        "mysqlType": {"id": "int"},
        "data": [{"id": name}],
        "old": None,
    }
    return json.dumps(value if ts is None else {**value, "_tidb": {"commitTs": ts}}).encode()


def file(*lines: bytes) -> bytes:
    """Lines as TiCDC ends them."""
    return b"".join(line + b"\r\n" for line in lines)


def test_a_file_holds_its_rows_and_what_its_partition_is_complete_up_to() -> None:
    """More rows of its last commit may follow in the next file."""
    decoder = build("canal-json", DecoderOptions(is_stored=True))
    events = decoder.decode(None, file(row(5), row(7, "2")))
    assert [type(event) for event in events] == [Bootstrap, RowChange, RowChange, Resolved]
    assert [event.commit_ts for event in events if isinstance(event, RowChange)] == [5, 7]
    assert events[-1] == Resolved(6)
    assert decoder.decode(None, b"") == []


def test_a_file_that_is_not_in_order_shows_nothing() -> None:
    """Rows that it lacks may follow."""
    events = build("canal-json", DecoderOptions(is_stored=True)).decode(None, file(row(7), row(5)))
    assert not [event for event in events if isinstance(event, Resolved)]


@pytest.mark.parametrize(
    ("line", "reason"),
    [(row(None), "Line 2 holds a row without a commit ts"), (b'{"', "Line 2: The message is not Canal-JSON")],
)
def test_a_bad_line_is_named_and_hides_no_other(line: bytes, reason: str) -> None:
    """The rows beside it are read."""
    decoder = build("canal-json", DecoderOptions(is_stored=True))
    with pytest.raises(BatchRefused, match=reason) as refused:
        decoder.decode(None, file(row(5), line, row(7)))
    assert [type(event) for event in refused.value.events] == [Bootstrap, RowChange, DecodeError, RowChange]


def test_a_schema_file_is_a_ddl() -> None:
    """No earlier one of its table follows; one without a statement describes a table that existed before."""
    decoder = build("canal-json", DecoderOptions(is_stored=True))
    _, content = schema_file(("shop", "a"), 9, "ALTER TABLE a ADD x INT")
    expected = SchemaChange(9, "ALTER TABLE a ADD x INT", "shop", table="a")
    assert decoder.decode(SCHEMA_KEY, content) == (expected, Resolved(8))
    assert decoder.decode(SCHEMA_KEY, schema_file(("shop", "a"), 9, "")[1]) == ()
    with pytest.raises(DecodeError, match="is not a schema file of TiCDC's storage sink"):
        decoder.decode(SCHEMA_KEY, b"[]")
