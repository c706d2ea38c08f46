"""The tables that the checkpoint lists, held against what the catalog has."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from applier.changefeed.checkpoint import Checkpoint
from applier.changefeed.table import TableName
from applier.errors import BY_HAND, TableMismatch
from applier.sink.write.table_writer import TableWriter

SNAPSHOT = "@"
"""How the identity of a table begins that is known by a snapshot alone; see `FeedPosition.table`."""


@dataclass(slots=True)
class ListedTables:
    """What the checkpoint lists.

    Attributes:
        is_strict: A listed table must be there: begun anew, it would have a part of its rows.
        broken: Tables that cannot be opened, with the reason.
    """

    is_strict: bool = False
    broken: dict[TableName, TableMismatch] = field(default_factory=dict)
    _heads: dict[tuple[str, ...], int] = field(default_factory=dict)
    _identities: dict[tuple[str, ...], str] = field(default_factory=dict)

    def restore(self, checkpoint: Checkpoint, place: Callable[[TableName], tuple[str, ...]]) -> None:
        """Begin at a checkpoint; `place` is where an upstream table goes."""
        self._heads = dict(checkpoint.cut.heads)
        known = {name: tracked.identity for name, tracked in checkpoint.tables.items() if tracked.identity}
        self._identities = {place(name): identity for name, identity in known.items()}
        self.broken.clear()

    def head(self, identifier: tuple[str, ...]) -> int | None:
        """The snapshot that the checkpoint lists of a table, or that it has by a later commit of this process."""
        return self._heads.get(identifier)

    def identity(self, identifier: tuple[str, ...]) -> str:
        """What a table is; "" where that is not known yet."""
        return self._identities.get(identifier, "")

    def meet(self, identifier: tuple[str, ...], writer: TableWriter) -> None:
        """From here on a table that was not known must be what it is now, unless others may have replaced it."""
        if identifier not in self._identities and (writer.known is not None or identifier not in self._heads):
            self._identities[identifier] = writer.table.identity

    def follow(self, identifier: tuple[str, ...], head: int) -> None:
        """From here on a listed table must hold the commit that this process has made last: older ones may expire."""
        if identifier in self._heads:
            self._heads[identifier] = head

    def pass_by(self, writer: TableWriter) -> None:
        """Let a table that is ahead of the checkpoint hold its head where others have expired the listed snapshot.

        Its stamp is younger than that snapshot, so it does not come from a backup of before. A snapshot that is kept
        stays what the table must hold, which may have been set back since.
        """
        listed = self._heads.get(writer.table.identifier)
        is_gone = listed is not None and not writer.table.has_snapshot(listed)
        if is_gone and writer.head is not None and writer.rolled_back is None:
            self.follow(writer.table.identifier, writer.head)

    def forget(self, identifier: tuple[str, ...]) -> None:
        """Forget a table that was dropped or made anew."""
        self._heads.pop(identifier, None)
        self._identities.pop(identifier, None)

    def rename(self, identifier: tuple[str, ...], to: tuple[str, ...]) -> None:
        """Follow a table to its new name, which no other has any more."""
        head, identity = self._heads.pop(identifier, None), self._identities.pop(identifier, None)
        self.forget(to)
        if head is not None:
            self._heads[to] = head
        if identity is not None:
            self._identities[to] = identity

    def damage(
        self, identifier: tuple[str, ...], writer: TableWriter | None, *, is_listed: bool
    ) -> TableMismatch | None:
        """Why nothing may be written to a table as others have left it, which may be gone; None if it may.

        It must be there if the cut lists it, or `is_listed` says so.
        """
        if writer is None:
            return _lost(identifier, is_other=False) if is_listed or self._must_be_there(identifier) else None
        try:
            self._refuse_other(identifier, writer)
            writer.hold_to(self._heads.get(identifier))
        except TableMismatch as error:
            return error
        return None

    def refuse_lost(self, identifier: tuple[str, ...], writer: TableWriter | None) -> None:
        """Refuse to write to another table than the checkpoint lists: the older rows would be missing.

        Raises:
            TableMismatch: The table is gone, or another one has its name.
        """
        if self._must_be_there(identifier) and (writer is None or writer.known is None):
            raise _lost(identifier, is_other=writer is not None)
        if writer is not None:
            self._refuse_other(identifier, writer)

    def _refuse_other(self, identifier: tuple[str, ...], writer: TableWriter) -> None:
        if self._identities.get(identifier, writer.table.identity) != writer.table.identity:
            raise _other(writer, "the checkpoint lists")

    def _must_be_there(self, identifier: tuple[str, ...]) -> bool:
        return self.is_strict and identifier in self._heads


def refuse_other(writer: TableWriter, identity: str) -> None:
    """Refuse a table that is not the one which left the feed; see `FeedPosition.table`.

    Raises:
        TableMismatch: It was replaced, or another one has its name.
    """
    if identity.startswith(SNAPSHOT):
        is_it = writer.table.has_snapshot(int(identity.removeprefix(SNAPSHOT)))
    else:
        # Of one that nothing is known of, its stamp at least says that this changefeed wrote it.
        is_it = writer.table.identity == identity if identity else writer.known is not None
    if not is_it:
        raise _other(writer, "was parked")


def _other(writer: TableWriter, one: str) -> TableMismatch:
    what = f"Table {writer.table} is not the one that {one}: it was replaced, or another one has its name."
    way_out = (
        f"Give the one that {one} its name back (ALTER TABLE RENAME, or system.register_table), and run "
        f"`applier resume -c FILE --tables TABLE`; or {BY_HAND}"
    )
    return TableMismatch(what, way_out)


def _lost(identifier: tuple[str, ...], *, is_other: bool) -> TableMismatch:
    found = "is not the one that this changefeed wrote" if is_other else "is not in the catalog any more"
    what = f"Table {'.'.join(identifier)} {found}, though the checkpoint lists it: it was dropped."
    way_out = (
        "Register it again from its last metadata file (system.register_table), or build it anew from its CREATE TABLE "
        "with `applier resume -c FILE --tables TABLE`."
    )
    return TableMismatch(what, way_out)
