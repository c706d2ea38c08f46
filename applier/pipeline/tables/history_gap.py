"""A gap in the changes of a table: it has rows whose changes were not kept, as a load brought them, for instance."""

from __future__ import annotations

from applier.changefeed.history import COMPLETE_FROM, KEPT_FROM, changes_version
from applier.changefeed.table import TableName, TableVersion
from applier.pipeline.tables.ddl_stamp import DROPPED_AT
from applier.pipeline.tables.target_tables import TargetTables
from applier.sink.iceberg.layout import LayoutChange, evolve
from applier.sink.write.table_writer import TableWriter


def applied(table: TableWriter | None) -> int:
    """The commit ts up to which a table has its rows; 0 for none."""
    return 0 if table is None or table.known is None else table.known.resolved_ts


def passed(table: TableWriter | None) -> int:
    """The commit ts up to which changes of a table were not kept; 0 where all were."""
    kept = "0" if table is None else table.table.setting(KEPT_FROM)
    return int(kept) if kept else applied(table)


def begun(targets: TargetTables, name: TableName) -> dict[str, str]:
    """Entries of the first commit of rows whose changes are no longer kept, which say so."""
    table, is_kept = targets.writer(name), targets.maker.rules.changes(name) is not None
    return {} if table is None or is_kept or not table.table.setting(KEPT_FROM) else {KEPT_FROM: ""}


def named(targets: TargetTables, owner: TableName, changes: TableWriter) -> dict[str, str]:
    """Entries of the next commit of the changes of a table that show above which commit ts they have all."""
    had, begun = applied(changes), int(changes.table.setting(COMPLETE_FROM) or 0)
    since = passed(targets.writer(owner))
    # Others have set it back: what it had above its stamp then is gone.
    since = since if since > had else had if changes.rolled_back is not None else 0
    return {COMPLETE_FROM: str(since)} if since > begun else {}


def pass_by(targets: TargetTables, owner: TableName, since: int, now: TableVersion) -> None:
    """Let the changes of a table show at once that those at or below a commit ts may be missing.

    The next change of the table may come in a year.
    """
    name = targets.maker.rules.changes(owner)
    changes = None if name is None else targets.writer(name)
    if name is None or changes is None or changes.known is None or changes.known.resolved_ts >= since:
        return
    if _is_set_aside(targets, name, changes, now) or int(changes.table.setting(COMPLETE_FROM) or 0) >= since:
        return
    entries = {COMPLETE_FROM: str(since)}
    targets.committed(changes, changes.stamp(targets.stamp(name, applied(changes), entries, changes)).snapshot_id)


def note_dropped(targets: TargetTables, name: TableName) -> None:
    """Note in a table that its changes so far are a gap, as others have dropped them, before a job begins them anew.

    A job need not come as far as the table is: what it has not brought is lacking then.
    """
    own, table = targets.maker.rules.changes(name), targets.writer(name)
    if own is not None and table is not None and table.head is not None and targets.writer(own) is None:
        evolve(table.table, LayoutChange(properties={KEPT_FROM: str(applied(table))}))
        targets.close(name)


def set_aside_unfit(targets: TargetTables, name: TableName, owner: TableName, now: TableVersion) -> None:
    """Keep the changes of before a gap as those of a table that was dropped, if they have other columns than its table.

    A DDL in the gap does not come to them: what it made of their values is not known, and later rows do not fit.
    """
    changes = targets.writer(name)
    if changes is not None and changes.known is not None and passed(targets.writer(owner)) > applied(changes):
        _is_set_aside(targets, name, changes, now)


def _is_set_aside(targets: TargetTables, name: TableName, changes: TableWriter, now: TableVersion) -> bool:
    if targets.maker.is_of(changes, changes_version(now)):
        return False
    had = applied(changes)
    changes.stamp(targets.stamp(name, had, {DROPPED_AT: str(had)}, changes))
    targets.forget(name)
    return True
