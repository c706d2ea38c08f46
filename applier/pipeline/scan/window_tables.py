"""The tables of a window: names, those that it shows first, and their columns after each DDL."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import groupby

from applier.changefeed.table import TableName, TableVersion
from applier.ddl.actions import CreateTable, DropTable
from applier.ddl.schema_tracker import Tables
from applier.ddl.spelling import Spelling
from applier.decode.avro.namesakes import Shown
from applier.errors import SchemaChangeRefused
from applier.pipeline.scan.statements import Ddl
from applier.pipeline.scan.window_scan import WindowScan
from applier.pipeline.state import State


def spelling(found: WindowScan, state: State) -> Spelling:
    """How the tables are spelt, those that a window shows included."""
    names = (name for name, _ in [*state.versions, *found.versions, *found.results.parts])
    found_names = Spelling((*state.declared, *state.exported), (*names, *state.completeness))
    found_names.doubt(state.misnamed)
    return found_names


def met(found: WindowScan, state: State) -> dict[TableName, int]:
    """Tables that no DDL has made so far, with the lowest commit ts that the window has of them."""
    after = (barrier.change.after for barrier in found.results.barriers)
    made = {(version.name, version.version) for version in after if version is not None}
    # A version in Avro is no commit ts, and an earlier pass may have met it by a name that no table has.
    described = dict(found.new_versions - made) if state.lives is None else {}
    tables = state.declared
    return {name: at for name, at in {**described, **found.results.lowest()}.items() if name not in tables}


def with_rows(ddl: Ddl, found: WindowScan) -> Ddl:
    """A DDL whose CREATE TABLE … LIKE a table of no certain database knows what rows of the window say of its table."""
    if not any(isinstance(action, CreateTable) and action.among for action in ddl.actions):
        return ddl
    actions = [
        replace(action, rows=tuple(version for (name, _), version in found.versions.items() if name == action.table))
        if isinstance(action, CreateTable)
        else action
        for action in ddl.actions
    ]
    return replace(ddl, actions=actions)


def typed_by(ddl: Sequence[Ddl], tables: Tables) -> dict[TableName, list[TableVersion | None]]:
    """Each table as its DDL left it, one version per segment: those of one commit ts end a segment together.

    None where it is not known, also where a name may be another table's.
    """
    typed: dict[TableName, list[TableVersion | None]] = {name: [version] for name, version in tables.items()}
    after = tables.copy()
    for _, same in groupby(ddl, key=lambda change: change.commit_ts):
        concerned = dict[TableName, None]()
        for change in same:
            after.move(change.barrier.change, change.actions)
            for name in change.misnamed:
                # Rows behind it may be of another table: they must not park one that is whole up to here.
                after.apply(DropTable(name), change.commit_ts)
            concerned |= dict.fromkeys(change.parts(tables))
        for name in concerned:
            typed.setdefault(name, [None]).append(after.get(name))
    return typed


def shown(found: WindowScan, state: State) -> Shown | None:
    """What DDL, those that are not due included, and watermarks show of a window; None where names are whole.

    The window keeps in which topics its DDL came.
    """
    if state.lives is None:
        return None
    lives = state.lives.copy()
    for barrier in sorted(found.results.barriers, key=lambda item: (item.change.commit_ts, item.position.offset)):
        lives.take(barrier.change.commit_ts, barrier.change.sql, barrier.change.database, barrier.topic)
    found.homes = lives.topics
    return lives.shown(
        state.topics,
        state.declared,
        settled=state.lives.newest,
        has_watermarks=found.job.order.has_watermark
        or bool(lives.newest or state.checkpoint.resolved or found.results.resolved),
    )


def take_keys(found: WindowScan, state: State) -> bool:
    """Let described versions have the key that TiCDC takes, where statements alone show that a column of an index is
    virtual; True if that changes any.
    """
    after, keyed = state.declared.copy(), dict[tuple[TableName, int], TableVersion]()
    for change in found.ddl:
        with suppress(SchemaChangeRefused):  # It is refused again when it is applied.
            for action in change.actions:
                after.apply(action, change.commit_ts)
        described = change.barrier.change.after
        if described is not None and described.name in change.names:
            version = described.declared(after.get(described.name))
            after.put(version)
            if version.key != described.key:
                keyed[version.name, version.version] = version
    is_new = any(found.versions.get(key) != version for key, version in keyed.items())
    found.versions |= keyed
    return is_new
