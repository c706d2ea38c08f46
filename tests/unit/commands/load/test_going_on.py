"""A load by SQL that was interrupted: as of which moment, and in which ranges, the same command goes on."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from applier.changefeed.table import TableName
from applier.commands.load import outlook
from applier.commands.load.outlook import Opened, gone_on, opened, reach
from applier.config import settings
from applier.config.login import Login
from applier.ddl.schema_files import read_schemas
from applier.decode.tidb.session import MomentGone
from applier.decode.tidb.tidb_export import TidbExport
from applier.errors import ConfigError, TransientError
from applier.pipeline.tables.loads import LoadRecord

NAME, OTHER = TableName("shop", "t"), TableName("shop", "u")
LOGIN = Login("db", 4000, "root", "")
MARKS = {NAME: "104 2026-01-02 03:04:05", OTHER: "106 2026-01-02 03:04:05"}
TEXT = "CREATE TABLE `{}` (\n  `id` int NOT NULL,\n  PRIMARY KEY (`id`) /*T![clustered_index] CLUSTERED */\n)"


def _opened(tso: int, marks: dict[TableName, str] = MARKS) -> Opened:
    texts = {name: TEXT.format(name.table) for name in (NAME, OTHER)}
    tables = read_schemas({f"{name}-schema.sql": text for name, text in texts.items()})
    bounds = {NAME: (("5",),), OTHER: (("7",),)}
    export = TidbExport(LOGIN, tso, (NAME, OTHER), tables, texts, {}, {}, marks, "10m0s").cut_at(bounds)
    return Opened(export, LOGIN, [NAME, OTHER])


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int | None]:
    """The moments as of which TiDB is asked again; a load of the first table has begun as of 100."""
    found = list[int | None]()

    def look(_: Any, __: Any, ___: Any, at: int | None = None) -> Opened:
        found.append(at)
        return _opened(at or 900)

    begun = {NAME: LoadRecord(NAME, 100, 1, 3, "", form=repr(LOGIN), bounds=(("2",), ("4",)), mark=MARKS[NAME])}
    monkeypatch.setattr(outlook, "opened", look)
    monkeypatch.setattr(outlook, "find", lambda _, name: (begun[name], None) if name in begun else None)
    return found


def _gone_on(at: int | None = None) -> Opened:
    main = cast("Any", SimpleNamespace(targets=None))
    return gone_on(cast("Any", None), main, _opened(at or 900), (), at)


def test_it_goes_on_as_of_its_moment_and_in_its_ranges(asked: list[int | None]) -> None:
    """All of its tables are of one moment; one that it had not begun is cut as TiDB has it now."""
    found = cast("TidbExport", _gone_on().export)

    assert (asked, found.tso) == ([100], 100)
    assert [part.condition for part in found.files[NAME]] == ["`id` < 2", "`id` >= 2 AND `id` < 4", "`id` >= 4"]
    assert [part.condition for part in found.files[OTHER]] == ["`id` < 7", "`id` >= 7"]


@pytest.mark.parametrize("at", [100, 500])
def test_a_moment_that_is_given_counts(at: int, asked: list[int | None]) -> None:
    """A load as of another moment is none of this one."""
    found = cast("TidbExport", _gone_on(at).export)

    assert (asked, found.tso) == ([], at)
    assert len(found.files[NAME]) == (3 if at == 100 else 2)


@pytest.mark.usefixtures("asked")
def test_it_begins_anew_on_another_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rows would stand beside those of the first in one table."""
    there = {NAME: "104 2025-06-07 08:09:10", OTHER: "106 2025-06-07 08:09:10"}
    monkeypatch.setattr(outlook, "opened", lambda *_: _opened(100, there))

    found = cast("TidbExport", _gone_on().export)

    assert (found.tso, len(found.files[NAME])) == (900, 2)


@pytest.mark.parametrize("error", [MomentGone("gone"), ConfigError(["TiDB holds no table"])], ids=["gone", "not there"])
def test_it_begins_anew_where_its_moment_is_gone(
    error: Exception, monkeypatch: pytest.MonkeyPatch, asked: list[int | None]
) -> None:
    """Of now, and in the ranges of now."""

    def gone(*_: Any) -> Opened:
        raise error

    monkeypatch.setattr(outlook, "opened", gone)

    found = cast("TidbExport", _gone_on().export)

    assert (asked, found.tso, len(found.files[NAME])) == ([], 900, 2)


def test_a_feed_that_lags_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes to a moment of now by itself."""
    monkeypatch.setattr(outlook, "newest", lambda *_: 800)
    monkeypatch.setattr(outlook, "refuse_shared_names", lambda *_: None)
    order = SimpleNamespace(has_watermark=True)
    main = SimpleNamespace(
        config=None,
        state=SimpleNamespace(tables=()),
        since=lambda _: {},
        source=None,
        scanner=SimpleNamespace(decoder=None),
        targets=SimpleNamespace(feed=SimpleNamespace(order=order)),
    )

    with pytest.raises(TransientError, match="The feed has come to resolved ts 800 "):
        reach(cast("Any", main), _opened(900))


def test_an_export_has_a_moment_of_its_own() -> None:
    """It is asked for none."""
    config = settings.parse(
        {
            "changefeed": {"name": "shop", "protocol": "canal-json"},
            "source": {"archive": "feed"},
            "catalog": {"name": "lake", "type": "hadoop", "warehouse": "lake"},
        }
    )

    with pytest.raises(ConfigError, match="--at is for a TiDB"):
        opened(config, "/exports/shop", (), 5)
