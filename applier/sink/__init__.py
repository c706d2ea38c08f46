"""Changes -> one fenced Iceberg commit per table."""
