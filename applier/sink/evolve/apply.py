"""Commits an evolution of a table: schema, rewritten files and properties together, fenced and stamped, or nothing."""

from __future__ import annotations

from dataclasses import dataclass

from applier.errors import RELOAD, SchemaChangeRefused
from applier.runtime import failpoints
from applier.sink.commit.committer import Committer
from applier.sink.commit.stamp import Stamp
from applier.sink.evolve.attempt import KEY, EvolutionAttempt
from applier.sink.evolve.plan import Evolution, Refusal
from applier.sink.evolve.rewrite import CastRefused
from applier.sink.iceberg.commit import Change
from applier.sink.iceberg.java import JavaError
from applier.sink.iceberg.schema import RevisableTable, is_refusal, refused
from applier.sink.iceberg.table import Table

__all__ = ["KEY", "Evolved", "apply_evolution"]


@dataclass(frozen=True, slots=True)
class Evolved:
    """What an evolution did.

    Attributes:
        snapshot_id: Snapshot that carries it.
        schema_id: Iceberg schema from there on.
        rewritten: Rows that were written anew; 0 where metadata was enough.
    """

    snapshot_id: int
    schema_id: int
    rewritten: int


def apply_evolution(table: Table, evolution: Evolution, stamp: Stamp) -> Evolved:
    """Apply an evolution to a table in one snapshot; older snapshots stay readable with the columns they had.

    A value that TiDB rewrote is cast as TiDB casts it. The field of a column whose type Iceberg cannot widen is made
    anew, under the same name and at the same place, and all data files are written again without dead rows.

    Args:
        table: The table. A `TableWriter` of it must `reload` afterwards.
        evolution: The steps; without any the commit only carries the stamp.
        stamp: What the commit says about itself.

    Raises:
        SchemaChangeRefused: The table would not be equal to its upstream afterwards; nothing is changed.
        TableMismatch: The table is not as the last statement left it, or Iceberg refuses the steps.
        CheckpointConflict: Another applier wrote the table.
        TransientError: Catalog or storage did not answer.
    """
    if evolution.refused is not None:
        raise _refused(table, evolution.refused)
    revisable = RevisableTable.of(table)
    committer = Committer(revisable, stamp.changefeed, stamp.epoch)
    committer.open()
    committer.trace()
    attempts: list[EvolutionAttempt] = []

    def prepare(_: int | None) -> Change:
        attempts.append(EvolutionAttempt(revisable, evolution.steps))
        change = _prepare(attempts[-1], evolution, stamp)
        failpoints.reach("data-files-staged")
        return change

    snapshot_id = committer.commit(stamp, prepare)
    table.refresh()
    return Evolved(snapshot_id, table.schema.id, attempts[-1].rewritten)


def _prepare(attempt: EvolutionAttempt, evolution: Evolution, stamp: Stamp) -> Change:
    if evolution.only_empty and attempt.has_rows:
        raise _refused(attempt.table, evolution.only_empty[0])
    try:
        return attempt.change(stamp)
    except CastRefused as error:
        raise _refused(attempt.table, Refusal(f"{error}.", RELOAD)) from None
    except JavaError as error:
        raise (refused(attempt.table, error) if is_refusal(error) else error) from None


def _refused(table: Table, refusal: Refusal) -> SchemaChangeRefused:
    what = f"Table {table} cannot follow its upstream: {refusal.reason}"
    return SchemaChangeRefused(what, refusal.hint)
