"""Random lives of tables: left out, parked, refused, brought back; SCHEDULES, SEED_FROM and SEED as for schedules."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.disasters import Disasters
from tests.properties.table_life import TableLife
from tests.properties.test_schedules import SEEDS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FEW = None if "SEED_FROM" in os.environ else 1
"""`make test` takes one, `make soak` as many as of the others."""

_SIZE, _STEPS = (20, 15) if _FEW else (40, 60)
"""A seed is another story in another size: `make soak SEED=n` runs those of `make soak` again."""


@pytest.mark.parametrize("seed", SEEDS[:_FEW])
def test_every_live_table_is_the_database(seed: int, spark: SparkSession, disasters: Disasters, tmp_path: Path) -> None:
    """A live table equals the database, a parked one what it was, each for a reason; and in the end all come back."""
    _run(TableLife(seed, spark, disasters, tmp_path, _SIZE, _STEPS))


@pytest.mark.parametrize("seed", SEEDS[-_FEW:] if _FEW else SEEDS)
def test_every_change_is_kept_once(seed: int, spark: SparkSession, disasters: Disasters, tmp_path: Path) -> None:
    """Each table of changes has every image above its commit ts, and none twice; not the life of above."""
    _run(TableLife(seed, spark, disasters, tmp_path, _SIZE, _STEPS, keeps_changes=True))


def _run(life: TableLife) -> None:
    try:
        life.run()
    except BaseException as error:
        error.add_note(f"Run it again: make soak SEED={life.seed}. It went: {'; '.join(life.story)}")
        error.add_note(f"The database saw: {'; '.join(life.past)}")
        raise

    assert life.looks > 0
