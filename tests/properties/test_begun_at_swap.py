"""Random deaths of a changefeed that begins at the TSO of a swap; SCHEDULES, SEED_FROM and SEED as for schedules."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.disasters import Disasters
from tests.properties.begun_at_swap import BegunAtSwap
from tests.properties.test_schedules import SEEDS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FEW = None if "SEED_FROM" in os.environ else 1


@pytest.mark.parametrize("seed", SEEDS[:_FEW])
def test_every_table_of_the_export_is_the_database(
    seed: int, spark: SparkSession, disasters: Disasters, tmp_path: Path
) -> None:
    """Wherever the beginning dies or fails, in its end both tables of the swap are there and true."""
    found = BegunAtSwap(seed, spark, disasters, tmp_path)
    try:
        found.run()
    except BaseException as error:
        error.add_note(f"Run it again: make soak SEED={seed}. It went: {'; '.join(found.story)}")
        raise
