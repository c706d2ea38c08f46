"""The key of a message that is a schema file of TiCDC's storage sink."""

SCHEMA_KEY = b"schema"
"""Stands for the DDL that the file holds; a file with rows has no key, or one of CSV its schema file."""
