"""What a decoder has worked out, kept in bounds: broken messages bring new names and descriptions without end.

Nothing kept here is knowledge: it is worked out again from the next message that needs it.
"""

from __future__ import annotations

from typing import TypeVar

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")

MAX_KEPT = 10_000
"""Entries beyond which all are forgotten; more than a changefeed has of tables and versions."""

MAX_ALIKE = 100
"""The same for entries of one key, which are searched one after the other."""


class Bounded(dict[_Key, _Value]):
    """A dictionary that is emptied before it would hold more than `MAX_KEPT` entries."""

    def __setitem__(self, key: _Key, value: _Value) -> None:
        if len(self) >= MAX_KEPT and key not in self:
            self.clear()
        super().__setitem__(key, value)


class BoundedLists(dict[_Key, list[_Value]]):
    """Lists by key, with bounds of their own on each list and on all together."""

    _kept: int = 0

    def keep(self, key: _Key, value: _Value) -> None:
        """Append a value to the list of a key."""
        if self._kept >= MAX_KEPT:
            self.clear()
            self._kept = 0
        values = self.setdefault(key, [])
        if len(values) >= MAX_ALIKE:
            self._kept -= len(values)
            values.clear()
        values.append(value)
        self._kept += 1
