"""The table versions that a decode task knows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from applier.changefeed.row_block import ColumnBlock
from applier.changefeed.table import Keyless, TableName, TableVersion, refuse_rekeyed
from applier.decode.decoder import Decoder


class TaskVersions:
    """Table versions by name and number, and what DDL say of them.

    Attributes:
        keyless: Tables of which some version has no key.

    Args:
        decoder: It learns every version, too.
        known: The versions that are known before the task.
        typed: Per table and segment the version whose column types and key count.
        cuts: DDL that cut the rows of a table into segments.
        admits: Whether the configuration replicates a table.
    """

    def __init__(
        self,
        decoder: Decoder,
        known: Sequence[TableVersion],
        typed: Mapping[TableName, Sequence[TableVersion | None]],
        cuts: Mapping[TableName, Sequence[int]],
        admits: Callable[[TableName], bool],
    ) -> None:
        self.keyless: set[TableName] = set()
        self._decoder = decoder
        self._typed = typed
        self._cuts = cuts
        self._admits = admits
        self._topics: dict[TableName, str] = {}
        self._versions: dict[tuple[TableName, int], TableVersion] = {}
        for version in known:
            self._learn(version)
        for versions in typed.values():
            for one in versions:
                if one is not None:
                    decoder.learn(one)
                    self._note(one)

    def get(self, name: TableName, number: int) -> TableVersion | None:
        """A version; None if it has not come."""
        return self._versions.get((name, number))

    def meet(self, version: TableVersion, topic: str, *, announced: bool) -> bool:
        """Learn a version that a message describes.

        Args:
            version: The version.
            topic: Where the message is.
            announced: True if that is the topic of the table, as it is for a BOOTSTRAP message.

        Returns:
            Whether the version, or the topic of its table, is new.

        Raises:
            DecodeError: The version is known with another key.
        """
        name, known = version.name, self.get(version.name, version.version)
        refuse_rekeyed(known, version)
        is_new = known != version
        if not self._admits(name) or not (is_new or (announced and self._topics.get(name) != topic)):
            return False
        if is_new:
            self._learn(version)
        if announced:
            self._topics[name] = topic
        return True

    def _learn(self, version: TableVersion) -> None:
        self._versions[version.name, version.version] = version
        self._decoder.learn(version)
        self._note(version)

    def _note(self, version: TableVersion) -> None:
        if isinstance(version.shape, Keyless):
            self.keyless.add(version.name)

    def is_reducible(self, block: ColumnBlock) -> bool:
        """False if DDL show another key than the rows do, in any segment: they may not hold it whole."""
        version = self._versions.get((block.name, block.version))
        cuts = self._cuts.get(block.name, ())
        return version is not None and all(
            self.typed(version, number).key == block.key for number in range(len(cuts) + 1)
        )

    def typed(self, version: TableVersion, number: int) -> TableVersion:
        """A version with the types and the key that DDL give it in a segment."""
        tracked = self._typed.get(version.name, ())
        known = tracked[min(number, len(tracked) - 1)] if tracked else None
        return version if known is None else version.refined(known)
