"""Schema changes of Iceberg tables."""
