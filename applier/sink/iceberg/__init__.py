"""Iceberg's Java library, through py4j."""
