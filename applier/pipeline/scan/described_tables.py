"""Finds the tables that a feed begun midstream only describes: no CREATE TABLE of them comes."""

from __future__ import annotations

from applier.changefeed.table import TableVersion
from applier.pipeline.scan.window_scan import WindowScan
from applier.pipeline.state import State


def described(scan: WindowScan, state: State) -> list[TableVersion]:
    """Tables that were made before the start of the feed.

    A version is the TSO of the DDL that made it: a DDL of this window or a later one brings its table. One that an
    earlier window brought is that of a table which has left its name since.
    """
    upto, made = scan.upto, [ddl.barrier.change.after for ddl in scan.ddl]
    if upto is None:
        return []
    # In the order of the messages: where versions are no TSO but hashes, their numbers have none.
    fresh = [version for key, version in scan.versions.items() if key in scan.fresh]
    versions = [version for version in fresh if version not in made and version.version <= upto]
    known = state.tables.beside(state.supplied)
    return [version for version in versions if version.name not in known]
