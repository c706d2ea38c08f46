"""Shows what a command about tables will do, before it does it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from applier import wording
from applier.changefeed.checkpoint import Checkpoint, caught_up
from applier.changefeed.completeness import Completeness, Reason, Why, incomplete
from applier.changefeed.table import TableName
from applier.config.settings import Config
from applier.sink.control.rows import Kind

_LEFT_OUT = wording.clause(Reason(Why.LEFT_OUT))


def preview(kind: Kind, names: Sequence[TableName], last: Checkpoint, config: Config) -> Iterator[str]:
    """One sentence for each table that a command means."""
    route, admits = config.route, config.filter.admits
    for name in names:
        known = last.tables[name].completeness or incomplete(Why.UNRECORDED)
        iceberg = ".".join(route.identifier(name))
        match kind:
            case "park":
                yield _park(name, known, last, iceberg)
            case "resume" if not admits(name):
                yield f"{name} is {_LEFT_OUT}, so nothing brings it back."
            case "resume":
                yield _resume(name, known, last)
            case "forget" if admits(name):
                yield f"{name} is in tables.include, so it cannot be forgotten."
            case "forget":
                yield f"Forget {name}: the checkpoint and the applier.* properties of {iceberg} go, the table stays."


def _park(name: TableName, known: Completeness, last: Checkpoint, iceberg: str) -> str:
    if known.why.is_left_out and not known.is_due:
        return f"{name} is {_LEFT_OUT} and so parked already: it resumes once it is admitted there again."
    if known.is_parked and not known.is_due:
        return f"{wording.sentence(name, known)} It is left as it is, with this reason."
    at = f"resolved ts {last.resolved_ts}" if last.resolved_ts else "its last commit"
    return f"Park {name}: readers of {iceberg} keep what it shows at {at}, and no rows or DDL are applied to it."


def _resume(name: TableName, known: Completeness, last: Checkpoint) -> str:
    if known.is_live:
        return f"{name} is live: it resumes only if others have dropped, replaced or rolled back its Iceberg table."
    if known.is_due:
        return f"{name} resumes already{progress(known, last)}."
    position = known.position
    if position is None or position.version is None:
        begin = "read the feed from its CREATE TABLE on, if the audit holds it"
        return f"Resume {name}: {begin}, and show it in one commit."
    begin = f"resolved ts {position.ts}" if position.ts else "where it was parked"
    missing = f"read what it misses since {begin} up to {last.resolved_ts or 'now'}"
    return f"Resume {name}: {missing}, and show it in one commit."


def progress(known: Completeness, last: Checkpoint) -> str:
    """How far the resume of a table is, in words; "" while that is not known."""
    share = caught_up(known, last)
    return "" if share is None else f", {share:.0%} of the way"
