"""Commits the changes of each table as one fenced Iceberg commit."""
