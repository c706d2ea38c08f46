"""Nothing is written that one of `tables.readers` cannot read."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from applier.commands.check.command import check
from applier.commands.plan.read_only_pipeline import looking
from applier.config import settings
from applier.config.settings import Config
from applier.errors import ConfigError
from applier.pipeline.build import assembled
from applier.pipeline.tables.target_tables import TargetTables


def _config(folder: Path, **tables: Any) -> Config:
    uri = f"jdbc:sqlite:{folder}/catalog.db"
    return settings.parse(
        {
            "changefeed": {"name": "shop", "protocol": "simple"},
            "source": {"archive": str(folder)},
            "catalog": {"name": "lake", "type": "jdbc", "uri": uri, "warehouse": f"{folder}/tables"},
            "tables": tables,
        }
    )


@pytest.mark.parametrize("begin", [assembled, looking])
def test_no_command_starts_spark_for_tables_that_a_reader_cannot_read(
    begin: Callable[[Config], AbstractContextManager[Any]], tmp_path: Path
) -> None:
    """`run` and `load`, alone or beside `run`: nothing is there afterwards."""
    with (
        pytest.raises(ConfigError, match="daft cannot read Iceberg format 3"),
        begin(_config(tmp_path, readers=["daft"], format_version=3)),
    ):
        pass

    assert list(tmp_path.iterdir()) == []


def test_a_table_of_another_format_is_refused_when_it_is_opened(tmp_path: Path) -> None:
    """The first step opens every table before it writes any."""
    maker = SimpleNamespace(settings=_config(tmp_path, readers=["spark", "daft"]).tables)
    targets = cast("TargetTables", SimpleNamespace(maker=maker))

    class Held(SimpleNamespace):
        def __str__(self) -> str:
            return "shop.orders"

    with pytest.raises(ConfigError, match="daft cannot read table shop.orders, which has Iceberg format 3"):
        TargetTables.opened(targets, cast("Any", Held(format_version=3)))


def test_check_warns_of_it(tmp_path: Path) -> None:
    """Also where nothing else is wrong."""
    asked = check(_config(tmp_path, readers=["polars-native"]))
    fine = check(_config(tmp_path, readers=["polars", "trino"]))

    assert [text for text in asked.warnings if text.startswith("tables.readers: polars-native cannot read")]
    assert not [text for text in fine.warnings if "readers" in text]
