"""Rows of a partition of the upstream table."""
