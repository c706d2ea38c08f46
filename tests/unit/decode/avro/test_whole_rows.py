"""Rows that hold the key columns alone: TiCDC v26.3.4 with `avro-enable-watermark` writes them behind a first DELETE.

It registers the key columns and the extension fields as the schema of the table, a record with `_tidb_op` d, and
writes the INSERT and UPDATE messages that follow in that schema.
"""

from __future__ import annotations

import pytest

from applier.changefeed.event import Bootstrap, Op, RowChange
from applier.changefeed.table import Column, ColumnType, Index, TableName, TableVersion
from applier.decode.avro.decoder import AvroDecoder
from applier.decode.avro.namesakes import Shown
from applier.errors import IncompleteRow
from tests.unit.decode.avro_messages import EXTENSION, ID, TS, Schemas, column, record

NOTE = column("note", "TEXT", "string", null="first", default=None)
SHOP = TableName("shop", "t")


def _schemas(*values: str) -> Schemas:
    """Schemas of a table, and those of its values that the subject holds."""
    schemas = Schemas(
        key=record(ID),
        alone=record(ID, *EXTENSION),
        whole=record(ID, NOTE, *EXTENSION),
        other=record(ID, NOTE, *EXTENSION, name="u"),
    )
    schemas.subjects["shop_t-value"] = list(values)
    return schemas


def _described(*names: str, generated: str | None = None) -> TableVersion:
    """A version that a DDL describes."""
    columns = (
        Column("id", ColumnType("bigint"), nullable=False),
        *(Column(name, ColumnType("text"), generated=generated) for name in names),
    )
    return TableVersion(SHOP, 7, columns, (Index("PRIMARY", ("id",), unique=True, primary=True),))


def _row(schemas: Schemas, letter: str) -> tuple[bytes, bytes]:
    extension = {"_tidb_op": letter, "_tidb_commit_ts": TS, "_tidb_commit_physical_time": TS >> 18}
    return schemas.message("key", id=1), schemas.message("alone", id=1, **extension)


@pytest.mark.parametrize("letter", ["c", "u"])
def test_a_row_of_key_columns_alone_is_refused_where_the_ddl_declares_more(letter: str) -> None:
    """Its other columns are not NULL upstream; nothing shows what they hold."""
    schemas = _schemas("alone")
    decoder = AvroDecoder(schemas, subjects=schemas)
    decoder.learn(_described("note", "more"))

    with pytest.raises(IncompleteRow) as refusal:
        decoder.decode(*_row(schemas, letter))

    assert refusal.value.what == (
        "A row of table shop.t holds its key columns alone, but its DDL declares columns more, note: TiCDC v26.3.4 "
        "writes such rows behind a DELETE that it wrote first."
    )
    assert "resume it with --overwrite-checkpoint-ts" in refusal.value.hint
    assert refusal.value.tables == (TableName("shop", "t"),)


@pytest.mark.parametrize("values", [("whole", "alone"), ("alone", "whole")])
def test_a_row_of_key_columns_alone_is_refused_where_its_subject_knows_more(values: tuple[str, ...]) -> None:
    """Without DDL, an older or newer schema of the same table in the registry shows what the row lacks."""
    schemas = _schemas(*values)

    with pytest.raises(IncompleteRow, match="another version of its subject in the schema registry has column note:"):
        AvroDecoder(schemas, subjects=schemas).decode(*_row(schemas, "c"))


def test_a_table_that_gets_its_first_column_later_has_whole_rows_before_where_no_watermark_is_sent() -> None:
    """TiCDC writes rows without their columns only with `avro-enable-watermark`."""
    schemas = _schemas("alone", "whole")
    decoder = AvroDecoder(schemas, subjects=schemas)
    decoder.describe(Shown(has_watermarks=False), {}, {})

    bootstrap, change = decoder.decode(*_row(schemas, "c"))

    assert isinstance(bootstrap, Bootstrap)
    assert not bootstrap.version.keys_only
    assert isinstance(change, RowChange)
    assert change.after == {"id": 1}


@pytest.mark.parametrize("is_described", [True, False])
def test_a_delete_of_key_columns_alone_is_taken(is_described: bool) -> None:
    """It names its row, and does not say what the table looks like."""
    schemas = _schemas("alone", "whole")
    decoder = AvroDecoder(schemas, subjects=schemas)
    if is_described:
        decoder.learn(_described("note"))

    bootstrap, change = decoder.decode(*_row(schemas, "d"))

    assert isinstance(bootstrap, Bootstrap)
    assert bootstrap.version.keys_only
    assert isinstance(change, RowChange)
    assert (change.op, change.commit_ts, change.before, change.after) == (Op.DELETE, TS, {"id": 1}, None)


def test_rows_behind_a_delete_of_key_columns_are_never_read_many_at_a_time() -> None:
    """The quick way would take them for whole, once the delete made their schema known."""
    schemas = _schemas("alone", "whole")
    decoder = AvroDecoder(schemas, subjects=schemas)
    decoder.decode(*_row(schemas, "d"))
    rows = [_row(schemas, "c")] * 50

    blocks, rest = decoder.bulk.read([key for key, _ in rows], [value for _, value in rows])

    assert blocks == []
    assert list(rest) == list(range(50))


@pytest.mark.parametrize("described", [(), ("virtual",), None])
def test_a_table_of_key_columns_alone_has_whole_rows(described: tuple[str, ...] | None) -> None:
    """Its DDL declares no more, save virtual columns; without DDL its subject has no more, save another table's."""
    schemas = _schemas("alone", "other")
    decoder = AvroDecoder(schemas, subjects=schemas)
    if described is not None:
        decoder.learn(_described(*described, generated="virtual"))

    _, change = decoder.decode(*_row(schemas, "c"))

    assert isinstance(change, RowChange)
    assert change.after == {"id": 1}
