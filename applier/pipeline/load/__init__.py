"""Loads tables from an export, as of its TSO."""
