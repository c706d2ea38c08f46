"""Which tables a window shows before any DDL has made them."""

from __future__ import annotations

from typing import Any, cast
from unittest import mock

import pytest

from applier.changefeed.table import TableName
from applier.ddl.schema_tracker import Tables
from applier.decode.avro.namesakes import Lives
from applier.pipeline.scan.window_tables import met


@pytest.mark.parametrize(
    ("lives", "of_versions"),
    [
        (Lives(), {}),
        (None, {TableName("my_db", "u_1"): 7}),
    ],
)
def test_a_name_in_avro_that_an_earlier_pass_gave_to_rows_is_no_table(
    lives: Lives | None, of_versions: dict[TableName, int]
) -> None:
    """The first pass calls rows of `u-1` by `u_1`: a `CREATE TABLE U_1` in the window has its own letters."""
    found, known = mock.MagicMock(), mock.MagicMock(declared=Tables(), lives=lives)
    found.new_versions, found.results.barriers = {(TableName("my_db", "u_1"), 7)}, ()
    found.results.lowest.return_value = {TableName("my_db", "u-1"): 9}

    assert met(cast("Any", found), cast("Any", known)) == {TableName("my_db", "u-1"): 9} | of_versions
