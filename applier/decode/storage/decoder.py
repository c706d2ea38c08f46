"""Decodes files of TiCDC's storage sink: a file with rows, or a schema file with a DDL, into its events.

TiCDC writes the rows of a table version in the order of their commit ts, so behind a file with rows no row follows
below the last one's commit ts but those that it sends again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import msgspec

from applier.changefeed.event import Event, Resolved, RowChange, SchemaChange
from applier.changefeed.schema_key import SCHEMA_KEY
from applier.changefeed.table import TableVersion
from applier.decode.columnar.groups import Bulk
from applier.decode.decoder import Decoder, WireForm
from applier.decode.json_messages import Tso, read_json
from applier.errors import BatchRefused, DecodeError

_UNDATED_HINT = "Set enable-tidb-extension=true in the sink-uri of the changefeed, and let it write a new folder."


class SchemaFile(msgspec.Struct, rename="pascal"):
    """A schema file, as far as it shows a DDL; without a statement it describes a table that existed before."""

    table_version: Tso
    schema: str = ""
    table: str = ""
    query: str = ""


_SCHEMAS = msgspec.json.Decoder(SchemaFile)


class StoredLines:
    """Decoder of files whose lines are messages of a protocol, which `lines` decodes."""

    bulk: Bulk | None = None

    def __init__(self, lines: Decoder) -> None:
        self._lines = lines
        self.wire: WireForm = lines.wire

    def restart(self) -> None:
        """Begin a pass; see `Decoder.restart`."""
        self._lines.restart()

    def learn(self, version: TableVersion) -> None:
        """See `Decoder`."""
        self._lines.learn(version)

    def decode(self, key: bytes | None, value: bytes | None) -> Sequence[Event]:
        """Decode one file; its key says which kind it is of."""
        if key == SCHEMA_KEY:
            return schema_change(value)
        events: list[Event | DecodeError] = []
        for number, line in enumerate((value or b"").splitlines(), start=1):
            if line:
                events += self._of_line(number, line)
        bad = next((event for event in events if isinstance(event, DecodeError)), None)
        if bad is not None:
            raise BatchRefused(bad.what, bad.hint, events)
        found = [event for event in events if not isinstance(event, DecodeError)]
        return [*found, *resolved_behind(found)]

    def _of_line(self, number: int, line: bytes) -> list[Event | DecodeError]:
        try:
            events = self._lines.decode(None, line)
            if any(isinstance(event, RowChange) and not event.commit_ts for event in events):
                return [DecodeError(f"Line {number} holds a row without a commit ts.", _UNDATED_HINT)]
        except DecodeError as error:
            error.what = f"Line {number}: {error.what}"
            return [error]
        return list(events)


def resolved_behind(events: Sequence[Event]) -> Iterator[Resolved]:
    """What a file with rows shows of its partition: no row follows below its last one, if it is in order."""
    stamps = [event.commit_ts for event in events if isinstance(event, RowChange)]
    if stamps and stamps[-1] > 1 and all(before <= after for before, after in pairwise(stamps)):
        yield Resolved(stamps[-1] - 1)


def schema_change(value: bytes | None) -> Sequence[Event]:
    """The DDL of a schema file, and that no earlier one follows in its folder."""
    found = read_json(_SCHEMAS, value or b"", "a schema file of TiCDC's storage sink")
    if not found.query:
        return ()
    change = SchemaChange(found.table_version, found.query, found.schema, table=found.table)
    return (change, Resolved(found.table_version - 1))
