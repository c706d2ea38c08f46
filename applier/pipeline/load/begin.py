"""Lets a changefeed that has applied nothing begin at an export, whose tables come back as those of any other load."""

from __future__ import annotations

from typing import TYPE_CHECKING

from applier.errors import TerminalError
from applier.pipeline.tables import completeness
from applier.runtime import failpoints
from applier.runtime.logs import logger

if TYPE_CHECKING:
    from applier.pipeline.step import Pipeline


def is_unstarted(main: Pipeline) -> bool:
    """Whether a changefeed has applied nothing, and read nothing."""
    return not main.state.resolved_ts and not main.state.checkpoint.partitions


def refuse_unloaded(main: Pipeline) -> None:
    """Refuse to follow a changefeed that is to begin at an export, before that is loaded.

    Raises:
        TerminalError: It has read nothing yet, and tables of it are being loaded, or an export is configured.
    """
    is_loading = any(known.why.is_loaded for known in main.state.completeness.values())
    if is_unstarted(main) and (is_loading or main.config.upstream.dump):
        name, load = main.config.changefeed.name, f"`applier load -c {main.config.path}`"
        begun = "A load has begun and not ended" if is_loading else "upstream.dump names an export"
        hint = f"Run {load}{' again, which goes on' if is_loading else ''}"
        raise TerminalError(f"Changefeed {name} begins at an export: {begun[0].lower()}{begun[1:]}.", f"{hint}.")


def begin(main: Pipeline, tso: int) -> None:
    """Write the first checkpoint of a changefeed, at the TSO of an export; its tables are due to come back.

    Raises:
        SourceLost: The feed does not hold everything since any more: the changefeed may begin at another export.
    """
    state, targets = main.state, main.targets
    state.advance(targets.feed.order.as_of(tso) or 0, main.since(tso), completeness.kept(state, targets), {}, ())
    failpoints.reach("load-begun")
    logger().info("changefeed begins", resolved_ts=tso)
