"""What the values of one column must become, and the refusal of a value that cannot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from applier.changefeed.table import Column
from applier.changefeed.types import DATE_TYPES
from applier.decode.decoder import WireForm
from applier.errors import ValueRefused

_HINT = (
    "if the column has another type upstream since, and the feed carries no DDL, load the table again, "
    "with `applier load -c FILE --from DIR --tables TABLE`."
)

NO_CREATE = (
    "Before the first start, read the changefeed from the CREATE TABLE on, or set [upstream] schemas to a folder with "
    "its text; load a table that is parked for it with `applier load -c FILE --from DIR --tables TABLE`."
)
"""The hint where a CREATE TABLE alone shows how to read a value."""


@dataclass(frozen=True, slots=True)
class Target:
    """One column on its way from the wire, as valid for the rows, to an array of an Arrow type.

    The path, `database.table.column`, is for messages.
    """

    column: Column
    wire: WireForm
    arrow: pa.DataType
    zero_dates: Literal["null", "stop", "string"]
    path: str

    @property
    def as_text(self) -> bool:
        """True for a date column that is configured to be text."""
        return self.zero_dates == "string" and self.column.type.name in DATE_TYPES

    def refuse(self, why: str = "it is malformed or out of range", hint: str = _HINT) -> ValueRefused:
        """The error for a value of this column. It names column and type, never the value."""
        return ValueRefused(f"A value of {self.path} cannot be read as {self.column.type.text}: {why}.", hint)
