"""What Iceberg's table format prescribes: types, bounds, metrics, partitions, files."""
