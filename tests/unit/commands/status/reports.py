"""Reports of `applier status` whose captures are kept in `captures/`.

`python -m tests.unit.commands.status.reports` writes the captures anew; read the difference before you commit it.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from applier import wording
from applier.changefeed.completeness import Completeness, Reason, Why, incomplete
from applier.changefeed.position import FeedPosition
from applier.changefeed.table import TableName
from applier.commands.status.render import Choice, render
from applier.watch import compose
from applier.watch.report import (
    DdlReport,
    DroppedTable,
    HolderReport,
    LetterReport,
    PartitionProgress,
    StatusReport,
    StepProgress,
    TableProgress,
    Trouble,
    judged,
)
from applier.ways_out import WaysOut

CAPTURES = Path(__file__).parent / "captures"
WIDTHS = (80, 160)
TS = 470_606_913_415_151_618
NOW = "2026-11-25T12:00:18.000+00:00"
TRUE = "2026-11-25T12:00:17.300+00:00"
HEAD = 8_013_223_372_036_854_775


def table(name: str, **changes: Any) -> TableProgress:
    """A table that is in step."""
    found = TableProgress(name, name, "in step", TS, TRUE, 0.7, 1234, 12, TRUE, HEAD, HEAD, commit_age_seconds=0.7)
    return replace(found, **changes)


def lacking(name: TableName, known: Completeness, **changes: Any) -> TableProgress:
    """A table that is not whole, with what `status` says about it."""
    because, way_out = wording.sentence(name, known), WaysOut().of([name], known)
    return table(str(name), state=known.shown, because=because, way_out=way_out, cut_snapshot_id=None, **changes)


def dropped(name: str, at: int, *, aside: bool = True) -> DroppedTable:
    """A table that was dropped upstream and is kept, beside another one that has its name, or under its name."""
    place = f"{name}_dropped_{at}" if aside else name
    return DroppedTable(name, place, at, TRUE, WaysOut.of_dropped("lake", *place.split(".")), 1200, 1)


def fresh() -> StatusReport:
    """A changefeed that is followed closely."""
    times = {"plan": 0.01, "read": 0.12, "decode": 0.2, "apply": 2.51, "maintain": 0.0}
    return StatusReport(
        changefeed="shop",
        max_lag_seconds=300.0,
        now=NOW,
        resolved_ts=TS,
        resolved=TRUE,
        lag_seconds=0.7,
        step=120,
        holder=HolderReport("process 41 on host-a", "host-a", 41, 3, "2026-11-25T11:00:00.000+00:00", NOW, 0.4, False),
        counts={},
        steps=(
            StepProgress(120, TRUE, 0.7, 1200, 1100, 5, 0, times),
            StepProgress(119, TRUE, 0.9, 1_200_000, 9_900_000, 5, 1200, {**times, "checkpoint": 0.11}),
            StepProgress(118, TRUE, None, 7, 0, 0, None, {}),
        ),
        explanation="Apply takes 88% of the steps' time: commits of rows to tables, 5 a step on average.",
        tables=tuple(table(f"shop.table_{index}", rows=10**index) for index in range(5)),
        partitions=tuple(PartitionProgress("shop", index, 100 + index, TS, TRUE) for index in range(3)),
        schema_changes=(
            DdlReport(TS, TRUE, "shop.table_1", "add-column", "applied", "", "ALTER TABLE table_1 ADD c INT", NOW),
        ),
        schema_change_count=12,
        cut=tuple(f"SELECT * FROM lake.shop.table_{index} VERSION AS OF {HEAD};" for index in range(5)),
    )


def stale() -> StatusReport:
    """Three tables that need a hand, and what else deserves a look."""
    orders, users = TableName("shop", "orders"), TableName("shop", "users")
    call = f"CALL lake.system.set_current_snapshot('shop.lines', {HEAD})"
    out = "set it to that snapshot again, in Spark SQL with `{}`; or stop the running applier, and apply what it lacks "
    out = f"{out}with {{}}."
    repair = "`applier backfill -c applier.toml --from beginning --repair --tables 'shop.lines'`"
    ddl = "ALTER TABLE table_1 MODIFY COLUMN total INT NOT NULL DEFAULT 0 COMMENT 'of all that was ever ordered'"
    parked = Completeness(Reason(Why.BY_HAND, "out of order"), TS, FeedPosition(orders, TS))
    report = replace(
        fresh(),
        tables=(
            table("shop.table_1"),
            lacking(orders, parked, caught_up=0.4, lag_seconds=4000.0),
            lacking(users, incomplete(Why.NO_CREATE), lag_seconds=None),
            table(
                "shop.lines",
                state="rolled back",
                because=f"Table shop.lines was rolled back by hand: it shows snapshot 5, which is older than {HEAD}.",
                way_out=out.format(call, repair),
                lag_seconds=None,
            ),
            table("shop.old", state="dropped", iceberg="archive.old"),
        ),
        schema_changes=(DdlReport(TS, TRUE, "shop.table_1", "modify-column", "pending", "It narrows.", ddl, NOW),),
        dead_letters=(LetterReport("shop", 0, 7, "Cannot decode message", 119, NOW),),
        dead_letter_count=3,
        dropped=(dropped("shop.lines", TS), dropped("shop.lines", TS - 1), dropped("shop.old", TS, aside=False)),
        notes=(Trouble("3 messages were set aside as dead letters."),),
    )
    return judged_with(report, {orders: parked, users: incomplete(Why.NO_CREATE)})


def judged_with(report: StatusReport, known: Mapping[TableName, Completeness], *held: Trouble) -> StatusReport:
    """A report with what follows from its tables."""
    stale = [*held, *judged(report, ""), *compose.lacking(report.tables, known, WaysOut())]
    return replace(report, stale=tuple(stale), cut=_cut(report))


def many() -> StatusReport:
    """A thousand tables, most of them in step."""
    parked = Completeness(Reason(Why.BY_HAND, "by hand"), TS, FeedPosition(TableName("shop", "t"), TS))
    known = {TableName("shop", f"table_{index:04}"): parked for index in range(500, 504)}
    bad = [lacking(name, parked) for name in known]
    good = [table(f"shop.table_{index:04}") for index in range(1000) if not 500 <= index < 504]
    report = replace(fresh(), tables=(*good, *bad, table("shop.z", state="ahead")))
    return judged_with(report, known)


def _cut(report: StatusReport) -> tuple[str, ...]:
    return tuple(
        f"SELECT * FROM lake.{table.iceberg} VERSION AS OF {HEAD};" for table in report.tables if table.cut_snapshot_id
    )


def strange() -> StatusReport:
    """Names in wide characters, names that are too long, and names that a terminal would obey."""
    names = (
        "shop.注文明細テーブル" * 5,
        "shop." + "long_name_" * 10,
        "shop.a\x1b[31mred\nfresh · all\u202e",
        "shop.[bold]",
    )
    return replace(fresh(), changefeed="s\x1bop", tables=tuple(table(name, iceberg=f"lake.{name}") for name in names))


def never() -> StatusReport:
    """A changefeed without a checkpoint."""
    report = StatusReport("shop", 300.0, NOW)
    return replace(report, stale=tuple(judged(report, wording.begin("applier.toml"))))


def held() -> StatusReport:
    """A refused DDL holds the changefeed up, and one dead letter makes five tables incomplete."""
    names = [TableName("shop", f"table_{index}") for index in range(5)]
    ddl = "ALTER TABLE table_1 MODIFY COLUMN total INT"
    report = replace(
        fresh(),
        resolved_ts=None,
        resolved=None,
        lag_seconds=None,
        tables=tuple(lacking(name, incomplete(Why.LETTERS), lag_seconds=None) for name in names),
        schema_changes=(
            DdlReport(TS, TRUE, "shop.table_1", "modify-column", "pending", "It is configured to stop.", ddl, NOW),
            DdlReport(TS - 1, TRUE, "", "create-database", "ignored", "", "CREATE DATABASE a", NOW),
        ),
        cut=(),
    )
    what = "A DDL of shop.table_1 holds changefeed shop up: it is configured to stop."
    return judged_with(
        report, dict.fromkeys(names, incomplete(Why.LETTERS)), Trouble(what, f"run `applier ddl skip {TS}`.")
    )


FULL = Choice(tables=("*.orders", "*.lines"), ddl=True, partitions=True)

CASES: dict[str, tuple[Callable[[], StatusReport], Choice]] = {
    "fresh": (fresh, Choice()),
    "stale": (stale, Choice()),
    "stale-in-full": (stale, FULL),
    "many": (many, Choice()),
    "strange": (strange, Choice()),
    "never": (never, Choice()),
    "held": (held, Choice(ddl=True)),
}


def captured(name: str, width: int) -> str:
    """What a terminal of that width shows, without the spaces at the ends of lines."""
    make, choice = CASES[name]
    out = io.StringIO()
    render(make(), Console(file=out, width=width, force_terminal=True, color_system=None), choice)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


if __name__ == "__main__":
    CAPTURES.mkdir(exist_ok=True)
    for case in CASES:
        for columns in WIDTHS:
            (CAPTURES / f"{case}-{columns}.txt").write_text(captured(case, columns), encoding="utf-8")
