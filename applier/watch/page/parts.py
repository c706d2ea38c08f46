"""The lower parts of the page: tables, DDL, dead letters, the lease, partitions, and the cut."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from applier.runtime.figures import counted, span
from applier.watch.page.html import Html, badge, copyable, lines, moment, section, table, tag, text
from applier.watch.report import TONES, HolderReport, StatusReport, TableProgress

_TABLES = 2000
_PARTITIONS = 10
_LONG = 120
_BEHIND = "What the last step recorded is being read."


def tables(report: StatusReport) -> Html:
    """Every table: first those that need a hand, then those that are not in step."""
    found = sorted(report.tables, key=lambda one: (-one.urgency, one.table))
    if not found:
        return section("tables", "Tables", tag("p", "No table is known yet.", class_="soft"))
    shown = found[:_TABLES]
    rest = len(found) - len(shown)
    left = f"{counted(rest, 'further table')} that are in step are left out; /status.json has all." if rest else ""
    label = tag("label", "Filter by name or state", for_="filter")
    field = tag("input", id="filter", type="search", autocomplete="off", spellcheck="false", aria_controls="table-list")
    count = tag("span", id="count", data_own=True)
    headings = ("Table", "State", "Rows", "Files", "Lag", "Last commit (UTC)")
    content = table("Tables, those first that are not in step", headings, map(_table, shown), numbers=(2, 3, 4))
    return section(
        "tables",
        "Tables",
        tag("p", label, field, count, class_="filter js"),
        tag("div", content, id="table-list", class_="long"),
        tag("p", left, class_="soft") if left else None,
        note=counted(len(report.tables), "table"),
    )


def _table(one: TableProgress) -> Html:
    other = None if one.iceberg == one.table else tag("span", one.iceberg, class_="soft under")
    share = None if one.caught_up is None else f" {one.caught_up:.0%}"
    is_known = one.snapshot_id is not None
    lag = "" if one.lag_seconds is None else span(one.lag_seconds)
    return tag(
        "tr",
        tag("th", one.table, other, scope="row"),
        tag("td", badge(one.state, _tone(one.state)), share),
        tag("td", f"{one.rows:,}" if is_known else "", class_="n"),
        tag("td", f"{one.files:,}" if is_known else "", class_="n"),
        tag("td", lag, class_="n"),
        tag("td", moment(one.committed) if one.committed else None, class_="nowrap"),
        data_key=one.iceberg,
    )


def _tone(word: str) -> str:
    return TONES.get(word, "mute")


def schema_changes(report: StatusReport, *, is_behind: bool = False) -> Html:
    """What became of each DDL; `is_behind` if some are still to be read."""
    count, shown = report.schema_change_count, len(report.schema_changes)
    if not shown:
        none = _BEHIND if is_behind else "No DDL has been decided on yet."
        return section("ddl", "DDL", tag("p", none, class_="soft"))
    rows = [
        tag(
            "tr",
            tag("td", moment(item.committed or None), class_="nowrap"),
            tag("th", item.table, scope="row"),
            tag("td", badge(item.decision, _tone(item.decision))),
            tag("td", _statement(item.sql), tag("p", item.reason, class_="soft") if item.reason else None),
            data_key=f"ddl-{item.commit_ts}-{item.table}-{item.kind}-{number}",
        )
        for number, item in zip(range(count, 0, -1), report.schema_changes, strict=False)
    ]
    content = table("DDL, newest first", ("Committed (UTC)", "Table", "Decision", "Statement"), rows)
    return section("ddl", "DDL", content, note=_last(shown, count, is_behind=is_behind))


def _statement(sql: str) -> Html:
    flat = " ".join(sql.split())
    if len(flat) <= _LONG:
        return tag("code", flat)
    return tag("details", tag("summary", tag("code", f"{flat[:_LONG]}…")), tag("pre", tag("code", lines(sql))))


def _last(shown: int, count: int, *, is_behind: bool) -> str:
    known = f"the last {shown:,} of {count:,}" if shown < count else f"{count:,}"
    return f"{known}; {_BEHIND[0].lower()}{_BEHIND[1:-1]}" if is_behind else known


def dead_letters(report: StatusReport, config: str, *, is_behind: bool = False) -> Html:
    """Messages that were passed over, and how to go on with them; `is_behind` if some are still to be read."""
    shown, count = len(report.dead_letters), report.dead_letter_count
    if not shown:
        none = _BEHIND if is_behind else "No message was set aside."
        return section("letters", "Dead letters", tag("p", none, class_="soft"))
    rows = [
        tag(
            "tr",
            tag("th", f"{item.topic}/{item.partition}", scope="row"),
            tag("td", f"{item.offset:,}", class_="n"),
            tag("td", item.error),
            tag("td", moment(item.buried), class_="nowrap"),
            data_key=f"letter-{item.topic}-{item.partition}-{item.offset}",
        )
        for item in report.dead_letters
    ]
    content = table("Dead letters, newest first", ("Partition", "Offset", "Why", "Set aside (UTC)"), rows, numbers=(1,))
    path = shlex.quote(config)
    ways = text(
        tag("p", "See them: ", copyable(f"applier dead-letters list -c {path}"), class_="way"),
        tag("p", "Apply them once their cause is gone: ", copyable(f"applier backfill -c {path} --dead-letters")),
    )
    return section("letters", "Dead letters", content, ways, note=_last(shown, count, is_behind=is_behind))


def lease(report: StatusReport, holder: HolderReport) -> Html:
    """Who holds the changefeed."""
    state = "Released: any applier may take it" if holder.released else "Held"
    seen = text(moment(holder.seen), f" UTC, {span(holder.silent_seconds)} ago")
    facts = {
        "State": state,
        "Holder": holder.name,
        "Epoch": f"{holder.epoch:,}",
        "Since": text(moment(holder.since), " UTC"),
        "Last seen": seen,
        "Step": "unknown" if report.step is None else f"{report.step:,}",
        "Resolved ts": "none" if report.resolved_ts is None else str(report.resolved_ts),
    }
    return section("lease", "Lease", tag("dl", [(tag("dt", name), tag("dd", value)) for name, value in facts.items()]))


def partitions(report: StatusReport) -> Html:
    """The partitions that hold the others up."""
    found = sorted(report.partitions, key=lambda one: (one.resolved_ts or 0, one.topic, one.partition))
    if not found:
        return section("partitions", "Partitions", tag("p", "No partition is known yet.", class_="soft"))
    rows = [
        tag(
            "tr",
            tag("th", f"{one.topic}/{one.partition}", scope="row"),
            tag("td", f"{one.next_offset:,}", class_="n"),
            tag("td", moment(one.resolved) if one.resolved else "never", class_="nowrap"),
            data_key=f"{one.topic}/{one.partition}",
        )
        for one in found[:_PARTITIONS]
    ]
    headings = ("Partition", "Next offset", "Resolved (UTC)")
    content = table("Partitions, those first that are furthest behind", headings, rows, numbers=(1,))
    count = len(found)
    note = f"{count:,}" if count <= _PARTITIONS else f"the {_PARTITIONS} furthest behind of {count:,}"
    return section("partitions", "Partitions", content, note=note)


def cut(report: StatusReport) -> Html:
    """The queries that read every table as of one moment."""
    if not report.cut:
        why = "There is no query: no table has a snapshot in the newest checkpoint."
        return section("cut", "Read all tables as of one moment", tag("p", why, class_="soft"))
    return section("cut", "Read all tables as of one moment", list(_queries(report)))


def _queries(report: StatusReport) -> Iterator[Html]:
    moments = text(f"resolved ts {report.resolved_ts}, ", moment(report.resolved), " UTC")
    which = moments if report.resolved_ts else "the newest checkpoint"
    yield tag("p", "These queries of Spark SQL show every table as of ", which, ".")
    yield copyable("\n".join(report.cut), kept=True)
