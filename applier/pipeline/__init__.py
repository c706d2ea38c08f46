"""One step of a changefeed, in the order of its parts: window, DDL, tables, checkpoint."""
