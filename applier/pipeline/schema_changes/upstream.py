"""The TiDB that is asked for what no message says: values of a column as they were at the commit ts of a DDL."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from applier.changefeed.table import TableName
from applier.changefeed.types import TypeRules
from applier.config.login import Login
from applier.decode.tidb.rows_as_of import RowsAsOf
from applier.decode.tidb.session import SYSTEM, MomentGone
from applier.errors import ApplierError, ConfigError, OutsideRefused, SchemaChangeRefused, TransientError, ValueRefused
from applier.runtime.retry import LATE_SECONDS, OUTAGE_SECONDS
from applier.sink.evolve.plan import Evolution

_RELOAD = (
    "Load the table again from TiDB, with `applier load -c FILE --tables TABLE`, or leave the table out in "
    "tables.include."
)


@dataclass(slots=True)
class AskedUpstream:
    """Where it is; while it does not answer, the step is repeated for two minutes. The clock has monotonic seconds."""

    login: Login
    clock: Callable[[], float] = time.monotonic
    _since: float = field(default=-math.inf, init=False)
    _last: float = field(default=-math.inf, init=False)

    def completed(self, evolution: Evolution, name: TableName, commit_ts: int, rules: TypeRules) -> Evolution:
        """An evolution of a table, with the values that are not known here.

        Raises:
            ConfigError, MomentGone, OutsideRefused, ValueRefused: TiDB does not show them.
            TransientError: It does not answer.
        """
        began = self.clock()
        try:
            completed = evolution.with_values(RowsAsOf.find(self.login, commit_ts, name, rules))
        except TransientError:
            # A query may wait longer for its answer than tables wait for a TiDB.
            self._fails(began)
            raise
        for doubt in completed.only_empty:
            what = f"Table {name} has no row in TiDB, or rows that hold different values in column {doubt.column}."
            raise ValueRefused(what)
        return completed

    def _fails(self, since: float) -> float:
        """Note a failure of what began then; how long the outage lasts: one long after the last failure is another."""
        if since - self._last > OUTAGE_SECONDS:
            self._since = since
        self._last = self.clock()
        return self._last - self._since

    @contextmanager
    def in_place_of(self, refusal: SchemaChangeRefused) -> Iterator[None]:
        """Do what TiDB is asked for, or raise the refusal, with why it could not be asked.

        An outage is waited for, but tables that need no answer must not wait for long, nor for each other.
        """
        try:
            yield
        except (ConfigError, MomentGone, OutsideRefused, ValueRefused) as error:
            raise _asked(refusal, error) from None
        except TransientError as error:
            if error.system != SYSTEM or self._fails(self.clock()) < LATE_SECONDS:
                raise
            raise _asked(refusal, error) from None
        self._last = -math.inf


def _asked(refusal: SchemaChangeRefused, error: ApplierError) -> SchemaChangeRefused:
    asked = SchemaChangeRefused(f"{refusal.what} TiDB was asked: {error.what}", _RELOAD)
    asked.mend = refusal.mend
    return asked
