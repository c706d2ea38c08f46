"""A catalog whose database somebody else has locked, in the middle of a step."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

import pytest

from applier.errors import TransientError
from tests.disasters import Disasters
from tests.lab import database, run
from tests.recovery.cases import CASES
from tests.recovery.extent import every

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize("point", every(["commit-done", "ddl-due", "data-files-staged", "applied"], 4))
def test_step_is_tried_again_once_the_catalog_answers(point: str, spark: SparkSession, disasters: Disasters) -> None:
    """The step fails with an error that may be tried again, and the same applier goes on where it was."""
    lab = CASES["inserts"].lab(spark, f"locked_{point}".replace("-", "_"))
    pipeline = lab.start()
    somebody = sqlite3.connect(database(spark), isolation_level=None, timeout=30, check_same_thread=False)
    try:
        disasters.call(lambda: _lock(somebody), point)
        with pytest.raises(TransientError, match=r"(?i)locked|busy"):
            run(lambda: pipeline, lab)
    finally:
        somebody.close()

    assert run(lambda: pipeline, lab).state.resolved_ts == lab.database.ts


def _lock(connection: sqlite3.Connection) -> None:
    connection.execute("BEGIN EXCLUSIVE")
