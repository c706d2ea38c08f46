"""The key of a message that is a schema file of TiCDC's storage sink."""

SCHEMA_KEY = b"schema"
"""Stands for the DDL that the file holds; the key of a file with rows is empty, or its table's schema file."""
