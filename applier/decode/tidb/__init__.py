"""Reads rows of a TiDB as of one moment, by SQL."""
