"""How the changes of a table are grouped and merged, by its shape: the place of this room that matches on it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import pyarrow as pa

from applier.changefeed.change_batch import Changes
from applier.changefeed.table import Keyed, Keyless, TableShape, TableVersion
from applier.order.merge import merge_bag, merge_keyed
from applier.order.reduce import KeyedGroup, KeylessGroup

Group: TypeAlias = KeyedGroup | KeylessGroup
"""Changes of one table version as they come."""


def group(version: TableVersion, *, by_place: bool = False) -> Group:
    """An empty group for a table version; see `KeyedGroup` for `by_place`."""
    match version.shape:
        case Keyed():
            return KeyedGroup(version, by_place)
        case Keyless():
            return KeylessGroup(version)


def merge(parts: Sequence[pa.Table], shape: TableShape, *, by_place: bool = False, exact: bool = True) -> Changes:
    """The changes that all parts of a table together make; see `merge_keyed` for the arguments."""
    match shape:
        case Keyed(key):
            return merge_keyed(parts, key, by_place=by_place, exact=exact)
        case Keyless():
            return merge_bag(parts, by_place=by_place)
