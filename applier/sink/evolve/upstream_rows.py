"""What TiDB shows of a table as it was right behind a statement, for values that no message and no rule gives."""

from __future__ import annotations

from typing import Any, Protocol

import pyarrow as pa

from applier.changefeed.table import ColumnType
from applier.sink.format.types import Chunks


class UpstreamRows(Protocol):
    """The rows of one table at the commit ts of a statement; it can be pickled.

    Both methods raise ValueRefused where the column is not of the type that it should have there.
    """

    @property
    def key(self) -> tuple[str, ...]:
        """Columns that identify a row; () for a table without a key."""

    def only_value(self, name: str, arrow: pa.DataType) -> pa.Scalar[Any] | None:
        """What all rows hold in a column; None where they hold different values, or there is no row."""

    def values(self, name: str, kind: ColumnType, arrow: pa.DataType, keys: pa.Table) -> Chunks:
        """What some rows hold in a column, in the order of their keys.

        Raises:
            ValueRefused: TiDB does not show one of them.
        """
