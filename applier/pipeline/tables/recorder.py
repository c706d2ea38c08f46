"""The records of tables that commits carry: what is known of a table, where the table does not say so yet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from applier.changefeed.completeness import Completeness
from applier.changefeed.table import TableName
from applier.sink.control.table_record import RECORD, TableRecord
from applier.sink.write.table_writer import TableWriter


@dataclass(slots=True)
class Recorder:
    """The records of the tables of a changefeed, or of the copies of a job.

    Attributes:
        known: Whether a table holds every row; None for one of which nothing is known.
        job: The job whose copies these are; "" for the tables that readers see.
        kept: What each table says of itself, as far as that was looked at.
    """

    known: Callable[[TableName], Completeness | None] = lambda name: None
    job: str = ""
    kept: dict[TableName, Completeness] = field(default_factory=dict, init=False)
    _said: dict[tuple[str, ...], str] = field(default_factory=dict, init=False)

    def entries(self, name: TableName, writer: TableWriter | None, known: Completeness | None = None) -> dict[str, str]:
        """The property with the record of a table, if the table does not say so yet.

        Args:
            name: The name that the table has, or gets by the commit.
            writer: Its writer; None for a table that is to be made.
            known: What is known of it behind the commit; what is known now when absent.
        """
        known = known or self.known(name)
        if known is None:
            return {}
        text = TableRecord(name, known, self.job).to_text()
        if writer is None:
            return {RECORD: text}
        identifier = writer.table.identifier
        if self._said.get(identifier) != text and writer.table.setting(RECORD) != text:
            # The commit that takes it may fail: what the table says then is read again.
            self._said.pop(identifier, None)
            return {RECORD: text}
        self._said[identifier] = text
        return {}

    def forget(self, name: TableName, identifier: tuple[str, ...]) -> None:
        """Look again at what a table says."""
        self.kept.pop(name, None)
        self._said.pop(identifier, None)

    def clear(self) -> None:
        """Look again at what all tables say."""
        self.kept.clear()
        self._said.clear()
