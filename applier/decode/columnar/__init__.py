"""The fast path: many messages of one shape, read by column."""
