"""What a changefeed shows of itself: reports, metrics, a page, alerts."""
