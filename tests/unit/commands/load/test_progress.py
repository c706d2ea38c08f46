"""What a load says of its progress."""

from __future__ import annotations

from applier.changefeed.table import TableName
from applier.commands.load.command import LoadProgress

BIG, SMALL = TableName("shop", "big"), TableName("shop", "small")
MB = 1_000_000


def test_each_commit_is_a_line_with_rate_and_time_left() -> None:
    """The first small tables say nothing of the time that the large one takes."""
    lines: list[str] = []
    moments = iter([0.0, 2.0, 10.0, 60.0])
    progress = LoadProgress(1_000 * MB, lines.append, lambda: next(moments))
    progress.add(SMALL, 20, MB)
    progress.add(BIG, 5_000, 99 * MB)
    progress.add(BIG, 45_000, 900 * MB)
    assert lines == [
        "shop.small: 20 rows; in all 20 rows, 1.0 MB of 1,000.0 MB, 500,000 bytes/s",
        "shop.big: 5,000 rows; in all 5,020 rows, 100.0 MB of 1,000.0 MB, 10.0 MB/s, 90 s left",
        "shop.big: 45,000 rows; in all 50,020 rows, 1,000.0 MB of 1,000.0 MB, 16.7 MB/s",
    ]


def test_what_an_earlier_attempt_loaded_counts_as_done_and_for_no_rate() -> None:
    """It is no line of its own."""
    lines: list[str] = []
    moments = iter([0.0, 10.0])
    progress = LoadProgress(1_000 * MB, lines.append, lambda: next(moments))
    progress.add(BIG, 0, 500 * MB)
    progress.add(BIG, 5_000, 100 * MB)
    assert lines == ["shop.big: 5,000 rows; in all 5,000 rows, 600.0 MB of 1,000.0 MB, 10.0 MB/s, 40 s left"]
