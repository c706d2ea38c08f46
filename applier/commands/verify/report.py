"""What `verify` has found: of each table, and of all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any, Literal

from applier.commands.verify.difference import Kind, RowDifference
from applier.runtime.exact_json import dumps

State = Literal["equal", "different", "unknown"]

EXIT_CODES: Mapping[State, int] = {"equal": 0, "different": 1, "unknown": 2}


@dataclass(frozen=True, slots=True)
class TableVerdict:
    """Whether one table holds what its upstream holds.

    Attributes:
        table: The upstream table.
        iceberg: Identifier of the Iceberg table, its parts joined by dots.
        snapshot_id: The snapshot that was compared; None for a table without one.
        rows: Rows of the Iceberg table; None where it was not read.
        upstream_rows: Rows of the upstream; None where it was not read.
        counts: Differences of each kind.
        is_whole: The counts have all differences; False where too many chunks differ to look through them all.
        differences: Some of them.
        left_out: Columns that were not compared.
        because: Why it is unknown, or different as a whole; "" for others.
        way_out: What to do about it; "" for nothing.
        rows_read: Rows of both sides that were read, where what an earlier run read is remembered; None for all.
    """

    table: str
    iceberg: str
    state: State
    snapshot_id: int | None = None
    rows: int | None = None
    upstream_rows: int | None = None
    counts: Mapping[Kind, int] = field(default_factory=dict)
    is_whole: bool = True
    differences: Sequence[RowDifference] = ()
    left_out: Sequence[str] = ()
    because: str = ""
    way_out: str = ""
    rows_read: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """For machines. Only keys of the rows are in it, no other values."""
        plain = {name: getattr(self, name) for name in self.__slots__ if name != "differences"}
        return plain | {"differences": [_plain(found) for found in self.differences]}


def _plain(found: RowDifference) -> dict[str, Any]:
    key = {name: printable(cell) for name, cell in found.key.items()}
    return {"kind": found.kind, "key": key, "columns": found.columns, "times": found.times}


def printable(cell: Any) -> Any:
    """A cell as JSON and people take it: bytes as hex, numbers that JSON does not hold as text."""
    if isinstance(cell, bytes):
        return f"x'{cell.hex()}'"
    if isinstance(cell, date):
        return cell.isoformat()
    return cell if cell is None or isinstance(cell, bool | int | float | str) else str(cell)


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """Whether tables hold what their upstream holds at a resolved ts; `against` names the upstream for people."""

    changefeed: str
    against: str
    resolved_ts: int
    resolved: str
    tables: Sequence[TableVerdict]

    @property
    def state(self) -> State:
        """Of all tables: one that differs counts before one that is not known; no table is not known."""
        states = [table.state for table in self.tables] or ["unknown"]
        return "different" if "different" in states else "unknown" if "unknown" in states else "equal"

    @property
    def exit_code(self) -> int:
        """The exit code of the command."""
        return EXIT_CODES[self.state]

    def to_json(self) -> str:
        """The report for machines."""
        head = {"state": self.state, "exit_code": self.exit_code}
        plain = {name: getattr(self, name) for name in self.__slots__ if name != "tables"}
        return dumps({**head, **plain, "tables": [table.to_dict() for table in self.tables]})
