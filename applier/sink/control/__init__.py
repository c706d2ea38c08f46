"""The control tables of a changefeed."""
