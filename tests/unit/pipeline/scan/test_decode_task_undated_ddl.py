"""A DDL without a commit ts, in a feed that is applied in the order of commit ts."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from applier.changefeed.message import MESSAGE_SCHEMA
from applier.changefeed.types import TypeRules
from applier.decode.options import DecoderOptions
from applier.pipeline.scan.decode_task import DecodeTask
from applier.pipeline.scan.task_result import TaskResult

DDL = {"id": 0, "database": "d", "table": "t", "pkNames": None, "isDdl": True, "type": "ERASE", "sql": "DROP TABLE d.t"}


def _pass(upto: int, *, ordered: bool) -> TaskResult:
    place = {"topic": "t", "partition": 0, "offset": 0, "timestamp": None, "key": None}
    row = {**place, "value": json.dumps(DDL | {"es": 9}).encode()}
    batch = pa.RecordBatch.from_pylist([row], schema=MESSAGE_SCHEMA)
    options = DecoderOptions(by_offset=not ordered)
    job = DecodeTask(
        "canal-json", options, TypeRules(), ("*.*",), (), applied=0, applied_of={}, upto=upto, ordered=ordered
    )
    return job([batch])


def test_a_ddl_without_a_commit_ts_is_refused() -> None:
    """It would pass for one that was applied long ago, and the table would be there for ever."""
    found = _pass(5, ordered=True)

    assert [str(bad.error) for bad in found.bad] != []
    assert "A DDL has no commit ts" in str(found.bad[0].error)
    assert found.barriers == []


@pytest.mark.parametrize(("upto", "ordered"), [(-1, True), (5, False)])
def test_a_ddl_without_a_commit_ts_is_reported_where_no_watermark_or_no_order_counts(
    upto: int, *, ordered: bool
) -> None:
    """Without a watermark nothing is applied, and in offset order its place decides."""
    found = _pass(upto, ordered=ordered)

    assert found.bad == []
    assert len(found.barriers) == 1
