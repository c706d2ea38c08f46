"""What a load leaves aside, once readers have its rows: it must not be handed over a second time."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from applier.commands.load.command import load
from applier.config import own_namespaces
from applier.sink.iceberg.catalog import Catalog
from tests.few import few
from tests.spark.ddl_applier import Crash
from tests.spark.test_paths import export
from tests.spark.world import Make, World

pytestmark = pytest.mark.spark


def _let_files_go(world: World) -> None:
    """Others rewrite the table, and expire what it was before: the files of the export are removed."""
    table, then = f"{world.name}__shop.a", time.strftime("%F %T", time.gmtime(time.time() + 1))
    call = "CALL lake.system"
    world.spark.sql(f"{call}.rewrite_data_files(table => '{table}', options => map('rewrite-all', 'true'))")
    world.spark.sql(f"{call}.expire_snapshots(table => '{table}', older_than => TIMESTAMP '{then}', retain_last => 1)")


def test_a_loaded_table_lets_its_old_metadata_go_as_others_do(make: Make, tmp_path: Path) -> None:
    """Its copy keeps them while the table of the export may still be needed."""
    world, key = make(), "write.metadata.delete-after-commit.enabled"
    world.create("a")
    world.put("a", 1)
    load(world.config, export(tmp_path / "export", world.resolve()), (), lambda _: None)
    world.put("a", 3)
    world.resolve()
    world.run()

    table = Catalog(world.spark, "lake").load((f"{world.name}__shop", "a"))

    assert table is not None
    assert world.keys("a") == {1, 3}
    assert table.setting(key) == "true"


@pytest.mark.parametrize("runs", few([True, False]))
def test_a_load_that_was_killed_as_it_ended_is_not_handed_over_again(
    runs: bool, make: Make, tmp_path: Path, crash: Callable[[str], None]
) -> None:
    """The table let the files go that both had: no step got past it, and no table of the changefeed went on."""
    world = make()
    world.create("a")
    world.put("a", 1)
    address = export(tmp_path / "export", world.resolve())
    crash("resume-done")
    with pytest.raises(Crash):
        load(world.config, address, (), lambda _: None)
    if runs:
        world.put("a", 3)
        world.resolve()
        world.run()
        assert Catalog(world.spark, "lake").list((own_namespaces.loads(world.name),)) == []
    _let_files_go(world)

    load(world.config, address, (), lambda _: None, again=True)
    world.run()

    assert world.keys("a") == ({1, 3} if runs else {1})
    assert world.table("a").state == "in step"
    assert Catalog(world.spark, "lake").list((own_namespaces.loads(world.name),)) == []
