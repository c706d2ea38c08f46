"""Lets parked tables come back that a command names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from applier import wording
from applier.changefeed.checkpoint import RequestOutcome
from applier.changefeed.completeness import Completeness, Reason, Why
from applier.changefeed.filter import option
from applier.changefeed.table import TableName
from applier.errors import EXPORT, ConfigError
from applier.pipeline.tables import completeness

if TYPE_CHECKING:
    from applier.pipeline.step import Pipeline


def bring_back(main: Pipeline, names: Sequence[TableName]) -> RequestOutcome:
    """Let tables come back, each for itself or with those that it exchanged rows with.

    Returns:
        Which do, and why others do not.

    Raises:
        ConfigError: None can.
    """
    state = main.state
    wanted = [name for name in names if _lacks(main, name)]
    if not wanted:
        raise ConfigError([f"Nothing to resume: {', '.join(map(str, names))} is live."])
    resumed, left, problems = list[TableName](), list[TableName](), list[str]()
    for name in wanted:
        if name in resumed:
            continue
        together = [name]
        for one in together:
            together += [other for other in state.completeness[one].partners if other not in together]
        try:
            due = {one: _due(main, one, state.completeness[one]) for one in together if _lacks(main, one)}
        except ConfigError as error:
            others = f"Table {name} resumes together with {', '.join(map(str, together[1:]))}: "
            problems.append((others if together[1:] else "") + " ".join(error.problems))
            left += [one for one in together if one not in left]
        else:
            state.completeness.update(due)
            resumed += [one for one in together if one not in resumed]
    if not resumed:
        raise ConfigError(problems)
    return RequestOutcome("resumes", tuple(resumed), tuple(left), tuple(problems))


def _lacks(main: Pipeline, name: TableName) -> bool:
    """Whether a table lacks something, also where others have damaged it since the start."""
    known, targets = main.state.completeness.get(name), main.targets
    is_listed = targets.identifier(name) in main.state.checkpoint.snapshots
    return known is not None and (not known.is_live or targets.damage(name, is_listed=is_listed) is not None)


def _due(main: Pipeline, name: TableName, known: Completeness) -> Completeness:
    """A table as it is to be brought back.

    Raises:
        ConfigError: The feed cannot bring it back.
    """
    state, targets = main.state, main.targets
    if not main.config.filter.admits(name):
        raise left_out(name)
    if known.is_due:
        return known
    position = known.position
    damage = completeness.damage_at(state, targets, name, position)
    if position is None or damage is not None or known.why is Why.LOST or not known.is_parked:
        is_named = Why.NOT_RENAMED not in (known.why, known.lacked and known.lacked.why)
        # Read from there, its rows would go to the table of its former name, as the RENAME is ignored again.
        found = completeness.begun(state).get(name) if targets.feed.order.parts_at_ddl and is_named else None
        if found is None:
            why = damage.what if damage is not None else wording.sentence(name, known)
            what = f"{why} The feed brings it back from its CREATE TABLE alone, which the audit of DDL does not hold."
            if not is_named:
                what = f"{why} The feed brings it back from its CREATE TABLE alone, behind which its RENAME is ignored."
            load = f"applier load -c {main.config.path} --from DIR --tables {option([name])}"
            raise ConfigError([f"{what} Export it with `{EXPORT}` and run `{load}`."])
        position = found.position
    since = known.since if known.is_parked else state.resolved_ts
    reason = known.reason if known.is_parked else Reason(Why.REBUILT)
    # From its CREATE TABLE on, the table lacks nothing.
    lacked = known.lacked if position.version is not None else None
    return replace(known, reason=reason, since=since, position=position, lacked=lacked).coming_back


def left_out(name: TableName) -> ConfigError:
    """The refusal of a table that the configuration does not admit."""
    why = wording.clause(Reason(Why.LEFT_OUT))
    return ConfigError([f"Table {name} is {why}: admit it there and start `applier run -c FILE` again."])
