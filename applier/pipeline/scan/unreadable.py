"""A topic of which nothing can be read: most likely the protocol of the configuration is not that of the changefeed."""

from __future__ import annotations

from applier.errors import TerminalError
from applier.pipeline.scan.window_scan import WindowScan
from applier.pipeline.state import State


def refuse_unreadable(scan: WindowScan, state: State, protocol: str) -> None:
    """Refuse a first window of nothing but bad messages: set aside, they would hide that the protocol is wrong.

    Later windows may hold a bad message alone, so they pass.

    Raises:
        TerminalError: With the first of them.
    """
    messages = scan.results.counts.get("messages", 0)
    is_first = not state.versions and not state.checkpoint.resolved and not state.checkpoint.tables
    if not is_first or not scan.bad or len(scan.bad) < messages:
        return
    first = min(scan.bad, key=lambda item: (item.partition, item.offset))
    what = (
        f"None of the {messages} messages that were read is one of protocol {protocol}. The first: {first.error.what}"
    )
    raise TerminalError(
        what,
        "check changefeed.protocol; if the messages are damaged indeed, begin behind them with "
        "`applier backfill -c FILE --from OFFSETS`.",
    )
