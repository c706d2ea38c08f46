"""What is left of a changefeed where control tables are lost: what its tables say, and what its checkpoint says."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from applier.changefeed.checkpoint import Checkpoint
from applier.changefeed.table import TableName
from applier.ddl.actions import NoRows, touches
from applier.errors import BY_HAND, TableMismatch, TerminalError
from applier.pipeline.scan.statements import Ddl
from applier.pipeline.state import State
from applier.pipeline.tables.target_tables import TargetTables
from applier.runtime.logs import logger
from applier.sink.commit.stamp import Stamp, read
from applier.sink.control.control import Control, SchemaDecision
from applier.sink.control.table_record import TableRecord
from applier.sink.control.tables import CHECKPOINTS, SCHEMA_CHANGES, namespace
from applier.sink.iceberg.catalog import Catalog


class LeftTable(NamedTuple):
    """A table of the changefeed, as the catalog shows it: its upstream name, and its stamp."""

    name: TableName
    stamp: Stamp


def left_tables(catalog: Catalog, changefeed: str) -> list[LeftTable]:
    """All tables in the catalog that say of themselves that they are of a changefeed; reads each table once.

    Raises:
        TransientError: The catalog does not answer.
    """
    found = []
    for where in catalog.namespaces():
        # Copies of a job, and what exports are loaded into, lie beside the control tables.
        if where[-1] != namespace(changefeed) and not where[-1].startswith(f"{namespace(changefeed)}__"):
            found += [_left(catalog, identifier, changefeed) for identifier in catalog.list(where)]
    return [item for item in found if item is not None]


def _left(catalog: Catalog, identifier: tuple[str, ...], changefeed: str) -> LeftTable | None:
    with suppress(TableMismatch, KeyError, ValueError):
        table = catalog.load(identifier)
        properties = {} if table is None else table.properties
        stamp, record = read(properties), TableRecord.told_by(properties)
        if stamp is not None and record is not None and stamp.changefeed == changefeed and not record.job:
            return LeftTable(record.name, stamp)
    return None


def outdated(changefeed: str, why: str) -> TerminalError:
    """The refusal of checkpoints that are older than what the tables say: they were restored from a backup."""
    name = f"{namespace(changefeed)}.{CHECKPOINTS.name}"
    way_out = (
        f"If no other applier runs, set control table {name} to its newest snapshot again, or drop it, and start "
        "`applier run -c FILE` again: the tables say what they have, and the feed is read from its beginning."
    )
    return TerminalError(f"The newest checkpoint is older than the tables: {why}.", way_out)


def behind(ddl: Sequence[Ddl], state: State, targets: TargetTables) -> dict[TableName, TableMismatch]:
    """Tables that do not have what the audit says, where all checkpoints are lost: they are gone, or restored.

    Their rows of before such a DDL would be passed over, as the audit takes them for applied. In offset order no stamp
    shows that. The DDL are those of the window that reads the feed again, in order.
    """
    newest: dict[TableName, int] = {}
    for item in ddl if state.checkpoint.is_lost and targets.feed.order.has_watermark else ():
        made = state.ddl.had(item.barrier.change.id)
        for action, done in item.done if made else ():
            moved = dict(done.moved)
            names = [name for name in touches(action) if name in newest and name not in moved]
            for name in done.leaving(list(newest)):
                newest.pop(name, None)
            kept = [] if isinstance(action, NoRows) else [name for name in names if name not in done.removed]
            newest |= dict.fromkeys([*kept, *done.created, *moved.values()], item.commit_ts)
    found = {}
    for name, ts in newest.items():
        writer = targets.writer(name)
        known = None if writer is None else writer.known
        if known is None or known.resolved_ts < ts:
            place = ".".join(targets.identifier(name))
            what = f"Table {place} is gone, or older than the DDL of commit ts {ts} that schema_changes says it has."
            found[name] = TableMismatch(what, BY_HAND)
    return found


def keep_decided(control: Control, last: Checkpoint, left: Sequence[LeftTable]) -> None:
    """Let the audit of DDL say what was decided before it was lost, if it is: done again, a DDL would take rows away.

    Args:
        control: The control tables; this process holds the changefeed.
        last: Its checkpoint.
        left: The tables that are left, if all checkpoints are lost.

    Raises:
        TerminalError: Neither the checkpoint nor a resolved ts shows which DDL the tables have.
    """
    if not control.tables[SCHEMA_CHANGES].is_lost:
        return
    ddl = last.ddl
    upto = max([last.resolved_ts, *(item.commit_ts for item in ddl), *(item.stamp.resolved_ts for item in left)])
    if left and not upto:
        what = f"Control tables checkpoints and schema_changes of changefeed {control.changefeed} are both lost:"
        what = f"{what} in offset order nothing shows which DDL its tables have."
        raise TerminalError(what, f"Restore one of them; or forget the changefeed, and {BY_HAND}")
    if upto:
        nowhere = TableName("", "")
        before = SchemaDecision(upto, nowhere, "", "", "lost", "what was decided before was lost with its table")
        listed = [SchemaDecision(item.commit_ts, nowhere, item.sql, "", "lost") for item in ddl]
        control.record_schema_changes([before, *listed])
        logger().warning("schema_changes is lost", hint="DDL up to this commit ts count as decided", commit_ts=upto)
