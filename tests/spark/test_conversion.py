"""Columns that get another type: the values that their rows have then, and what is written anew."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

import pytest

from applier.changefeed.table import Column
from applier.changefeed.table import ColumnType as T
from applier.ddl import actions as ddl
from applier.errors import SchemaChangeRefused
from applier.sink.evolve import rewrite
from applier.sink.evolve.rewrite import LiveRows, ValueSource
from applier.sink.iceberg.catalog import PartitionField
from applier.sink.iceberg.files import DataFile
from applier.sink.iceberg.table import Table
from tests.few import few
from tests.spark.feeds import sql_name
from tests.spark.upstream_table import ID, NAME, Upstream, version

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("format_version", few([3, 2]))
def test_values_follow_a_column_through_its_types(upstream: Upstream, format_version: int) -> None:
    """From int to varchar to bigint to int: TiDB rewrites the values and sends no rows; dead rows stay dead."""
    kinds = (T("int"), T("varchar", length=20), T("bigint"), T("int"))
    lossy = [Column("lossy", kind) for kind in kinds]
    upstream.create(lossy[0], Column("z", T("int")), format_version=format_version)
    upstream.write({"id": 1, "lossy": 12, "z": 1}, {"id": 2, "lossy": None, "z": 2}, {"id": 3, "lossy": 3, "z": 3})
    upstream.write({"id": 4, "lossy": -4, "z": 4}, delete=[3])
    before = upstream.head
    assert upstream.modify(lossy[0], lossy[1]).rewritten == 3
    assert upstream.column("lossy") == ["12", None, "-4"]
    upstream.write({"id": 5, "lossy": "42", "z": 5})
    assert upstream.modify(lossy[1], lossy[2]).rewritten == 4
    assert upstream.column("lossy") == [12, None, -4, 42]
    upstream.write({"id": 5, "lossy": -1, "z": 5}, {"id": 1, "lossy": 0, "z": 1})
    assert upstream.modify(lossy[2], lossy[3]).rewritten == 4
    assert upstream.column("lossy") == [0, None, -4, -1]
    assert upstream.column("z") == [1, 2, 4, 5]
    assert [row["lossy"] for row in upstream.rows_at(before or 0)] == [12, None, -4]
    upstream.write({"id": 2, "lossy": 2, "z": 2}, delete=[1])
    assert upstream.column("lossy") == [2, -4, -1]


def test_a_conversion_keeps_name_place_and_comment(upstream: Upstream) -> None:
    """The field is made anew, and looks the same from outside."""
    a, b = Column("a", T("int"), comment="first"), Column("b", T("int"))
    upstream.create(b)
    upstream.alter(version(ID, a, b), ddl.AddColumn(NAME, a, after="id"))
    upstream.write({"id": 1, "a": 1, "b": 2})
    after = version(ID, Column("x", T("text"), comment="first"), Column("b", T("text")))
    upstream.alter(after, ddl.ModifyColumn(NAME, "a", after.columns[1]), ddl.ModifyColumn(NAME, "b", after.columns[2]))
    assert upstream.rows() == [{"id": 1, "x": "1", "b": "2"}]
    assert '"doc":"first"' in upstream.table.schema_json


def test_a_conversion_that_changes_no_value_rewrites_nothing(upstream: Upstream) -> None:
    """The column is read, and only if a row gets another value, or the type a new field, all files are written."""
    a = Column("a", T("varchar", length=100))
    upstream.create(a, Column("n", T("bigint", unsigned=False)))
    upstream.write({"id": 1, "a": "abc", "n": 1}, {"id": 2, "a": "ab ", "n": 2})
    shorter, fixed = Column("a", T("varchar", length=3)), Column("a", T("char", length=3))
    assert upstream.modify(a, shorter).rewritten == 0
    assert upstream.modify(shorter, fixed).rewritten == 2
    assert upstream.column("a") == ["abc", "ab"]


def test_a_converted_key_still_identifies_rows(upstream: Upstream) -> None:
    """Identity and sort order follow the key to its new type, and the next batch finds the rows by it."""
    upstream.create(Column("v", T("int")))
    upstream.write({"id": 1, "v": 1}, {"id": 2, "v": 2})
    text = Column("id", T("varchar", length=20), nullable=False)
    upstream.modify(ID, text)
    table = upstream.table
    assert table.schema.identifier == ("id",)
    assert [part["source-id"] for part in table.file_layout.order["fields"]] == [table.schema.fields[0].id]
    upstream.write({"id": "2", "v": 20}, delete=["1"])
    assert upstream.rows() == [{"id": "2", "v": 20}]


def test_a_value_that_cannot_be_cast_changes_nothing(upstream: Upstream) -> None:
    """The statement is refused with column and reason, and the table is what it was; without rows it is applied."""
    a = Column("a", T("varchar", length=10))
    upstream.create(a)
    upstream.write({"id": 1, "a": "1"}, {"id": 2, "a": "secret"})
    before, schema = upstream.head, upstream.table.schema_json
    number = Column("a", T("int"))
    with pytest.raises(SchemaChangeRefused, match="column a: a value does not fit int in strict SQL mode") as caught:
        upstream.modify(a, number)
    assert "secret" not in str(caught.value)
    assert (upstream.head, upstream.table.schema_json) == (before, schema)
    upstream.write(delete=[1, 2])
    assert upstream.modify(a, number).rewritten == 0
    upstream.write({"id": 1, "a": 5})
    assert upstream.rows() == [{"id": 1, "a": 5}]


def test_what_is_not_known_is_refused_only_for_rows(upstream: Upstream) -> None:
    """A default of CURRENT_TIMESTAMP, and a conversion that is not made, matter to rows alone."""
    at = Column("at", T("datetime", scale=0), default="CURRENT_TIMESTAMP")
    upstream.create(Column("ts", T("timestamp", scale=0)))
    upstream.write({"id": 1, "ts": None})
    before = upstream.head
    with pytest.raises(SchemaChangeRefused, match="The value of the new column at in existing rows is not known"):
        upstream.add(at)
    with pytest.raises(SchemaChangeRefused, match="conversion from timestamp to datetime is not known"):
        upstream.modify(upstream.now.columns[1], Column("ts", T("datetime", scale=0)))
    assert upstream.head == before
    upstream.write(delete=[1])
    upstream.add(at)
    upstream.modify(upstream.now.columns[1], Column("ts", T("datetime", scale=0)))
    upstream.write({"id": 2, "ts": datetime(2020, 1, 1), "at": None})
    assert upstream.rows() == [{"id": 2, "ts": datetime(2020, 1, 1), "at": None}]


def test_partitions_outlive_a_conversion(upstream: Upstream) -> None:
    """Rows stay in their partitions, also where the column that partitions the table is converted."""
    v, region = Column("v", T("int")), Column("region", T("varchar", length=9))
    fields = [PartitionField("region"), PartitionField("id", "bucket[3]")]
    upstream.create(v, region, partition=fields)
    upstream.write(*({"id": number, "v": number, "region": "ab"[number % 2]} for number in range(9)))
    assert upstream.modify(v, Column("v", T("text"))).rewritten == 9
    assert upstream.column("v") == [str(number) for number in range(9)]
    frame = upstream.spark.table(sql_name(upstream.identifier)).where("region = 'b'")
    assert sorted(row.id for row in frame.collect()) == [1, 3, 5, 7]
    upstream.modify(region, Column("region", T("varbinary", length=9)))
    assert sorted(set(upstream.column("region"))) == [b"a", b"b"]


def test_a_table_is_rewritten_in_tasks_as_in_the_driver(upstream: Upstream, in_tasks: Callable[[], list[str]]) -> None:
    """The same rows in the same partitions, without those that a deletion vector has removed; or the same refusal."""
    v, region = Column("v", T("varchar", length=9)), Column("region", T("varchar", length=9))
    numbers, texts = Column("v", T("bigint")), Column("v", T("varchar", length=20))
    upstream.create(v, region, partition=[PartitionField("region")])
    for start in range(0, 60, 20):
        upstream.write(*({"id": n, "v": str(n), "region": "ab"[n % 2]} for n in range(start, start + 20)))
    upstream.write(delete=list(range(0, 60, 3)))
    assert upstream.modify(v, numbers).rewritten == 40
    here = upstream.rows()
    upstream.write({"id": 100, "v": 100, "region": "a"}, delete=[59])
    actions = in_tasks()
    assert upstream.modify(numbers, texts).rewritten == 40
    changed = [*here[:-1], {"id": 100, "v": 100, "region": "a"}]
    assert upstream.rows() == [{**row, "v": str(row["v"])} for row in changed]
    assert upstream.modify(texts, Column("v", T("varchar", length=3))).rewritten == 0
    upstream.write({"id": 100, "v": "odd", "region": "a"})
    before = upstream.head
    with pytest.raises(SchemaChangeRefused, match="column v: a value does not fit bigint in strict SQL mode"):
        upstream.modify(Column("v", T("varchar", length=3)), numbers)
    assert upstream.head == before
    rewrite = "write anew the rows of"
    assert actions == [rewrite, "look for values that change in", rewrite]


def test_a_large_table_is_rewritten_in_parts(upstream: Upstream, monkeypatch: pytest.MonkeyPatch) -> None:
    """No more than some rows are in memory at a time, whatever the size of the table."""
    monkeypatch.setattr(rewrite, "CHUNK_BYTES", 10_000)
    v = Column("v", T("int"))
    upstream.create(v)
    for start in range(0, 3000, 1000):
        upstream.write(*({"id": number, "v": number} for number in range(start, start + 1000)))
    upstream.write(delete=list(range(0, 3000, 2)))
    done = upstream.modify(v, Column("v", T("text")))
    assert done.rewritten == 1500
    assert len(upstream.table.scan(done.snapshot_id)) == 2
    assert sorted(row["id"] for row in upstream.rows()) == list(range(1, 3000, 2))


def test_rows_that_others_commit_meanwhile_are_cast_too(upstream: Upstream, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rewrite that was planned on an older head is made again on the new one."""
    v = Column("v", T("int"))
    upstream.create(v)
    upstream.write({"id": 1, "v": 1})
    original = rewrite.rewrite
    rivals = [upstream.spark.createDataFrame([(2, 2)], "id bigint, v int")]

    def rewritten(
        live: LiveRows, sources: Sequence[ValueSource], table: Table, show: Callable[[int], None]
    ) -> list[DataFile]:
        staged = original(live, sources, table, show)
        if rivals:
            rivals.pop().writeTo(sql_name(upstream.identifier)).append()
        return staged

    monkeypatch.setattr("applier.sink.evolve.apply.rewrite", rewritten)
    assert upstream.modify(v, Column("v", T("text"))).rewritten == 2
    assert upstream.rows() == [{"id": 1, "v": "1"}, {"id": 2, "v": "2"}]
