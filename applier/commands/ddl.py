"""Commands `ddl list` and `ddl skip`: what became of each DDL, and one statement that is passed on a person's word."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from applier import wording
from applier.changefeed.completeness import Completeness, furthest_back
from applier.changefeed.table import TableName
from applier.commands.catalog_reader import open_lake
from applier.commands.control_reader import ControlView
from applier.commands.tables.command import who
from applier.config.settings import Config
from applier.errors import ConfigError
from applier.pipeline.build import assembled
from applier.pipeline.state import State
from applier.pipeline.tables.ddl_stamp import shown
from applier.runtime.escaping import escaped
from applier.runtime.exact_json import dumps
from applier.runtime.logs import logger
from applier.sink.control.rows import SchemaDecision, last_decisions
from applier.watch.compose import ddl_report
from applier.watch.report import DdlReport

_LISTED = 1000
"""Decisions that `ddl list` shows, the newest."""

_KEYS = ("commit_ts", "table", "kind", "decision", "reason", "sql")
"""What its JSON has of each DDL."""


@dataclass(frozen=True, slots=True)
class ListedDdl(DdlReport):
    """A DDL with what gets past it; "" for one that is in nothing's way."""

    way_out: str = ""


def listed(config: Config) -> list[ListedDdl]:
    """All DDL that were decided on, oldest first, with what a terminal would obey written out.

    Its kind is `unread` where a statement is not understood, and the decision `pending` while it holds the changefeed
    or a parked table up. Raises NeverRan where the catalog has no such changefeed, and what `open_lake` does.
    """
    with open_lake(config.catalog) as lake:
        view = ControlView(lake, config.changefeed.name)
        view.refuse_unknown()
        checkpoint = view.checkpoint()
        tables = checkpoint.tables if checkpoint else {}
        states = {name: table.completeness for name, table in tables.items() if table.completeness}
        since = furthest_back(checkpoint.resolved_ts if checkpoint else 0, states.values())
        found = [ddl_report(item, since) for item in view.decisions()[-_LISTED:]]
    return [
        ListedDdl(
            **asdict(replace(it, table=escaped(it.table), reason=escaped(it.reason), sql=escaped(shown(it.sql)))),
            way_out=_way_past(it, states, config) if it.decision == "pending" else "",
        )
        for it in found
    ]


def _way_past(item: DdlReport, states: Mapping[TableName, Completeness], config: Config) -> str:
    """The ways out of the tables that a DDL parks; that of the changefeed where it parks none."""
    parked = ((name, known) for name, known in states.items() if known.reason.ddl == item.commit_ts)
    ways = [config.ways_out.of(names, known) for names, known in wording.alike(parked)]
    way = " ".join(ways) or wording.way_past_ddl(item.commit_ts, config.path)
    return f"{way[:1].upper()}{way[1:]}"


def to_json(found: Sequence[DdlReport]) -> str:
    """The list as JSON."""
    return dumps([{key: getattr(item, key) for key in _KEYS} for item in found], indent=2)


def skip(config: Config, commit_ts: int, why: str, *, take_over: bool = False) -> list[SchemaDecision]:
    """Let `run` pass a statement that it has refused, once, without its effect; the audit keeps who decided, and why.

    Raises:
        ConfigError: No statement of that commit ts is pending, or there is no reason.
        CheckpointConflict: Another applier holds the changefeed.
    """
    if not why.strip():
        raise ConfigError(["A statement is skipped only with a reason: --why TEXT."])

    def meant(state: State, _: object = None) -> list[SchemaDecision]:
        # A parked table may have had another name at a DDL that it waits for: the place alone tells.
        since = furthest_back(state.resolved_ts, state.completeness.values())
        pending = [item for item in last_decisions(state.control.decisions(since)) if item.decision == "refused"]
        chosen = [item for item in pending if item.commit_ts == commit_ts]
        if not chosen:
            others = ", ".join(str(item.commit_ts) for item in pending) or "none"
            name = config.changefeed.name
            what = f"No DDL of commit ts {commit_ts} holds changefeed {name} or a table of it up; pending: {others}."
            raise ConfigError([what])
        return chosen

    with assembled(config, take_over=take_over, look=meant) as pipeline:
        state = pipeline.state
        chosen = meant(state)
        reason = f"{who()}: {why.strip()}"
        decided = [SchemaDecision(it.commit_ts, it.table, it.sql, it.kind, "to skip", reason) for it in chosen]
        state.record(decided)
    for item in decided:
        logger().warning("ddl will be skipped", commit_ts=item.commit_ts, table=str(item.table), kind=item.kind)
    return decided
