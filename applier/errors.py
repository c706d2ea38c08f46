"""Every error that applier raises on purpose, and what it means for the process.

The process ends with 2 for a `ConfigError`, with 1 for what a command found (`IncompatibleSchema`, `NeverRan`), and
with 3 for a `TransientError` that retries did not outlast, or a `TerminalError`, both of which keep the checkpoint.

A message has up to three parts: what happened, the detail, and after "Hint:" the way out. Its commands are complete;
the command line writes the path of the configuration file in place of FILE.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from copy import copy
from typing import Any, Self

ANY_TABLE = "--filter 'DATABASE.TABLE'"
"""Which tables an export has, in the place of their names."""

DUMPED = "--filetype csv --params 'time_zone=+00:00' -F 256MiB"
"""The form of an export, for which `load` needs no key of `[upstream.csv]`. Without the zone TIMESTAMP values are in
that of the server, which no file shows. Of a TiDB, Dumpling reads a consistent snapshot without an option."""

EXPORT = f"tiup dumpling -h HOST -P PORT -u USER {DUMPED} {ANY_TABLE} -o DIR"
"""The command that exports tables, and without a filter the whole cluster."""

BY_HAND = f"export the table with `{EXPORT}`, and load it with `applier load -c FILE --from DIR --tables TABLE`."
"""The hint of errors after which only a user can make a table whole."""

RELOAD = (
    "Load the table again from a new export, with `applier load -c FILE --from DIR --tables TABLE`, or leave the table "
    "out in tables.include."
)
"""The hint of errors after which the rows of a table can only come from upstream."""

RESHAPED = (
    "Set the keys of its pattern back; or load it in its new shape, with `applier load -c FILE --from DIR --tables "
    "TABLE`."
)
"""The hint of errors of a table whose rows are of another shape than its pattern gives them."""


class ApplierError(Exception):
    """Base of all errors raised on purpose.

    Args:
        what: One sentence that says what happened and where.
        hint: One sentence that says what to do about it; empty where nothing can be done.
    """

    def __init__(self, what: str, hint: str = "") -> None:
        super().__init__(what, hint)
        self.what = what
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.clause}. Hint: {self.hint}" if self.hint else self.what

    @property
    def clause(self) -> str:
        """What happened, without the full stop: it follows a colon."""
        return self.what.rstrip(".")


class ConfigError(ApplierError):
    """The configuration is wrong: every problem found, each one sentence."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems
        self.args = (problems,)


class TransientError(ApplierError):
    """An outside system did not answer; the same call may succeed later."""

    system = ""
    """Which one, of `outages.SYSTEMS`; "" where the place shows it at which the error arose."""


def worst(errors: Sequence[ApplierError]) -> ApplierError:
    """Of several errors the one that counts: what cannot pass comes first."""
    return min(errors, key=lambda error: (isinstance(error, TransientError), str(error)))


class Unreachable(TransientError):
    """No address of a system resolves or accepts a connection: wrong ones, or the system is down."""


class TerminalError(ApplierError):
    """The job stops here; its checkpoint is kept and a restart continues from it.

    Attributes:
        ddl: Commit ts of the DDL that is refused; 0 where it is something else.
        tables: The tables that it concerns, by the names that they have in the feed there; () where it names none.
        mend: What a user can change so that it does not come again, as a sentence; "" where only a load helps.
    """

    ddl = 0

    def __init__(self, what: str, hint: str = "", tables: Sequence[Any] = ()) -> None:
        super().__init__(what, hint)
        self.mend = hint.replace(RELOAD, "").replace(BY_HAND, "").strip()
        self.tables = tuple(tables)

    def worded(self, what: str, hint: str) -> Self:
        """The same error in other words."""
        worded = copy(self)
        worded.what, worded.hint = worded.args = what, hint
        return worded


class DecodeError(TerminalError):
    """One message cannot be decoded.

    The decoder raises it without a position; the row pass adds topic, partition, offset and protocol by `at`.

    Attributes:
        tables: The table of the row, or each that it may be of; () where nothing proves that no other table's row is
            lost with it.
        commit_ts: Commit ts of that row; 0 where it is not known.
    """

    def __init__(self, what: str, hint: str = "", tables: Sequence[Iterable[str]] = (), commit_ts: int = 0) -> None:
        super().__init__(what, hint, tables)
        self.commit_ts = commit_ts

    def concern(self, table: Iterable[str] | None, commit_ts: int = 0) -> None:
        """Note which row it is about, as far as the error does not know that yet; a name with an empty part is none."""
        if not self.tables and table is not None and all(table):
            self.tables = (table,)
        self.commit_ts = self.commit_ts or commit_ts

    def at(self, topic: str, partition: int, offset: int, protocol: str) -> DecodeError:
        """Return the same error with the position of its message in front."""
        return self.worded(f"Cannot decode {protocol} message at {topic}/{partition}:{offset}: {self.what}", self.hint)


class BatchRefused(DecodeError):
    """A message of several rows that cannot all be read: in order its events, and an error for each that cannot be."""

    def __init__(self, what: str, hint: str = "", events: Sequence[Any] = ()) -> None:
        super().__init__(what, hint)
        self.events = events


class IncompleteRow(DecodeError):
    """The message names a row but does not hold it (handle-key-only, a delete without key): nothing may be written."""


class ClaimCheckUnset(IncompleteRow):
    """The row lies in a claim-check storage that is not configured."""


class AmbiguousName(DecodeError):
    """A row that may be of each of several tables."""


class RegistryError(DecodeError):
    """The schema registry answered, but not with the schema of a message."""


class SchemaUnknown(RegistryError):
    """The schema registry does not know a schema id, or what its schema refers to; it may be behind.

    It is asked again for two minutes; then the message is bad like any other.
    """

    def __init__(self, what: str, hint: str = "", schema_id: int = 0) -> None:
        super().__init__(what, hint)
        self.schema_id = schema_id


class RegistryDenied(TransientError, RegistryError):
    """The schema registry answers 401 or 403: no message is bad for that, and it may do so later."""


class ValueRefused(DecodeError):
    """A value does not fit the type of its column."""


class SchemaChangeRefused(TerminalError):
    """A DDL that cannot be applied so that the table stays equal to its upstream."""


class DdlStopped(SchemaChangeRefused):
    """A DDL whose kind the configuration tells to stop the changefeed, for any table."""


class WatermarkStalled(TerminalError):
    """The resolved ts cannot advance: partitions without watermark, or rows that wait for a schema."""


class RegistryReplaced(TerminalError):
    """The schema registry gives another schema for an id than before: no id can be trusted."""


class SourceLost(TerminalError):
    """The source no longer has the offsets that the checkpoint needs, or a topic was made anew."""


class RangeRefused(TerminalError):
    """A range that, read again, would leave out rows or let older values win; its tables are () for all in it."""


class TableIncomplete(TerminalError):
    """A table may lack rows that its upstream table has, and nothing may show it as whole."""


class TableMismatch(TerminalError):
    """An Iceberg table cannot take the rows of its upstream table."""


class CheckpointConflict(TerminalError):
    """Another applier holds the changefeed, or has moved a table under this one."""


class OutsideRefused(TerminalError):
    """An outside system refuses what it would refuse again: rights, a log-in, a class that is not there."""


class IncompatibleSchema(ApplierError):
    """`applier check` found something that does not fit."""


class NeverRan(ApplierError):
    """The catalog holds nothing of the changefeed that a command is to look at."""


def reason_of(error: BaseException) -> str:
    """Why a call failed: what the operating system or the storage says, else the class of the error.

    The own texts of libraries are left out, as they may show addresses with credentials.
    """
    number = getattr(error, "errno", None)
    if isinstance(number, int):
        return os.strerror(number)
    code, status = _answer(error)
    if not code and not status:
        return type(error).__name__
    return f"the storage answers {status}, {code}" if code and status else f"the storage answers {status or code}"


def is_overload(error: BaseException) -> bool:
    """Whether a storage says that it cannot answer now, and not that it refuses."""
    code, status = _answer(error)
    return status.startswith("5") or status == "429" or code == "SLOW_DOWN"


def is_denied(error: BaseException) -> bool:
    """Whether a storage refuses the rights of the log-in, or its secret; keys that it does not know may be renewed."""
    return _answer(error)[0] in ("ACCESS_DENIED", "SIGNATURE_DOES_NOT_MATCH")


def _answer(error: BaseException) -> tuple[str, str]:
    """Code and HTTP status that Arrow quotes of an object store in its text; "" for those that it does not."""
    code, status = re.search(r"AWS Error ([A-Z_]+)", str(error)), re.search(r"HTTP status (\d{3})\b", str(error))
    return code[1] if code else "", status[1] if status else ""
