"""Command `backfill`: a bounded range of the changefeed, read again."""
