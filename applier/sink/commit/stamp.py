"""How far a table is: the stamp that each commit of applier leaves in its snapshot and in the table's properties."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING

from applier.changefeed.applied_offsets import AppliedOffsets
from applier.errors import CheckpointConflict, TableMismatch

if TYPE_CHECKING:
    from applier.sink.iceberg.table import Table

CHANGEFEED = "applier.changefeed"
EPOCH = "applier.epoch"
RESOLVED_TS = "applier.resolved-ts"
"""Keys of the stamp, in the snapshot's summary and in the table's properties alike."""

VERSION = "applier.version"
"""Release of applier that made the commit. It decides nothing: formats do."""

OFFSETS = "applier.offsets"
"""Entry of the stamp of a commit of rows in offset order: the messages that the table has, see `AppliedOffsets`.
Commits of other kinds leave the property as it is."""

SUMMARY_LENGTH = 4096
"""Characters of an entry beyond which it is a property alone: a table keeps the summaries of hundreds of snapshots."""


@dataclass(frozen=True, slots=True)
class Stamp:
    """What a commit says about itself.

    The summary dies with its snapshot (compaction makes new ones, expiry drops old ones), so the same entries are
    set as table properties in the same metadata version; those are what is read.

    Attributes:
        changefeed: Name of the changefeed that the table belongs to.
        epoch: Number of the applier run that wrote it; a later start has a higher one.
        resolved_ts: The table holds every row at or below this TSO, and none above.
        extra: More entries of the caller.
    """

    changefeed: str
    epoch: int
    resolved_ts: int
    extra: Mapping[str, str] = field(default_factory=dict)

    def entries(self) -> dict[str, str]:
        """The stamp as summary entries and table properties."""
        return {
            **self.extra,
            CHANGEFEED: self.changefeed,
            EPOCH: str(self.epoch),
            RESOLVED_TS: str(self.resolved_ts),
            VERSION: _release(),
        }

    def summary(self) -> dict[str, str]:
        """The entries that the snapshot's summary has room for."""
        return {key: value for key, value in self.entries().items() if len(value) <= SUMMARY_LENGTH}


@cache
def _release() -> str:
    return version("applier")


def read(properties: Mapping[str, str]) -> Stamp | None:
    """The newest stamp in the properties of a table; None where no applier has written it.

    Raises:
        ValueError: The entries are no stamp.
    """
    if CHANGEFEED not in properties:
        return None
    extra = {
        key: value
        for key, value in properties.items()
        if key.startswith("applier.") and key not in (CHANGEFEED, EPOCH, RESOLVED_TS, VERSION)
    }
    return Stamp(properties[CHANGEFEED], int(properties[EPOCH]), int(properties[RESOLVED_TS]), extra)


def progress(table: Table, changefeed: str) -> Stamp | None:
    """The newest stamp of a table of this changefeed.

    Raises:
        TableMismatch: The table belongs to another changefeed, or its stamp was edited.
    """
    try:
        stamp = read(table.properties)
    except (KeyError, ValueError) as error:
        raise damaged(table) from error
    if stamp is not None and stamp.changefeed != changefeed:
        what = f"Table {table} belongs to changefeed {stamp.changefeed}, not to {changefeed}"
        way_out = f"Route it elsewhere, or unset the property {CHANGEFEED} if that changefeed is gone."
        raise TableMismatch(what, way_out)
    return stamp


def covered(table: Table) -> AppliedOffsets:
    """The messages that a stamped table has, as far as a feed in offset order has written it.

    Raises:
        TableMismatch: The stamp was edited.
    """
    try:
        return AppliedOffsets.from_text(table.setting(OFFSETS) or "{}")
    except ValueError as error:
        raise damaged(table) from error


def damaged(table: Table) -> TableMismatch:
    """The refusal of a table whose stamp was edited."""
    what = f"The applier.* properties of table {table} are damaged"
    return TableMismatch(what, "Drop the table and backfill it.")


def guard(table: Table, found: Stamp | None, known: Stamp | None, epoch: int) -> None:
    """Refuse to go on if another applier has written the table since its newest stamp was the known one.

    A stamp with the epoch of this applier is its own.

    Raises:
        CheckpointConflict: The stamp has a higher epoch, or a lower one that was not there before: an applier that
            should have stopped has moved the table, and a batch that is counted from `known` no longer fits.
    """
    if found is None or found.epoch == epoch:
        return
    if found.epoch > epoch:
        what = (
            f"Table {table} was written by a newer applier of changefeed {found.changefeed}: "
            f"epoch {found.epoch}, resolved ts {found.resolved_ts}; this one has epoch {epoch}"
        )
        raise CheckpointConflict(what, "Keep one applier per changefeed; this one stops.")
    if found != known:
        moved = f"from {known.resolved_ts} to {found.resolved_ts}" if known else f"to {found.resolved_ts}"
        what = f"An applier with epoch {found.epoch} moved table {table} {moved} while this one (epoch {epoch}) ran"
        raise CheckpointConflict(what, "Stop the other applier and start this one again; it continues from there.")
