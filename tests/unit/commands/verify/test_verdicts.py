from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest

from applier.changefeed.table import TableName
from applier.commands.verify import against, command
from applier.commands.verify.columns import ColumnMissing
from applier.commands.verify.difference import RowDifference
from applier.commands.verify.render import lines, summary
from applier.commands.verify.repair import refuse_unrepairable
from applier.commands.verify.report import State, TableVerdict, VerifyReport
from applier.config import settings
from applier.decode.tidb.session import MomentGone
from applier.errors import ConfigError, TransientError, ValueRefused
from applier.watch.compose import empty
from applier.watch.report import TableProgress, TableState

BASE: dict[str, Any] = {
    "changefeed": {"name": "shop", "protocol": "simple"},
    "source": {"archive": "topic"},
    "catalog": {"name": "lake", "type": "jdbc", "uri": "jdbc:sqlite:none.db", "warehouse": "none"},
}

ORDERS = TableName("shop", "orders")

FOUND = TableVerdict(
    "shop.orders",
    "shop.orders",
    "different",
    7,
    999,
    1000,
    {"missing": 1, "extra": 0, "different": 1},
    differences=(
        RowDifference("different", {"id": 17}, ("price",), 1, {"id": 17, "price": 1}, {"id": 17, "price": None}),
        RowDifference("missing", {"id": b"\0\xff"}, (), 1, {"id": b"\0\xff", "price": 2}),
    ),
    left_out=("rate",),
    way_out="Load it.",
)


def report(*states: State) -> VerifyReport:
    """On a table of each state."""
    tables = [TableVerdict(f"shop.t{number}", "", state) for number, state in enumerate(states)]
    return VerifyReport("shop", "TiDB db:4000", 5, "2026-11-29 00:00:00 UTC", tables)


@pytest.mark.parametrize(
    ("states", "code", "said"),
    [
        (("equal",), 0, "1 table is equal to TiDB db:4000 as of resolved ts 5 (2026-11-29 00:00:00 UTC)."),
        (("equal", "unknown"), 2, ": 1 unknown, 1 equal."),
        (("unknown", "different", "equal"), 1, ": 1 different, 1 unknown, 1 equal."),
        ((), 2, ": "),
    ],
)
def test_a_difference_counts_before_what_is_not_known(states: tuple[State, ...], code: int, said: str) -> None:
    """And no table proves nothing."""
    found = report(*states)

    assert found.exit_code == code
    assert said in summary(found)


def test_keys_are_printed_and_values_only_where_they_are_asked_for() -> None:
    """Each difference on a line."""
    plain = list(lines(FOUND, values=False))
    assert plain == [
        "shop.orders: different · 999 rows · upstream 1,000 rows · snapshot 7 · 1 missing, 0 extra, 1 different",
        "    different id=17: price",
        "    missing id=\"x'00ff'\"",
        "    Not compared: rate, which the export does not hold exactly.",
        "    Hint: Load it.",
    ]
    shown = [line for line in lines(FOUND, values=True) if line not in plain]
    assert shown == [
        "        upstream: price=1",
        "        Iceberg: price=None",
        "        upstream: id=\"x'00ff'\", price=2",
    ]


def test_more_than_is_listed_is_counted() -> None:
    """And where not all are counted, a line says so."""
    many = replace(FOUND, counts={"missing": 500, "extra": 0, "different": 1}, is_whole=False)

    assert "    … and 499 more" in lines(many, values=False)
    assert any("there are more differences" in line for line in lines(many, values=False))


def test_json_has_keys_and_no_other_values() -> None:
    """Of every type."""
    key = {"a": Decimal("1.50"), "b": datetime(2020, 1, 1, tzinfo=UTC), "c": 1.5, "d": None, "e": "x"}
    found = replace(FOUND, differences=(RowDifference("extra", key, (), 1, None, {**key, "secret": "s"}),))

    text = replace(report(), tables=[found]).to_json()

    (table,) = json.loads(text)["tables"]
    (shown,) = table["differences"]
    assert shown["key"] == {"a": "1.50", "b": "2020-01-01T00:00:00+00:00", "c": 1.5, "d": None, "e": "x"}
    assert "secret" not in text
    assert (table["state"], table["counts"], table["left_out"]) == ("different", FOUND.counts, ["rate"])


@pytest.mark.parametrize(
    ("state", "cut", "said"),
    [
        ("parked", None, "it waits"),
        ("incomplete", None, "it waits"),
        ("missing", 1, "it waits"),
        ("rolled back", 1, "it waits"),
        ("expired", 1, "TiDB db:4000 shows no table shop.orders at the resolved ts."),
        ("ahead", 2, "Table shop.orders shows more than the resolved ts."),
        (None, None, "The changefeed has met no row and no DDL of table shop.orders."),
        ("in step", 2, "TiDB db:4000 shows no table shop.orders at the resolved ts."),
        ("ahead", 1, "TiDB db:4000 shows no table shop.orders at the resolved ts."),
    ],
)
def test_a_table_that_no_snapshot_shows_is_unknown(state: TableState | None, cut: int | None, said: str) -> None:
    """With the reason that `status` gives, and nothing is read."""
    anything: Any = None

    class Held:
        title = "TiDB db:4000"

    held: Any = Held()
    upstream = against.Upstream(held, anything, frozenset())
    because = "it waits" if said == "it waits" else None
    progress = state and TableProgress(
        "shop.orders", "shop.orders", state, snapshot_id=2, cut_snapshot_id=cut, because=because
    )

    checks = command._Checks(settings.parse(BASE), anything, upstream, 1)
    verdict = checks.verdict(ORDERS, progress or None)

    assert (verdict.state, verdict.because) == ("unknown", said)


class Found:
    """A table whose snapshot is there for some questions."""

    snapshot_id, schema = 1, None

    def __init__(self, *answers: bool) -> None:
        self.answers = list(answers)

    def has_snapshot(self, _: int) -> bool:
        """The next answer."""
        return self.answers.pop(0)

    def refresh(self) -> None:
        """Nothing to do."""

    def setting(self, _: str) -> str:
        """Its stamp."""
        return "5"


@pytest.mark.parametrize(
    ("answers", "error", "said", "hint"),
    [
        ((True, True), TransientError("The connection was lost."), "The connection was lost.", ""),
        ((True, False), TransientError("There is no such file."), "Snapshot 1 of table shop.orders, which", "Give the"),
        ((False,), ValueError(), "Snapshot 1 of table shop.orders, which shows the resolved ts, has expired.", "Give"),
        ((True,), ValueRefused("A value does not fit.", "Mend it."), "A value does not fit.", "Mend it."),
        ((True,), ConfigError(["No package."]), "No package.", ""),
        (
            (True,),
            MomentGone("It is gone.", "Load as of a later moment."),
            "It is gone.",
            "Let TiDB keep more, with SET",
        ),
        ((), None, "Table shop.orders is not in the catalog yet.", "`applier run -c"),
        ((), ValueError(), "Table shop.orders has left the catalog since its state was read.", "Give the command"),
    ],
    ids=str,
)
def test_a_table_that_cannot_be_read_is_unknown(
    answers: tuple[bool, ...], error: Exception | None, said: str, hint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the reason; where the snapshot has gone meanwhile, that is the reason. Others go on."""

    def compared(*_: object) -> TableVerdict:
        assert error is not None
        raise error

    class Held:
        title = "TiDB db:4000"

    held: Any = Held()
    catalog: Any = SimpleNamespace(load=lambda _: Found(*answers) if answers else None)
    monkeypatch.setattr(command._Checks, "_compared", compared)
    upstream = against.Upstream(held, held, frozenset([ORDERS]))
    head = None if error is None else 1
    progress = TableProgress("shop.orders", "shop.orders", "in step", resolved_ts=5, snapshot_id=head)

    verdict = command._Checks(settings.parse(BASE), catalog, upstream, 1).verdict(ORDERS, progress)

    assert verdict.state == "unknown"
    assert verdict.because.startswith(said)
    assert verdict.way_out.startswith(hint)


@pytest.mark.parametrize(
    ("state", "snapshot", "stamp", "wanted"),
    [
        ("in step", 2, 5, (2, True)),
        ("expired", 2, 5, (2, True)),
        ("empty", 2, 5, (2, True)),
        ("ahead", 2, 5, (1, False)),
        ("dropped", 2, 5, (1, False)),
        ("in step", 2, 6, (2, False)),
        ("in step", 3, 5, (2, False)),
    ],
)
def test_the_head_is_compared_until_it_shows_more(
    state: TableState, snapshot: int, stamp: int, wanted: tuple[int, bool]
) -> None:
    """It has what others did since the checkpoint; and the table's own columns, as long as it is as `status` saw it."""
    table: Any = SimpleNamespace(snapshot_id=snapshot, setting=lambda _: str(stamp))
    progress = TableProgress("shop.orders", "shop.orders", state, resolved_ts=5, snapshot_id=2, cut_snapshot_id=1)

    assert (command._snapshot(progress), command._shows(table, progress)) == wanted


@pytest.mark.parametrize(("stamp", "is_there"), [(6, True), (5, False), (None, False)])
def test_a_table_that_run_drops_meanwhile_is_compared(
    stamp: int | None, is_there: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the snapshot of the cut, as it was there at the resolved ts; one that was dropped before is none of them."""
    dropped = TableProgress(
        "shop.orders", "shop.orders", "dropped", resolved_ts=stamp, snapshot_id=2, cut_snapshot_id=1
    )
    seen = replace(empty(settings.parse(BASE), 1.0, 1), resolved_ts=5, tables=(dropped,))
    anything: Any = SimpleNamespace(title="TiDB db:4000")
    upstream, taken = against.Upstream(anything, anything, frozenset([ORDERS])), list[int | None]()
    catalog: Any = SimpleNamespace(load=lambda _: Found(True))

    def compared(*given: Any) -> TableVerdict:
        verdict: TableVerdict = given[-1]
        taken.append(verdict.snapshot_id)
        return replace(verdict, state="equal")

    monkeypatch.setattr(command._Checks, "_compared", compared)
    monkeypatch.setattr(command, "schemas_at", lambda *_, **__: [])
    progress = command._living(seen).get("shop.orders")
    verdict = command._Checks(settings.parse(BASE), catalog, upstream, 1).verdict(ORDERS, progress)

    assert (progress is not None, verdict.state, taken) == (
        (True, "equal", [1]) if is_there else (False, "unknown", [])
    )


@pytest.mark.parametrize("url", ["mysql://root@127.0.0.1:4000", ""])
def test_a_table_that_lacks_a_column_has_a_way_out(url: str) -> None:
    """That of every difference."""
    config = settings.parse({**BASE, "upstream": {"url": url}} if url else BASE)
    anything: Any = None

    class Other:
        title, names = "TiDB db:4000", frozenset([ORDERS])

        def prepared(self, *_: object) -> Any:
            raise ColumnMissing("Table shop.orders has no column a, which the other side has.")

    other: Any = Other()
    unknown = TableVerdict("shop.orders", "shop.orders", "unknown", 7)

    verdict = command._Checks(config, anything, other, 1)._compared(ORDERS, anything, [], unknown)

    wanted = "`applier load -c applier.toml --tables 'shop.orders' --again` reads" if url else "Export the table with `"
    assert verdict.state == "different"
    assert verdict.because == "Table shop.orders has no column a, which the other side has."
    assert verdict.way_out.startswith(wanted)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("", "There is no upstream to compare with: set upstream.url, or give --against DIR with the folder"),
        ("tidb", "--against tidb needs the address of the TiDB: set upstream.url."),
        ("/nowhere", "Export /nowhere cannot be read: "),
    ],
)
def test_an_upstream_that_is_not_there_is_refused(given: str, said: str) -> None:
    """With what to set."""
    with pytest.raises(ConfigError) as refusal:
        against.find(settings.parse(BASE), given, (), 5)

    assert refusal.value.problems[0].startswith(said)


def test_a_changefeed_without_a_resolved_ts_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before its first step, and in offset order: no moment shows its tables."""
    config = settings.parse(BASE)
    monkeypatch.setattr(command, "status", lambda given, now_ms: empty(given, 1.0, now_ms))
    monkeypatch.setattr(command, "newest_checkpoint", lambda _: None)

    with pytest.raises(ConfigError, match="Changefeed shop has no resolved ts at which its tables could be verified"):
        command.verify(config, "", (), lambda _: None, now_ms=1)


def test_a_comparison_without_tidb_is_not_repaired() -> None:
    """No load reads another Iceberg table, and one of an export wants its folder."""
    own = settings.parse(BASE)
    with_url = settings.parse({**BASE, "upstream": {"url": "mysql://root@127.0.0.1:4000"}})
    for config, other in ((own, ""), (with_url, "/exports"), (with_url, "copies.orders")):
        with pytest.raises(ConfigError, match="--repair reads rows from TiDB: set upstream.url, and compare with it"):
            refuse_unrepairable(config, other)
    refuse_unrepairable(with_url, "")
    refuse_unrepairable(with_url, against.TIDB)
